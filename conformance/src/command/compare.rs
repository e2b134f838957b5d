//! `volproof compare`: the differences between the stories of two traces.

use std::path::{Path, PathBuf};

use clap::Args;
use harness::printable::printable;

use super::Exit;
use crate::compare::{Trace, compare};
use crate::terminal::{self, say};
use runner::exit_code;

/// Compare two traces.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the same story; 1 another one; 2 command line, or a file that is no trace."
)]
pub(super) struct Flags {
    /// A trace, such as a recording
    #[arg(value_name = "TRACE")]
    first: PathBuf,
    /// Another one
    #[arg(value_name = "TRACE")]
    second: PathBuf,
    /// Print the difference as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let comparison = compare(&read(&flags.first)?, &read(&flags.second)?);
    if flags.json {
        terminal::write_pretty_json(&comparison);
    } else if comparison.same {
        say!("the same story");
    } else {
        let text = format!(" - {}\n + {}\n\n{comparison}", flags.first.display(), flags.second.display());
        say!("{}", printable(&text).trim_end_matches('\n'));
    }
    Ok(if comparison.same { exit_code::OK } else { exit_code::CASES_FAILED })
}

/// Reads and parses a trace.
fn read(path: &Path) -> Result<Trace, Exit> {
    let refused =
        |why: String| Exit::usage(format!("cannot read the trace `{}`", path.display())).details([why]);
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    Trace::parse(&text).map_err(|error| refused(error.to_string()))
}
