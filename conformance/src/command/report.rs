//! `volproof report`: merges finished runs into one report.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Exit;
use crate::terminal::say;
use harness::private;
use runner::difference;
use runner::event::RunRecord;
use runner::exit_code;
use runner::merge::merge;
use runner::report::line::{Palette, SinceLines};
use runner::report::{html, json, junit};
use testbed::failure::chain;

/// Write the reports of finished runs again, as those of one run.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: as the runs themselves; 2 command line, or a directory without results.")]
pub(super) struct Flags {
    /// Directories that `volproof run --report DIR` wrote: the shards of a run, for example
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Where to write results.json, junit.xml and report.html; needed for more than one DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Tell what has changed since this run: its directory, or its results.json
    #[arg(long, value_name = "PATH")]
    since: Option<PathBuf>,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let out = match (&flags.out, flags.directories.as_slice()) {
        (Some(out), _) => out,
        (None, [only]) => only,
        (None, _) => {
            return Err(Exit::usage("several runs have no directory in common")
                .hint("name one for the report of all of them with --out DIR"));
        }
    };
    let records = flags.directories.iter().map(|directory| read(directory)).collect::<Result<Vec<_>, _>>()?;
    let mut whole = merge(records).expect("clap asks for at least one directory");
    whole.since = match &flags.since {
        Some(path) => Some(difference::between(path.display().to_string(), &earlier(path)?, &whole)),
        None => None,
    };
    private::directory(out).map_err(|error| {
        Exit::environment(format!("cannot write reports to `{}`", out.display())).details([error.to_string()])
    })?;
    json::write_results(&whole, out)?;
    junit::write(&whole, out)?;
    html::write(&whole, out)?;
    if let Some(since) = &whole.since {
        say!("{}", SinceLines(Palette::plain(), since).to_string().trim_end());
    }
    say!("{}", out.join("report.html").display());
    Ok(if whole.interrupted { exit_code::INTERRUPTED } else { whole.exit_code })
}

/// The results in a report directory, with the paths of the logs adapted: the directory may have been moved.
fn read(directory: &Path) -> Result<RunRecord, Exit> {
    let mut record = results(&directory.join("results.json"))?;
    for case in &mut record.cases {
        let beside = directory.join("cases").join(case.id.as_str());
        if beside.is_dir() {
            case.logs = Some(beside);
        }
    }
    Ok(record)
}

/// An earlier run, by its directory or by its `results.json`.
pub(super) fn earlier(path: &Path) -> Result<RunRecord, Exit> {
    results(&if path.is_dir() { path.join("results.json") } else { path.to_owned() })
}

fn results(path: &Path) -> Result<RunRecord, Exit> {
    json::read_results(path).map_err(|error| {
        Exit::usage(format!("cannot read `{}`", path.display()))
            .details(chain(&error))
            .hint("name a directory that `volproof run --report DIR` wrote")
    })
}
