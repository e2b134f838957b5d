//! `volproof doctor`: the features that this machine has, and how to get each that it lacks.

use clap::Args;
use harness::facts::{Absence, Fact, Facts};

use super::{Exit, look};
use crate::terminal::say;
use runner::exit_code;
use runner::report::line::count;
use testbed::case::{self, Case};

/// Say what this machine can do and what it lacks.
#[derive(Debug, Args)]
pub(super) struct Flags {}

pub(super) fn run(_: &Flags) -> Result<u8, Exit> {
    let facts = Facts::get();
    say!("{:>10} {}\n", "Kernel", facts.kernel());
    facts.all().for_each(|(fact, absence)| say!("{}", line(fact, absence)));
    look::can_sandbox(facts)?;

    let all = case::all();
    let whatever = possible(facts, &all, &[]);
    say!("");
    if !facts.has(Fact::Root) {
        let rootless = possible(facts, &all, &[Fact::Root]);
        say!(
            "{rootless} of {} can run here with fake-csi, which needs no root then,",
            count(all.len(), "case")
        );
    }
    say!(
        "{whatever} of {} can run here with any driver; what the driver can do, `run` asks it",
        count(all.len(), "case")
    );
    Ok(exit_code::OK)
}

/// The number of cases that the machine could run if no case needed the `ignored` features.
fn possible(facts: &Facts, cases: &[&Case], ignored: &[Fact]) -> usize {
    let is_there = |fact: Fact| facts.has(fact) || ignored.contains(&fact);
    let can_run = |case: &&&Case| case.needs().into_iter().filter_map(|need| need.fact()).all(is_there);
    cases.iter().filter(can_run).count()
}

/// The line of a feature: whether the machine has it, the number of cases that need it, and the reason and remedy if it is
/// absent.
fn line(fact: Fact, absence: Option<&Absence>) -> String {
    let all = case::all();
    let users = all.iter().filter(|case| case.needs().iter().any(|need| need.fact() == Some(fact))).count();
    let users = if users == 0 { String::new() } else { format!("needed by {}", count(users, "case")) };
    let Some(absence) = absence else {
        return format!("{:>10} {:<16} {users}", "yes", fact.name()).trim_end().to_owned();
    };
    let mut line = format!("{:>10} {:<16} {}", "no", fact.name(), absence.reason);
    if !users.is_empty() {
        line += &format!("; {users}");
    }
    if !absence.fix.is_empty() {
        line += &format!("\n{:28}{}", "", absence.fix);
    }
    line
}
