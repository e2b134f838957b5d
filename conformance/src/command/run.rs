//! `volproof run`: from flags to runs, and from their records to an exit code.
//!
//! Filters, manifest, tier and machine are checked before the first case, and the driver is started once and asked.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use harness::facts::{self, Standing};
use harness::manifest::Manifest;
use harness::nfs_export::Misbehaviour;

use super::vm::{self, Chosen};
use super::{Called, Exit, report, runtime};
use runner::dispatch;
use runner::event::RunRecord;
use runner::exit_code;
use runner::select::{NoMatch, Selection, Shard};
use testbed::case::{self, Case};

mod again;
mod bounds;
mod driver;
mod place;
mod plan;
mod reports;
mod rerun;

use again::again;
pub(super) use driver::{DriverFlags, manifest, refuse_running};
use plan::prepare;
use reports::{Reports, reporters};
use rerun::Watched;

/// Run the cases against a driver.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub(super) struct Flags {
    /// Substrings or globs of case ids; without any, all cases
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    #[command(flatten)]
    driver: DriverFlags,
    /// Leave out what matches
    #[arg(long, value_name = "FILTER")]
    exclude: Vec<String>,
    /// Only cases about the driver, or about the node. Without it and without FILTER: the driver's, if it is not fake-csi
    #[arg(long, value_enum)]
    about: Option<About>,
    /// Only part I of N
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Where the cases run
    #[arg(long, value_enum, default_value_t = Tier::Auto)]
    tier: Tier,
    /// Kernels to boot: NAME, `all`, or a FILE.deb. Only with --tier vm
    #[arg(long)]
    kernel: Vec<String>,
    /// How long a guest may take to boot, such as 5m
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = span)]
    boot_timeout: Duration,
    /// How many cases run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// The seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Run the cases in an order drawn from the seed, to find what depends on it
    #[arg(long)]
    shuffle: bool,
    /// Run each case N times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Try each crash point, power cut and moment of a kill, and not a few of them; and longer loads
    #[arg(long)]
    thorough: bool,
    /// How long one case may take, such as 60s or 2m [default: 60s, with --thorough 10m]
    #[arg(long, value_parser = span)]
    timeout: Option<Duration>,
    /// Start no case after the first that failed
    #[arg(long)]
    fail_fast: bool,
    /// Start no case after one that finds this promise broken
    #[arg(long, value_name = "PROMISE", hide = true)]
    until_broken: Option<String>,
    /// Leave the sandboxes of cases that do not pass as they are until Ctrl-C, for `volproof enter`
    #[arg(long)]
    keep: bool,
    /// Fail (exit 4) where a case would be skipped for the machine's sake
    #[arg(long, value_name = "PLACE", value_enum)]
    require: Option<Require>,
    /// Write results.json, junit.xml, report.html and the logs of all cases here
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Run again each time the driver's program or manifest changes, until Ctrl-C, and list the differences
    #[arg(long, conflicts_with_all = ["socket", "keep"])]
    rerun: bool,
    /// Tell what has changed since an earlier run: its directory, or its results.json
    #[arg(long, value_name = "PATH")]
    since: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Let the suite's own NFS server misbehave, to see that cases notice
    #[arg(long, value_name = "HOW", hide = true)]
    spoil: Option<Misbehaviour>,
    /// With each case, the sentence it proves
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// On this kernel, as root
    Host,
    /// In a user namespace
    Rootless,
    /// In guests of their own
    Vm,
    /// host for root, else rootless; what the machine lacks runs in a guest, if its kernel was fetched and KVM runs it
    Auto,
}

/// Which cases are meant, by what they can find a fault in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum About {
    /// Those that ask the driver for something
    Driver,
    /// Those of the volume manager alone
    Node,
    /// All of them
    All,
}

