//! `volproof sweep`: undoes what runs that were killed have left behind, and nothing else.

use clap::Args;
use harness::janitor::{self, Swept};

use super::Exit;
use runner::exit_code;
use runner::report::line::count;

/// Undo what runs that were killed have left behind.
#[derive(Debug, Args)]
pub(super) struct Flags {}

pub(super) fn run(_: &Flags) -> Result<u8, Exit> {
    let swept = janitor::sweep().map_err(anyhow::Error::from)?;
    if swept.is_empty() {
        println!("nothing to sweep: no run has ended without its janitor");
        return Ok(exit_code::OK);
    }
    swept.iter().for_each(tell);
    let left: usize = swept.iter().map(|swept| swept.undone.left.len()).sum();
    println!("swept {}", count(swept.len(), "run"));
    match left {
        0 => Ok(exit_code::OK),
        left => Err(Exit::environment(format!("{} could not be undone", count(left, "thing")))
            .hint("run `volproof sweep` again once nothing uses them")),
    }
}

fn tell(swept: &Swept) {
    println!("run {}", swept.run);
    swept.undone.done.iter().for_each(|line| println!("  {line}"));
    swept.undone.left.iter().for_each(|line| println!("  left: {line}"));
}
