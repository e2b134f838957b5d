//! `volproof play`: plays a scenario or manifests in a sandbox, tells what happens, and writes the trace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use harness::facts::Facts;
use harness::manifest::Manifest;

use super::run::DriverFlags;
use super::{Exit, look, run, under_ledger};
use crate::play::files::Files;
use crate::play::scenario::{Bad, Scenario};
use crate::play::{ENOUGH, TRACE};
use runner::dispatch::Ledger;
use runner::dispatch::lane::{self, Ended};
use runner::exit_code;
use runner::message::{Assignment, Played, Said, Script, Task};
use testbed::message::Orders;

/// Play manifests, or a scenario.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all of it came, and went again; 1 something did not, and stderr says what there was \
                  instead; 2 command line, manifest or scenario; 4 the environment; 130 interrupted."
)]
pub(super) struct Flags {
    /// Kubernetes manifests: pods, with their claims, classes, secrets, config maps and services. They are mounted until
    /// Ctrl-C
    #[arg(value_name = "FILE", required_unless_present = "scenario", conflicts_with = "scenario")]
    files: Vec<PathBuf>,
    /// A scenario instead, in the format of the recordings
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// With manifests: take everything down as soon as all pods have their volumes, or cannot get them
    #[arg(long, conflicts_with = "scenario")]
    once: bool,
    /// With manifests: let pods' hostPath volumes reach this machine itself, and be made there. Otherwise what is made or
    /// written there is thrown away
    #[arg(long, conflicts_with = "scenario")]
    allow_host_path: bool,
    /// Write what happened here, as the recordings have it
    #[arg(long, value_name = "OUT")]
    trace: Option<PathBuf>,
    /// Say nothing of what goes as it should
    #[arg(short, long)]
    quiet: bool,
    /// How long it may take altogether, such as 90s or 5m
    #[arg(long, default_value = "10m", value_parser = run::span)]
    timeout: Duration,
    #[command(flatten)]
    driver: DriverFlags,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let (script, host_paths) = script(flags)?;
    if let Some(trace) = &flags.trace {
        // Found out before anything is done, and not after it.
        std::fs::write(trace, "").map_err(|error| {
            Exit::usage(format!("cannot write `{}`", trace.display())).details([error.to_string()])
        })?;
    }
    look::can_sandbox(Facts::get())?;
    let rootless = !harness::facts::is_root();
    let mut manifest = match flags.driver.is_ours() {
        true if flags.scenario.is_some() => flags.driver.ours(&["--hostpath"]),
        true if rootless => flags.driver.ours(&["--backing=directory"]),
        true => flags.driver.ours(&[]),
        false => run::manifest(&flags.driver, rootless)?,
    };
    run::refuse_running(&manifest, "to play with")?;
    match flags.allow_host_path {
        true => manifest.host_paths.extend(opened(&host_paths)?),
        false => host_paths.iter().for_each(|path| {
            eprintln!("note: what is made or written in `{path}` is thrown away; --allow-host-path leaves it on this machine");
        }),
    }
    under_ledger(async |ledger| play(flags, script, manifest, rootless, ledger).await)
}

/// The directories of the machine in which these paths are, or will be made.
fn opened(host_paths: &[String]) -> Result<Vec<PathBuf>, Exit> {
    let opened = |path: &String| {
        let there = Path::new(path).ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        if there == Path::new("/") {
            let refused =
                Exit::usage(format!("cannot open the hostPath `{path}`: it would be all of the machine"));
            return Err(refused.maybe_hint(Some("make the directory that is to hold it first".to_owned())));
        }
        Ok(there.to_owned())
    };
    host_paths.iter().map(opened).collect()
}

