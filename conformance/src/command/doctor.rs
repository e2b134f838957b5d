//! `volproof doctor`: what this machine can do, and what each missing thing takes.

use clap::Args;
use harness::facts::{Absence, Fact, Facts};

use super::{Exit, look};
use crate::case::{self, Case};
use crate::exit_code;
use crate::report::line::count;

/// Say what this machine can do and what it lacks.
#[derive(Debug, Args)]
pub(super) struct Flags {}

pub(super) fn run(_: &Flags) -> Result<u8, Exit> {
    let facts = Facts::get();
    println!("{:>10} {}\n", "Kernel", facts.kernel());
    facts.all().for_each(|(fact, absence)| println!("{}", line(fact, absence)));
    look::can_sandbox(facts)?;

    let all = case::all();
    let needed = |case: &Case| case.needs().into_iter().filter_map(|need| need.fact()).collect::<Vec<_>>();
    let possible = all.iter().filter(|case| needed(case).into_iter().all(|fact| facts.has(fact))).count();
    println!(
        "\n{possible} of {} can run here as far as the machine goes; what the driver can do, `run` asks it",
        count(all.len(), "case")
    );
    Ok(if possible == 0 { exit_code::ENVIRONMENT } else { exit_code::OK })
}

/// Whether it is there, which cases ask for it, and if it is not, why and what would change that.
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
