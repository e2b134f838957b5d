//! `volproof doctor`: what this machine can do, and what each missing thing takes.

use clap::Args;

use super::{Exit, look};
use crate::case;
use crate::exit_code;
use crate::need::{Need, Who};
use crate::report::line::count;

/// Say what this machine can do and what it lacks.
#[derive(Debug, Args)]
pub(super) struct Flags {}

pub(super) fn run(_: &Flags) -> Result<u8, Exit> {
    let machine = look::machine();
    println!("      Host {}, {}", machine.kernel, machine.privilege);
    let all = case::all();
    for need in Need::ALL.iter().filter(|need| need.who() == Who::Host) {
        let users = all.iter().filter(|case| case.needs().contains(need)).count();
        let users = count(users, "case");
        match machine.lacks.iter().find(|(lacking, _)| lacking == need) {
            None => println!("{:>10} {:<14} {users}", "yes", need.word()),
            Some((_, why)) => {
                println!("{:>10} {:<14} {users}: {why}\n{:26}{}", "no", need.word(), "", need.help())
            }
        }
    }
    println!();
    if let Some(why) = &machine.no_sandbox {
        return Err(Exit::environment("no case can run here: no sandbox can be made").details([why.clone()]));
    }
    let lacking = |need: &Need| machine.lacks.iter().any(|(lacking, _)| lacking == need);
    let possible = all.iter().filter(|case| !case.needs().iter().any(lacking)).count();
    println!(
        "  {} of {} can run here, as far as the machine goes; the driver is asked by `run`",
        possible,
        count(all.len(), "case")
    );
    if possible == 0 { Ok(exit_code::ENVIRONMENT) } else { Ok(exit_code::OK) }
}
