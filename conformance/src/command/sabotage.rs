//! `volproof sabotage`: which broken promises the cases find.
//!
//! Each sabotage is tried with the cases that judge its promise, as the registry knows them, until one of them finds it.
//! All cases against all sabotages take many times as long, and find the same.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use futures::StreamExt;
use harness::manifest::Sabotage;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::process::{Child, Command};

use super::{Exit, report, run, under_ledger};
use crate::terminal::{self, note, say};
use runner::dispatch::Ledger;
use runner::event::{RunRecord, Status};
use runner::exit_code;
use runner::registry;
use runner::report::line::count;

/// Break each promise of fake-csi in turn, and see whether the cases find it.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 each was found; 1 some was not; 2 command line; 4 the cases could not be run; 130 interrupted."
)]
pub(super) struct Flags {
    /// Sabotages of fake-csi; all of them if none is named
    #[arg(value_name = "NAME")]
    names: Vec<Sabotage>,
    /// These cases instead of those that judge the promise: substrings or globs of their ids
    #[arg(long = "case", value_name = "FILTER")]
    cases: Vec<String>,
    /// All cases about the driver against each
    #[arg(long, conflicts_with = "cases")]
    thorough: bool,
    /// How many are tried at once; twice as many as there are processors if not given, since they wait most of the time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// How long one case and the start of the driver may take: what a broken driver never does is not waited for longer
    #[arg(long, default_value = "15s", value_parser = run::span)]
    timeout: Duration,
    /// The report of a run against the honest driver, instead of another such run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["thorough", "cases"])]
    honest: Option<PathBuf>,
    /// Print a line of JSON for each instead
    #[arg(long)]
    json: bool,
}

/// What became of one broken promise.
#[derive(Debug, Serialize)]
struct Row {
    sabotage: &'static str,
    promise: &'static str,
    bug: &'static str,
    outcome: Outcome,
    /// The cases that found it; those that noticed something, if none did.
    cases: Vec<String>,
    /// What else was found, by its promise.
    also: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// As this very promise.
    Found,
    /// Something failed, and another promise or none was named.
    Noticed,
    /// The run found no fault.
    Missed,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    under_ledger(async |ledger| all(flags, ledger).await)
}

async fn all(flags: &Flags, ledger: &Ledger) -> Result<u8, Exit> {
    let directory = ledger.scratch()?;
    let names = if flags.names.is_empty() { Sabotage::ALL } else { &flags.names };
    let interrupted = Cell::new(false);
    let tries = Tries { flags, directory: &directory, interrupted: &interrupted };
    // What the honest driver is blamed for would be found for each of them.
    let cases = tries.cases_of_all(names);
    let honest = match &flags.honest {
        Some(report) => earlier_run(report, &cases)?,
        None => tries.once(None, &cases).await?,
    };
    if honest.exit_code != exit_code::OK {
        return Err(Exit::environment(
            "the honest driver does not pass, so nothing can be said of the others",
        )
        .hint("`volproof run` says why"));
    }
    let passed = honest.count(Status::Passed);
    if !flags.json {
        let (cases, promises) = (count(passed, "case"), count(names.len(), "promise"));
        note!("the honest driver passes {cases}; {promises} to break");
    }
    let attempts = names.iter().map(|sabotage| tries.row_of(*sabotage));
    let mut attempts = futures::stream::iter(attempts).buffered(tries.at_once());
    let (mut rows, mut failed) = (Vec::new(), None);
    // Where one is cut short the others still end in their own way.
    while let Some(row) = attempts.next().await {
        match row {
            Ok(row) => {
                print(&row, flags.json);
                rows.push(row.outcome);
            }
            Err(error) => failed = Some(failed.unwrap_or(error)),
        }
    }
    if let Some(failed) = failed {
        return Err(failed);
    }
    let of = |outcome| rows.iter().filter(|row| **row == outcome).count();
    let (found, noticed, missed) = (of(Outcome::Found), of(Outcome::Noticed), of(Outcome::Missed));
    if !flags.json {
        say!("\n{found} found, {noticed} noticed as something else, {missed} missed");
    }
    Ok(if found == rows.len() { exit_code::OK } else { exit_code::CASES_FAILED })
}

