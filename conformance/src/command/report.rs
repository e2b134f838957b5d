//! `volproof report`: one report of one or several finished runs.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Exit;
use harness::private;
use runner::event::RunRecord;
use runner::exit_code;
use runner::merge::merge;
use runner::report::{html, json, junit};

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
    let whole = merge(records).expect("clap asks for at least one directory");
    private::directory(out).map_err(|error| {
        Exit::environment(format!("cannot write reports to `{}`", out.display())).details([error.to_string()])
    })?;
    json::write_results(&whole, out)?;
    junit::write(&whole, out)?;
    html::write(&whole, out)?;
    println!("{}", out.join("report.html").display());
    Ok(if whole.interrupted { exit_code::INTERRUPTED } else { whole.exit_code })
}

/// The results in a directory. The logs of its cases lie beside them, wherever the directory was taken.
fn read(directory: &Path) -> Result<RunRecord, Exit> {
    let path = directory.join("results.json");
    let refused = |why: String| {
        Exit::usage(format!("cannot read `{}`", path.display()))
            .details([why])
            .hint("name a directory that `volproof run --report DIR` wrote")
    };
    let text = fs::read_to_string(&path).map_err(|error| refused(error.to_string()))?;
    let mut record: RunRecord = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    if record.version != RunRecord::VERSION {
        return Err(refused(format!(
            "its version is {}, and this volproof reads version {}",
            record.version,
            RunRecord::VERSION
        )));
    }
    for case in &mut record.cases {
        let beside = directory.join("cases").join(case.id.as_str());
        if beside.is_dir() {
            case.logs = Some(beside);
        }
    }
    Ok(record)
}
