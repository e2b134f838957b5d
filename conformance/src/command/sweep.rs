//! `volproof sweep`: undoes the leftovers of killed runs, and nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use harness::janitor::{self, Dead, Report, Swept};
use harness::ledger::age;
use harness::printable::printable;

use super::{Exit, run};
use crate::terminal::say;
use runner::exit_code;
use runner::kept_logs;
use runner::report::line::count;

/// Undo what runs that were killed have left behind.
///
/// What living runs have made is not touched. The logs of failed runs without --report, in the cache or among the
/// temporary files, are listed, and removed only with --reports.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Tell what is left of whose runs, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove the report directories of ended runs as well: all, or those in which nothing was written for so long,
    /// such as 12h or 7d
    #[arg(long, value_name = "AGE", num_args = 0..=1, require_equals = true, default_missing_value = "0d",
          value_parser = duration)]
    reports: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    const DAY: u64 = 24 * 60 * 60;
    match text.strip_suffix('d').map(str::parse::<u32>) {
        Some(Ok(days)) => Ok(Duration::from_secs(u64::from(days) * DAY)),
        _ => run::span(text),
    }
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let left = if flags.dry_run { list_dead()? } else { sweep()? };
    sweep_reports(flags)?;
    match left {
        0 => Ok(exit_code::OK),
        left => Err(Exit::environment(format!("{} could not be undone", count(left, "thing")))
            .hint("run `volproof sweep` again once nothing uses them")),
    }
}

/// Lists the leftovers that a sweep would undo.
fn list_dead() -> Result<usize, Exit> {
    let dead = janitor::dead().map_err(anyhow::Error::from)?;
    for Dead { run, author, left, unreadable } in &dead {
        let whose = author.as_ref().map(ToString::to_string);
        print(&format!("run {run} {}", whose.unwrap_or_default()));
        left.iter().for_each(|line| print(&format!("  would undo {line}")));
        unreadable.iter().for_each(|why| print(&format!("  cannot be undone: {why}")));
    }
    match dead.len() {
        0 => say!("nothing to sweep: no run has ended without its janitor"),
        runs => say!("would sweep {}", count(runs, "run")),
    }
    Ok(0)
}

/// Undoes the leftovers of dead runs. Returns the number that could not be undone.
fn sweep() -> Result<usize, Exit> {
    let swept = janitor::sweep().map_err(anyhow::Error::from)?;
    for Swept { run, author, undone } in &swept {
        let whose = author.as_ref().map(ToString::to_string);
        print(&format!("run {run} {}", whose.unwrap_or_default()));
        undone.done.iter().for_each(|line| print(&format!("  {line}")));
        undone.left.iter().for_each(|line| print(&format!("  left: {line}")));
    }
    match swept.len() {
        0 => say!("nothing to sweep: no run has ended without its janitor"),
        runs => say!("swept {}", count(runs, "run")),
    }
    Ok(swept.iter().map(|swept| swept.undone.left.len()).sum())
}

fn sweep_reports(flags: &Flags) -> Result<(), Exit> {
    let all = janitor::reports(&kept_logs::places());
    let Some(least) = flags.reports else {
        if let Some(oldest) = all.first() {
            say!(
                "{} of ended runs in {} ({}, the oldest of {} ago); `volproof sweep --reports` removes them",
                directories(all.len()),
                parents(&all),
                size(&all),
                age(oldest.age),
            );
        }
        return Ok(());
    };
    let old: Vec<Report> = all.into_iter().filter(|report| report.age >= least).collect();
    let mut failed = Vec::new();
    for report in &old {
        let described = format!("{}, written {} ago", report.path.display(), age(report.age));
        if flags.dry_run {
            print(&format!("would remove {described}"));
            continue;
        }
        match report.remove() {
            Ok(()) => print(&format!("removed {described}")),
            Err(error) => failed.push(format!("{}: {error}", report.path.display())),
        }
    }
    if !flags.dry_run {
        say!("removed {} ({})", directories(old.len() - failed.len()), size(&old));
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Exit::environment("some report directories could not be removed").details(failed)),
    }
}

/// The directories that they are in.
fn parents(reports: &[Report]) -> String {
    let parents: BTreeSet<_> = reports.iter().filter_map(|report| report.path.parent()).collect();
    let parents: Vec<String> = parents.into_iter().map(|parent| parent.display().to_string()).collect();
    parents.join(" and ")
}

fn directories(number: usize) -> String {
    if number == 1 { "1 report directory".to_owned() } else { format!("{number} report directories") }
}

fn size(reports: &[Report]) -> String {
    let bytes: u64 = reports.iter().map(|report| report.bytes).sum();
    match bytes >> 20 {
        0 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        mega => format!("{mega} MiB"),
    }
}

fn print(line: &str) {
    say!("{}", printable(line.trim_end()));
}