/// The record of a run against the honest driver that came to all these cases.
fn earlier_run(report: &Path, cases: &[String]) -> Result<RunRecord, Exit> {
    let record = report::earlier(report)?;
    let tried: BTreeSet<&str> = record.cases.iter().map(|case| case.id.as_str()).collect();
    match cases.iter().find(|case| !tried.contains(case.as_str())) {
        Some(case) => Err(Exit::usage(format!("the run of `{}` did not come to `{case}`", report.display()))
            .hint("name the report of `volproof run`, or leave `--honest` out")),
        None => Ok(record),
    }
}

impl Row {
    fn of(sabotage: Sabotage, record: &RunRecord) -> Self {
        let found = record.findings.iter().find(|found| found.finding.contract == sabotage.promise());
        let outcome = match found {
            Some(_) => Outcome::Found,
            None if record.exit_code == exit_code::OK => Outcome::Missed,
            None => Outcome::Noticed,
        };
        let cases = match found {
            Some(found) => {
                std::iter::once(&found.case).chain(&found.also_in).map(ToString::to_string).collect()
            }
            None => {
                let bad = record.cases.iter().filter(|case| case.status.is_bad());
                bad.map(|case| case.id.to_string()).collect()
            }
        };
        let others = record.findings.iter().map(|found| found.finding.contract.clone());
        Self {
            sabotage: sabotage.name(),
            promise: sabotage.promise(),
            bug: sabotage.bug(),
            outcome,
            cases,
            also: others.filter(|contract| contract != sabotage.promise()).collect(),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.outcome {
            Outcome::Found => "found",
            Outcome::Noticed => "noticed",
            Outcome::Missed => "missed",
        };
        write!(f, "{word:<8} {} {:<30} ", self.promise, self.sabotage)?;
        match self.cases.as_slice() {
            [] if self.outcome == Outcome::Missed => write!(f, "{}", self.bug)?,
            [] => write!(f, "before the first case")?,
            [one] => write!(f, "{one}")?,
            [one, more @ ..] => write!(f, "{one}, and {}", count(more.len(), "other case"))?,
        }
        match self.also.as_slice() {
            [] => Ok(()),
            also => write!(f, "; also {}", also.join(", ")),
        }
    }
}

fn print(row: &Row, json: bool) {
    match json {
        true => terminal::write_json(row),
        false => say!("{row}"),
    }
}

/// Runs against one driver after the other.
struct Tries<'a> {
    flags: &'a Flags,
    directory: &'a Path,
    /// Whether Ctrl-C was pressed: then nothing more is begun.
    interrupted: &'a Cell<bool>,
}

