//! `volproof explain`: the meaning of names in reports.

mod words;

use clap::Args;
use contracts::promise::Promise;
use contracts::rule::Rule;
use contracts::{manager, promise};
use harness::manifest::Sabotage;

use super::{Exit, nearest_lines};
use crate::terminal::say;
use runner::exit_code;
use runner::program;
use runner::registry::{self, Entry};
use runner::select;
use testbed::case::{self, Case, CaseId};
use testbed::need::{Need, Provider};

/// Say what a case, a promise or a need is about.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Cases' ids, promises such as INV-013 or DRV-031, needs such as Block, capabilities of CSI, and words that
    /// volproof prints; without any, their list
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Explain every promise of a driver
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let explained = |name: &String| explain(name).ok_or_else(|| unknown(name));
    let text = match flags.names.as_slice() {
        [] if flags.all => {
            let promises: Vec<String> = registry::all().iter().map(explain_promise).collect();
            promises.join("\n\n")
        }
        [] => overview(),
        names => names.iter().map(explained).collect::<Result<Vec<_>, Exit>>()?.join("\n\n"),
    };
    say!("{}", text.trim_end());
    Ok(exit_code::OK)
}

/// All names that can be explained, one on each line.
fn overview() -> String {
    let mut text = "Promises of a driver\n".to_owned();
    for entry in registry::all() {
        let Promise { id, strength, sentence, .. } = entry.promise;
        text += &format!("  {id}  {strength:<6}  {sentence}\n");
    }
    text += "\nInvariants of the volume manager\n";
    manager::RULES.iter().for_each(|rule| text += &format!("  {}  {}\n", rule.id, rule.sentence));
    text += "\nInvariants of the cluster's controllers\n";
    manager::CLUSTER.iter().for_each(|rule| text += &format!("  {}  {}\n", rule.id, rule.sentence));
    text += "\nNeeds of cases\n";
    Need::ALL.iter().for_each(|need| text += &format!("  {:<15} {}\n", need.name(), need.help()));
    text += "\nWords in reports\n";
    words::all().for_each(|word| text += &format!("  {word}\n"));
    text + "\n`volproof list` has the cases.\n"
}

fn explain(name: &str) -> Option<String> {
    // The head of a report writes a name as several words.
    let plain = name.replace([' ', '-'], "");
    let need = Need::ALL
        .iter()
        .find(|need| need.name().eq_ignore_ascii_case(&plain))
        .map(|need| explain_need(*need));
    let case = || case::find(&CaseId::new(name)).map(explain_case);
    let word = || words::explain(name);
    need.or_else(case).or_else(|| explain_contract(name)).or_else(word).or_else(|| only_match(name))
}

/// The case, if a part of an id matches only one.
fn only_match(name: &str) -> Option<String> {
    let all = case::all();
    let mut meant = all.iter().filter(|case| select::matches(name, &case.id()));
    match (meant.next(), meant.next()) {
        (Some(case), None) => Some(explain_case(case)),
        _ => None,
    }
}

fn explain_case(case: &Case) -> String {
    let mut text = format!("{}   {}:{}\n\n", case.id(), case.file, case.line);
    case.proves.split("\n\n").for_each(|paragraph| text += &format!("  {}\n\n", joined(paragraph)));
    text += "  needs\n";
    case.needs().iter().for_each(|need| text += &format!("    {need}  {}\n", need.help()));
    if !case.judges.is_empty() {
        text += "\n  judges, beside the rules\n";
        let promises = case.judges.iter().filter_map(|id| promise::find(id));
        promises.for_each(|promise| text += &format!("    {}  {}\n", promise.id, promise.sentence));
    }
    for (word, reason) in
        [("runs alone", case.serial), ("takes seconds", case.waits), ("expected to fail", case.xfail)]
    {
        reason.iter().for_each(|reason| text += &format!("\n  {word}: {reason}\n"));
    }
    text
}

/// The lines of a paragraph as one, to be broken where the terminal ends; those of a list stay.
fn joined(paragraph: &str) -> String {
    let is_list = paragraph.lines().any(|line| line.starts_with(['-', '*', ' ', '|']));
    paragraph.lines().collect::<Vec<_>>().join(if is_list { "\n  " } else { " " })
}