/// What is to be played, read and looked through before anything is started; with the paths of the machine that pods
/// use.
fn script(flags: &Flags) -> Result<(Script, Vec<String>), Exit> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| {
            Exit::usage(format!("cannot read `{}`", path.display())).details([error.to_string()])
        })
    };
    if let Some(path) = &flags.scenario {
        let text = read(path)?;
        Scenario::parse(&text).map_err(|bad| refused(path, bad))?;
        return Ok((Script::Scenario(text), vec![]));
    }
    let named = |path: &PathBuf| Ok((path.display().to_string(), read(path)?));
    let texts = flags.files.iter().map(named).collect::<Result<Vec<_>, Exit>>()?;
    let files = Files::parse(&texts).map_err(|(path, bad)| refused(Path::new(&path), bad))?;
    Ok((Script::Manifests { files: texts, once: flags.once }, files.host_paths()))
}

async fn play(
    flags: &Flags,
    script: Script,
    manifest: Manifest,
    rootless: bool,
    ledger: &Ledger,
) -> Result<u8, Exit> {
    let directory = ledger.scratch()?;
    look::prepare_run(&manifest, ledger, &directory).await?;
    let orders = Orders::new(manifest, directory.clone(), ledger.path(), flags.timeout);
    let assignment = Assignment { task: Task::Play(script), orders: Orders { rootless, ..orders } };
    let mut end = None;
    let hear = |said| match said {
        Said::Told(line) if !flags.quiet => println!("{line}"),
        Said::Played(played) => end = Some(Ok(played)),
        Said::Refused(refusal) => end = Some(Err(look::refused(refusal))),
        Said::Ready if flags.once => enough(&directory),
        Said::Ready => eprintln!("Ctrl-C takes everything down"),
        _ => {}
    };
    let cancel = async {
        // The first asks for a tidy end where there is one to be had, the second ends everything.
        if flags.scenario.is_none() && tokio::signal::ctrl_c().await.is_ok() {
            enough(&directory);
        }
        tokio::signal::ctrl_c().await
    };
    let ended = lane::run(&assignment, hear, cancel).await.map_err(anyhow::Error::from)?;
    let played = match (end, ended) {
        (Some(end), _) => end,
        (None, Ended::Kept(_)) => unreachable!("nobody told the player to keep anything"),
        (None, Ended::Cancelled) => Err(Exit::new(exit_code::INTERRUPTED, "interrupted")),
        (None, Ended::Lost(why)) => Err(Exit::environment("the player is lost").details([why])),
        (None, Ended::Hung(stuck)) => {
            Err(Exit::environment("the scenario did not end in time").details(stuck))
        }
        (None, Ended::Exited(status)) => Err(Exit::environment(format!("the player has ended: {status}"))
            .details(runner::logs::last_words(&directory))),
    };
    let code = played.and_then(|played| outcome(flags, &directory, played));
    if code.as_ref().is_err_and(|exit| !exit.is_interruption()) {
        ledger.keep(&directory)?;
    }
    code
}

/// Tells the player that it has been seen enough. If that cannot be told, the second Ctrl-C is what remains.
fn enough(directory: &Path) {
    drop(std::fs::write(directory.join(ENOUGH), ""));
}

fn outcome(flags: &Flags, directory: &Path, played: Played) -> Result<u8, Exit> {
    if let Some(trace) = &flags.trace {
        std::fs::copy(directory.join(TRACE), trace).map_err(anyhow::Error::from)?;
    }
    for failure in &played.failures {
        eprintln!("{failure}\n");
    }
    for line in &played.left {
        eprintln!("left behind: {line}");
    }
    Ok(if played.failures.is_empty() && played.left.is_empty() {
        exit_code::OK
    } else {
        exit_code::CASES_FAILED
    })
}

/// A scenario that cannot be played: where, what, and what was probably meant.
fn refused(path: &Path, bad: Bad) -> Exit {
    let place = match bad.line {
        0 => format!("cannot play `{}`", path.display()),
        line => format!("cannot play `{}`, line {line}", path.display()),
    };
    Exit::usage(format!("{place}: {}", bad.what)).maybe_hint(bad.hint)
}
