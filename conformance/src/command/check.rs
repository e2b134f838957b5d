//! `volproof check`: judges a recorded trace by all promises and invariants.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::Args;
use contracts::rule::Rest;

use super::Exit;
use crate::check::{Judgement, ReadError, Recording};
use crate::terminal::{self, say};
use harness::printable::printable;
use runner::exit_code;

/// Hold a recording against every promise.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 nothing is broken; 1 something is; 2 command line, or a file that is no trace; 3 nothing in it can be judged."
)]
pub(super) struct Flags {
    /// A trace: a `trace.jsonl` of a case, or a recording beside another node
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// At its end nothing was under way and no pod was left: ask also for what should have happened by then
    #[arg(long)]
    at_rest: bool,
    /// Tell of every promise, not only of the broken ones
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
    /// Print the judgement as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let rest = flags.at_rest.then(Rest::default);
    let refused = |error: ReadError| {
        let what = format!("cannot read the trace `{}`", flags.trace.display());
        Exit::usage(what).details([error.to_string()])
    };
    let file = File::open(&flags.trace).map_err(|error| refused(error.into()))?;
    let judgement = Judgement::of(Recording::new(BufReader::new(file)), rest.as_ref()).map_err(refused)?;
    if flags.json {
        terminal::write_pretty_json(&judgement);
    } else {
        if flags.verbose {
            say!("{}", printable(&judgement.in_full().to_string()));
        }
        say!("{}", printable(&judgement.to_string()));
    }
    Ok(match (judgement.is_bad(), judgement.says_something()) {
        (true, _) => exit_code::CASES_FAILED,
        (false, true) => exit_code::OK,
        (false, false) => exit_code::NOTHING_RAN,
    })
}