fn explain_contract(name: &str) -> Option<String> {
    let name = name.to_ascii_uppercase();
    let invariant = || manager::all().find(|rule| rule.id == name);
    let promise = registry::find(&name).map(|entry| explain_promise(&entry));
    promise.or_else(|| {
        let rule = invariant()?;
        let party = match manager::binds_controllers(rule.id) {
            true => "the cluster's controllers",
            false => "the volume manager",
        };
        Some(format!("{name}   binds {party}\n\n  {}\n{}", rule.sentence, judged_by_rule(rule)))
    })
}

fn explain_promise(entry: &Entry) -> String {
    let Promise { id, sentence, strength, harm, basis, seen_in } = entry.promise;
    let mut text = format!("{id}   binds the driver\n\n  {sentence}\n\n  {strength}: {basis}\n");
    text += &harm.reason().map(|reason| format!("\n  {reason}\n")).unwrap_or_default();
    if !seen_in.is_empty() {
        text += "\n  broken before, or tested elsewhere\n";
        seen_in.iter().for_each(|seen_in| text += &format!("    {}\n", address(seen_in)));
    }
    text += &entry.rule.map_or_else(|| "\n  judged by no rule over traces\n".to_owned(), judged_by_rule);
    entry.suite.iter().for_each(|part| text += &format!("\n  judged by {part}\n"));
    if !entry.cases.is_empty() {
        text += "\n  judged by these cases\n";
        entry.cases.iter().for_each(|case| text += &format!("    {}\n", case.id()));
    }
    if !entry.is_judged() {
        text += "\n  not observable: nothing here judges it yet\n";
    }
    if !entry.sabotages.is_empty() {
        text += "\n  broken by these sabotages of fake-csi\n";
        let line = |sabotage: &Sabotage| format!("    {}: {}\n", sabotage.name(), sabotage.bug());
        text.extend(entry.sabotages.iter().map(line));
        let program = program::name();
        text += &format!(
            "\n  `{program} sabotage NAME` says which case finds one of them; `{program} run --sabotage NAME CASE` shows its report\n"
        );
    }
    text
}

/// The address of an issue, if the name has the form of one.
fn address(seen_in: &str) -> String {
    let is_thread = |(repository, number): &(&str, &str)| {
        repository.split('/').count() == 2 && number.bytes().all(|digit| digit.is_ascii_digit())
    };
    match seen_in.split_once('#').filter(is_thread) {
        Some((repository, number)) => format!("https://github.com/{repository}/issues/{number}"),
        None => seen_in.to_owned(),
    }
}

fn judged_by_rule(rule: &Rule) -> String {
    let says = rule.witnesses.iter().map(|witness| format!("{witness:?}").to_lowercase());
    let says = says.collect::<Vec<_>>().join(", ");
    format!("\n  judged in every case that gives an occasion, by what these say: {says}\n")
}

pub(super) fn explain_need(need: Need) -> String {
    let party = match need.provider() {
        Provider::Driver => "asked of the driver",
        Provider::Host => "looked for on the machine",
    };
    let mut text = format!("{need}   {party}\n\n  {}\n\n  needed by\n", need.help());
    let all = case::all();
    all.iter()
        .filter(|case| case.needs().contains(&need))
        .for_each(|case| text += &format!("    {}\n", case.id()));
    text
}

fn unknown(name: &str) -> Exit {
    let known: Vec<CaseId> = (case::all().iter().map(|case| case.id()))
        .chain(Need::ALL.iter().map(|need| CaseId::new(need.name())))
        .chain(manager::all().map(|rule| CaseId::new(rule.id)))
        .chain(promise::all().map(|promise| CaseId::new(promise.id)))
        .collect();
    let nearest = select::nearest(name, &known);
    Exit::new(exit_code::NOTHING_RAN, format!("nothing here is called `{name}`"))
        .details(nearest_lines(&nearest))
        .hint(
            "`volproof explain` lists promises, invariants, needs and words of reports, `volproof list` the cases",
        )
}