impl Tries<'_> {
    async fn row_of(&self, sabotage: Sabotage) -> Result<Row, Exit> {
        Ok(Row::of(sabotage, &self.once(Some(sabotage), &self.cases_of(sabotage)).await?))
    }

    fn at_once(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        self.flags.jobs.map_or(2 * processors, usize::from)
    }

    fn cases_of(&self, sabotage: Sabotage) -> Vec<String> {
        match (self.flags.thorough, self.flags.cases.as_slice()) {
            (true, _) => vec![],
            (false, []) => {
                registry::cases_that_see(sabotage).iter().map(|case| case.id().to_string()).collect()
            }
            (false, chosen) => chosen.to_vec(),
        }
    }

    fn cases_of_all(&self, sabotages: &[Sabotage]) -> Vec<String> {
        let all: BTreeSet<String> = sabotages.iter().flat_map(|sabotage| self.cases_of(*sabotage)).collect();
        all.into_iter().collect()
    }

    /// Runs the cases once, as `volproof run` does.
    async fn once(&self, sabotage: Option<Sabotage>, cases: &[String]) -> Result<RunRecord, Exit> {
        if self.interrupted.get() {
            return Err(Exit::new(exit_code::INTERRUPTED, "interrupted"));
        }
        let name = sabotage.map_or("honest", Sabotage::name);
        let report = self.directory.join(name);
        let run = self.start(sabotage, cases, &report)?;
        let (status, said) = self.ended(run).await?;
        let results = std::fs::read(report.join("results.json")).ok();
        let record = results.and_then(|results| serde_json::from_slice::<RunRecord>(&results).ok());
        // Without its logs, which are large and not needed.
        drop(std::fs::remove_dir_all(&report));
        match (record, status.code()) {
            (Some(record), _) if !record.interrupted => Ok(record),
            // A driver that cannot even be asked what it can do has been noticed.
            (None, Some(code)) if sabotage.is_some() && code == i32::from(exit_code::ENVIRONMENT) => {
                Ok(RunRecord { exit_code: exit_code::ENVIRONMENT, ..RunRecord::default() })
            }
            _ => Err(Exit::environment(format!("the run against `{name}` has no results: {status}"))
                .details(said.lines().map(str::to_owned))),
        }
    }

    fn start(&self, sabotage: Option<Sabotage>, cases: &[String], report: &Path) -> Result<Child, Exit> {
        let mut command = Command::new("/proc/self/exe");
        let timeout = format!("{}s", self.flags.timeout.as_secs_f64());
        command
            .arg("run")
            .arg("--report")
            .arg(report)
            .args(["--timeout", &timeout])
            .args(["--start-timeout", &timeout]);
        match sabotage {
            // Several of these run at once, and the machine is theirs together.
            Some(sabotage) => {
                command.args(["--jobs", "1", "--sabotage", sabotage.name()]);
                if !self.flags.thorough {
                    command.args(["--until-broken", sabotage.promise()]);
                }
            }
            None => self.flags.jobs.iter().for_each(|jobs| _ = command.args(["--jobs", &jobs.to_string()])),
        }
        if self.flags.thorough {
            command.args(["--about", "driver"]);
        }
        command.args(cases);
        // In a group of its own: Ctrl-C is passed on once, and not twice.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let parent = Pid::this();
        // SAFETY: prctl and getppid are async-signal-safe. A parent that is killed takes the run along, and the run's janitor
        // does the rest. A parent that was killed before this prctl takes nothing along, so the run does not begin.
        unsafe {
            command.pre_exec(move || {
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                match nix::unistd::getppid() == parent {
                    true => Ok(()),
                    false => Err(nix::errno::Errno::ESRCH.into()),
                }
            });
        }
        Ok(command.spawn().context("cannot start a run")?)
    }

    /// The exit status and the errors of a run. Ctrl-C is passed on, and the run ends by itself.
    async fn ended(&self, mut run: Child) -> Result<(ExitStatus, String), Exit> {
        let pid = run.id().map(|pid| Pid::from_raw(pid.cast_signed()));
        let mut stderr = run.stderr.take();
        let said = async {
            let mut said = String::new();
            if let Some(stderr) = &mut stderr {
                drop(tokio::io::AsyncReadExt::read_to_string(stderr, &mut said).await);
            }
            said
        };
        let mut ending = std::pin::pin!(async { tokio::join!(run.wait(), said) });
        let (status, said) = loop {
            tokio::select! {
                ended = &mut ending => break ended,
                _ = tokio::signal::ctrl_c() => {
                    self.interrupted.set(true);
                    pid.into_iter().for_each(|pid| _ = kill(pid, Signal::SIGINT));
                }
            }
        };
        if self.interrupted.get() {
            return Err(Exit::new(exit_code::INTERRUPTED, "interrupted"));
        }
        Ok((status.context("a run is lost")?, said))
    }
}
