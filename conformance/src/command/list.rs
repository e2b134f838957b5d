//! `volproof list`: the cases and the promises.

use clap::{Args, ValueEnum};
use contracts::promise::Promise;

use super::Exit;
use super::run::{About, no_match};
use crate::terminal;
use runner::exit_code;
use runner::registry::{self, Entry};
use runner::select::{Selection, Shard};
use testbed::case;

/// Show the cases.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Substrings or globs of case ids
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Leave out what matches
    #[arg(long, value_name = "FILTER")]
    exclude: Vec<String>,
    /// Only cases about the driver, or about the node
    #[arg(long, value_enum, default_value_t = About::All)]
    about: About,
    /// Only part I of N
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Show the promises of a driver instead, and how far CSI obliges it to keep each
    #[arg(long, conflicts_with_all = ["exclude", "shard", "about"])]
    promises: bool,
    /// How to show them
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Id, sentence and needs
    Human,
    /// `id: test`, as test runners ask for it
    Terse,
    /// One JSON object a line
    Json,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    if flags.promises {
        return Ok(list_promises(flags));
    }
    let (filters, exclude) = (flags.filters.clone(), flags.exclude.clone());
    let selection = Selection { filters, exclude, about: flags.about.chosen(), shard: flags.shard };
    let cases = selection.choose(&case::all()).map_err(|error| no_match(&error))?;
    let mut out = String::new();
    for case in &cases {
        let needs: Vec<_> = case.needs().iter().map(ToString::to_string).collect();
        out += &match flags.format {
            Format::Terse => format!("{}: test\n", case.id()),
            Format::Human => {
                let (id, sentence, about) = (case.id(), case.sentence(), case.about());
                let needs = if needs.is_empty() { "nothing".to_owned() } else { needs.join(", ") };
                format!("{id}\n    {sentence}\n    about the {about}; needs {needs}\n")
            }
            Format::Json => {
                let (id, proves) = (case.id(), case.sentence());
                serde_json::json!({ "id": id, "proves": proves, "about": case.about(), "needs": needs, "judges": case.judges, "file": case.file, "line": case.line })
                    .to_string()
                    + "\n"
            }
        };
    }
    print(&out, flags.format);
    Ok(if cases.is_empty() { exit_code::NOTHING_RAN } else { exit_code::OK })
}

fn print(text: &str, format: Format) {
    match format {
        Format::Human => terminal::write_lines(text.as_bytes()),
        Format::Terse | Format::Json => terminal::write_text(text.as_bytes()),
    }
}

fn list_promises(flags: &Flags) -> u8 {
    let chosen = |entry: &&Entry| {
        let Promise { id, sentence, .. } = entry.promise;
        let says = |filter: &String| id.contains(filter.as_str()) || sentence.contains(filter);
        flags.filters.is_empty() || flags.filters.iter().any(says)
    };
    let entries = registry::all();
    let chosen = entries.iter().filter(chosen);
    let lines: Vec<String> = chosen.map(|entry| promise_line(entry, flags.format)).collect();
    print(&lines.concat(), flags.format);
    if lines.is_empty() { exit_code::NOTHING_RAN } else { exit_code::OK }
}

fn promise_line(entry: &Entry, format: Format) -> String {
    let Promise { id, sentence, strength, basis, .. } = entry.promise;
    match format {
        Format::Terse => format!("{id}: {strength}\n"),
        Format::Human => {
            let unseen = if entry.is_judged() { "" } else { " (not observable yet)" };
            format!("{id}  {strength:<6}  {sentence}{unseen}\n")
        }
        Format::Json => {
            let basis = basis.to_string();
            let cases: Vec<_> = entry.cases.iter().map(|case| case.id()).collect();
            let sabotages: Vec<_> = entry.sabotages.iter().map(|sabotage| sabotage.name()).collect();
            let line = serde_json::json!({
                "id": id, "strength": strength, "sentence": sentence, "basis": basis,
                "observable": entry.is_judged(), "rule": entry.rule.is_some(), "suite": entry.suite,
                "cases": cases, "sabotages": sabotages,
            });
            line.to_string() + "\n"
        }
    }
}