impl About {
    /// The subject to select cases by; `None` for all.
    pub(super) fn chosen(self) -> Option<case::About> {
        match self {
            Self::Driver => Some(case::About::Driver),
            Self::Node => Some(case::About::Node),
            Self::All => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Require {
    /// The machine must have what the selected cases need
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Human,
    Json,
    Github,
}

impl Flags {
    /// The subject of the cases; `None` for all. Cases that a foreign driver cannot influence are left out, unless they are
    /// asked for.
    fn about(&self) -> Option<case::About> {
        match self.about {
            Some(about) => about.chosen(),
            None if self.filters.is_empty() && !self.driver.is_ours() => Some(case::About::Driver),
            None => None,
        }
    }

    /// The time limit of a case.
    fn timeout(&self) -> Duration {
        let default = if self.thorough { Duration::from_mins(10) } else { Duration::from_mins(1) };
        self.timeout.unwrap_or(default)
    }

    /// Whether cases run in user namespaces.
    fn rootless(&self) -> bool {
        self.tier == Tier::Rootless || (self.tier == Tier::Auto && !facts::is_root())
    }
}

pub(super) fn span(text: &str) -> Result<Duration, String> {
    let span: harness::manifest::Span = text.parse().map_err(|error| format!("{error}"))?;
    if span.duration().is_zero() { Err("must be more than nothing".to_owned()) } else { Ok(span.duration()) }
}

pub(super) fn run(flags: Flags, colour: bool, called: &Called) -> Result<u8, Exit> {
    let (filters, exclude) = (flags.filters.clone(), flags.exclude.clone());
    let selection = Selection { filters, exclude, about: flags.about(), shard: flags.shard };
    let cases = selection.choose(&case::all()).map_err(|error| no_match(&error))?;
    if cases.is_empty() {
        return Err(Exit::new(exit_code::NOTHING_RAN, "no case is left to run")
            .hint("`volproof list` shows all cases; --exclude and --shard take some away"));
    }
    check_tier(&flags)?;
    // Errors in the manifest and in the earlier record are reported before anything is started.
    let manifest = manifest(&flags.driver, flags.rootless())?;
    // Read before the run, which may write its results over the earlier ones.
    let earlier = match &flags.since {
        Some(path) => Some((path.display().to_string(), report::earlier(path)?)),
        None => None,
    };
    let run = |earlier: Option<&Earlier>| run_on_kernels(&flags, &cases, earlier, colour, called);
    match flags.rerun {
        true => run_on_change(&flags, &manifest, earlier, colour, run),
        false => run(earlier.as_ref()).map(|(code, _)| code),
    }
}

/// The name and the record of an earlier run.
type Earlier = (String, RunRecord);

/// Runs, and runs again each time the driver changes. Each run but the first is compared with the one before.
fn run_on_change(
    flags: &Flags,
    first: &Manifest,
    mut earlier: Option<Earlier>,
    colour: bool,
    run: impl Fn(Option<&Earlier>) -> Result<(u8, Option<RunRecord>), Exit>,
) -> Result<u8, Exit> {
    let file = flags.driver.driver.as_deref();
    let mut watched = Watched::of(first, file);
    loop {
        let code = match run(earlier.as_ref()) {
            Ok((code, record)) => {
                earlier = record.map(|record| ("the run before".to_owned(), record)).or(earlier);
                code
            }
            Err(exit) if !exit.is_interruption() => super::print_error(&exit, colour),
            Err(exit) => return Err(exit),
        };
        if code == exit_code::INTERRUPTED || !watched.wait()? {
            return Ok(code);
        }
        // If the manifest cannot be read now, the next run reports it, and waits for the next change.
        watched = match manifest(&flags.driver, flags.rootless()) {
            Ok(manifest) => Watched::of(&manifest, file),
            Err(_) => watched.again(),
        };
    }
}

/// One run on each kernel that was chosen. Returns the worst code, and the last record.
fn run_on_kernels(
    flags: &Flags,
    cases: &[&'static Case],
    earlier: Option<&Earlier>,
    colour: bool,
    called: &Called,
) -> Result<(u8, Option<RunRecord>), Exit> {
    let kernels = match flags.tier {
        Tier::Vm => vm::chosen(&flags.kernel)?.into_iter().map(Some).collect(),
        _ => vec![None],
    };
    let several = kernels.len() > 1;
    let (mut worst, mut last) = (exit_code::OK, None);
    for kernel in kernels {
        let below = kernel.as_ref().filter(|_| several).map(|kernel| kernel.name.clone());
        let record =
            run_once(flags, cases.to_vec(), kernel, below.as_deref(), earlier.cloned(), colour, called)?;
        worst = worse(worst, record.exit_code);
        let is_interrupted = record.interrupted;
        last = Some(record);
        if is_interrupted {
            break;
        }
    }
    Ok((worst, last))
}

/// The exit code of runs on several kernels: an interruption counts most, then a failure, and success least.
fn worse(one: u8, other: u8) -> u8 {
    const ORDER: [u8; 5] = [
        exit_code::INTERRUPTED,
        exit_code::CASES_FAILED,
        exit_code::ENVIRONMENT,
        exit_code::NOTHING_RAN,
        exit_code::OK,
    ];
    ORDER.into_iter().find(|code| [one, other].contains(code)).unwrap_or(one.max(other))
}

/// One run, from its ledger to its reports.
fn run_once(
    flags: &Flags,
    cases: Vec<&'static Case>,
    kernel: Option<Chosen>,
    below: Option<&str>,
    earlier: Option<Earlier>,
    colour: bool,
    called: &Called,
) -> Result<RunRecord, Exit> {
    let report =
        flags.report.as_ref().map(|directory| below.map_or(directory.clone(), |below| directory.join(below)));
    let reports = Reports::asked(report.as_deref())?;
    runtime()?.block_on(async {
        let ledger = super::open_ledger()?;
        let reports = match reports {
            Some(reports) => reports,
            None => Reports::unasked(&ledger)?,
        };
        let prepared = tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Err(Exit::new(exit_code::INTERRUPTED, "interrupted before the first case")),
            prepared = prepare(flags, cases, kernel, &ledger, &reports) => prepared,
        };
        match prepared {
            Ok(mut plan) => {
                reports.begin()?;
                plan.again = again(called, &flags.filters);
                plan.earlier = earlier;
                let record = dispatch::run(plan, ledger, reporters(flags, colour)).await?;
                reports.write(&record)?;
                Ok(record)
            }
            Err(exit) => {
                drop(ledger.close().await);
                Err(exit)
            }
        }
    })
}

fn check_tier(flags: &Flags) -> Result<(), Exit> {
    let root = facts::is_root();
    match flags.tier {
        Tier::Vm if flags.keep => {
            Err(Exit::usage("--keep keeps sandboxes on this machine, and not in guests")
                .hint("`volproof vm shell` gives a prompt in a guest"))
        }
        Tier::Vm => Ok(()),
        _ if !flags.kernel.is_empty() => {
            Err(Exit::usage("--kernel chooses the kernels of guests, and means nothing without --tier vm"))
        }
        Tier::Host if facts::standing() == Standing::NamespaceRoot => {
            let message = "cannot run on the host: this is root of a user namespace, and not of the machine";
            Err(Exit::environment(message)
                .hint("run it outside of that, or with --tier rootless what needs no root"))
        }
        Tier::Host if !root => Err(Exit::environment("cannot run on the host: this is not root")
            .hint("run it with sudo, or with --tier rootless what needs no root")),
        _ => Ok(()),
    }
}

/// The error for filters that match no case.
pub(super) fn no_match(error: &NoMatch) -> Exit {
    Exit::new(exit_code::NOTHING_RAN, error.to_string()).hint("`volproof list` shows all cases")
}
