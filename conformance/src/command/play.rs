//! `volproof play`: plays a scenario or manifests in a sandbox, prints the events, and writes the trace.

mod changes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use harness::container;
use harness::facts::Facts;
use harness::manifest::Manifest;

use super::run::DriverFlags;
use super::{Exit, image, look, run, under_ledger};
use crate::play::files::Files;
use crate::play::scenario::{Bad, Scenario};
use crate::play::{ENOUGH, TRACE};
use crate::terminal::{note, say};
use runner::dispatch::Ledger;
use runner::dispatch::lane::{self, Ended};
use runner::exit_code;
use runner::finding::Finding;
use runner::kept_logs;
use runner::message::{Assignment, Inside, Manifests, Played, Said, Script, Task};
use runner::report::line::{FoundLines, Palette};
use testbed::message::Orders;

/// Play manifests, or a scenario.
#[derive(Debug, Args)]
#[command(
    after_help = "While manifests are played they may be edited: a changed file is applied as soon as it is written. A claim \
                  grows, a pod whose entry is deleted goes, a pod that is changed is made anew, and what is added is made. \
                  What is changed while the program of --shell or CMD runs is not applied.\n\n\
                  Exit codes: 0 all of it came, went again, and no promise was broken; 1 something did not, a MUST is \
                  broken, or the command failed; 2 command line, manifest or scenario; 4 the environment; 130 interrupted."
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
    /// With manifests: open a shell in a container as soon as all pods have their volumes, with the programs of this
    /// machine, and take everything down when it ends
    #[arg(long, conflicts_with_all = ["scenario", "command"])]
    shell: bool,
    /// The container for --shell or CMD: the first one of the first pod otherwise
    #[arg(long = "in", value_name = "POD[/CONTAINER]", conflicts_with = "scenario")]
    container: Option<String>,
    /// With manifests: what to run in a container as soon as all pods have their volumes, with the programs of this
    /// machine; everything is taken down when it ends
    #[arg(last = true, value_name = "CMD", conflicts_with = "scenario")]
    command: Vec<String>,
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

pub(super) fn run(flags: &Flags, colour: bool) -> Result<u8, Exit> {
    let (script, files) = script(flags)?;
    if let Some(trace) = &flags.trace {
        // Written once now, so that an unwritable path is an error before anything is played.
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
    let alone = match (manifest.has_other_node(), manifest.has_nodes_apart()) {
        (true, _) => None,
        (_, true) => {
            Some("the driver's manifest has `state = \"per_node\"`, and what is played has one state")
        }
        _ => Some("the driver's manifest adds `node-2` with `nodes = 2`"),
    };
    let notes = files.notes(alone);
    notes.iter().for_each(|note| note!("note: {note}"));
    let host_paths = files.host_paths();
    match flags.allow_host_path {
        true => manifest.host_paths.extend(opened(&host_paths)?),
        false => host_paths.iter().for_each(|path| {
            note!("note: what is made or written in `{path}` is thrown away; --allow-host-path leaves it on this machine");
        }),
    }
    under_ledger(async |ledger| play(flags, colour, script, manifest, rootless, ledger).await)
}

/// The existing directories of the machine that contain these paths, or in which they will be made.
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

/// Reads and checks the script before anything is started. Also returns the content of manifests.
fn script(flags: &Flags) -> Result<(Script, Files), Exit> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| {
            Exit::usage(format!("cannot read `{}`", path.display())).details([error.to_string()])
        })
    };
    if let Some(path) = &flags.scenario {
        let text = read(path)?;
        Scenario::parse(&text).map_err(|bad| refused(path, bad))?;
        return Ok((Script::Scenario(text), Files::default()));
    }
    let named = |path: &PathBuf| Ok((path.display().to_string(), read(path)?));
    let texts = flags.files.iter().map(named).collect::<Result<Vec<_>, Exit>>()?;
    let files = Files::parse(&texts).map_err(|(path, bad)| refused(Path::new(&path), bad))?;
    let manifests = Manifests { files: texts, once: flags.once, inside: inside(flags)? };
    Ok((Script::Manifests(manifests), files))
}

/// The program to run in a container.
fn inside(flags: &Flags) -> Result<Option<Inside>, Exit> {
    let command = match (flags.shell, flags.command.is_empty()) {
        (true, _) => vec!["/bin/sh".to_owned()],
        (false, false) => flags.command.clone(),
        (false, true) if flags.container.is_none() => return Ok(None),
        (false, true) => {
            return Err(Exit::usage("--in names a container, and nothing is to run in it")
                .hint("add --shell, or `-- CMD`"));
        }
    };
    let named = flags.container.as_deref();
    let (pod, container) = match named.map(|named| named.split_once('/').ok_or(named)) {
        None => (None, None),
        Some(Ok((pod, container))) => (Some(pod.to_owned()), Some(container.to_owned())),
        Some(Err(pod)) => (Some(pod.to_owned()), None),
    };
    Ok(Some(Inside { pod, container, command, is_shell: flags.shell }))
}

/// The messages of the player that decide the exit code.
#[derive(Default)]
struct Heard {
    end: Option<Result<Played, Exit>>,
    found: Vec<Finding>,
    exited: Option<u8>,
}

async fn play(
    flags: &Flags,
    colour: bool,
    script: Script,
    mut manifest: Manifest,
    rootless: bool,
    ledger: &Ledger,
) -> Result<u8, Exit> {
    image::adopt_here(&mut manifest, ledger).await?;
    let directory = ledger.logs()?;
    look::prepare_run(&manifest, ledger, &directory).await?;
    let orders = Orders::new(manifest, directory.clone(), ledger.path(), flags.timeout);
    let assignment = Assignment { task: Task::Play(script), orders: Orders { rootless, ..orders } };
    let mut heard = Heard::default();
    let hear = |message| heard.take(message, flags, colour, &directory);
    let cancel = async {
        // The first Ctrl-C lets manifests be taken down; the second, or the first of a scenario, ends everything at once.
        if flags.scenario.is_none() {
            tokio::select! {
                pressed = tokio::signal::ctrl_c() => if pressed.is_ok() { enough(&directory) },
                () = changes::follow(&flags.files, &directory) => {}
            }
        }
        tokio::signal::ctrl_c().await
    };
    let ended = lane::run(&assignment, hear, cancel).await.map_err(anyhow::Error::from)?;
    let played = match (heard.end.take(), ended) {
        (Some(end), _) => end,
        (None, Ended::Kept(_)) => unreachable!("the player was not asked to keep anything"),
        (None, Ended::Cancelled) => Err(Exit::new(exit_code::INTERRUPTED, "interrupted")),
        (None, Ended::Lost(why) | Ended::Late(why)) => {
            Err(Exit::environment("the player is lost").details([why]))
        }
        (None, Ended::Hung(stuck)) => {
            Err(Exit::environment("the scenario did not end in time").details(stuck))
        }
        (None, Ended::Exited(status)) => Err(Exit::environment(format!("the player has ended: {status}"))
            .details(runner::logs::last_words(&directory))),
    };
    let code = played.and_then(|played| heard.outcome(flags, &directory, &played));
    if code.as_ref().is_err_and(|exit| !exit.is_interruption()) {
        ledger.keep(&directory)?;
        kept_logs::thin_out();
    }
    code
}

impl Heard {
    fn take(&mut self, message: Said, flags: &Flags, colour: bool, directory: &Path) {
        match message {
            Said::Told(line) if !flags.quiet => say!("{line}"),
            Said::Found(finding) => {
                let palette = if colour { Palette::coloured() } else { Palette::plain() };
                say!("{}", FoundLines(palette, &finding).to_string().trim_end());
                self.found.push(*finding);
            }
            Said::Exited(code) => {
                container::take_terminal_back();
                self.exited = Some(code);
            }
            Said::Played(played) => self.end = Some(Ok(played)),
            Said::Refused(refusal) => self.end = Some(Err(look::refused(refusal))),
            Said::Ready if flags.once => enough(directory),
            Said::Ready => note!("Ctrl-C takes everything down"),
            _ => {}
        }
    }

    fn outcome(&self, flags: &Flags, directory: &Path, played: &Played) -> Result<u8, Exit> {
        if let Some(trace) = &flags.trace {
            std::fs::copy(directory.join(TRACE), trace).map_err(anyhow::Error::from)?;
        }
        for failure in &played.failures {
            note!("{failure}\n");
        }
        for line in &played.left {
            note!("left behind: {line}");
        }
        let failed = self.exited.filter(|code| *code != 0 && !flags.shell);
        if let Some(code) = failed {
            note!("the command ended with exit code {code}");
        }
        let is_broken = self.found.iter().any(Finding::is_fault);
        let is_good = played.failures.is_empty() && played.left.is_empty() && !is_broken && failed.is_none();
        Ok(if is_good { exit_code::OK } else { exit_code::CASES_FAILED })
    }
}

/// Asks the player to take everything down. An error is ignored: the second Ctrl-C still works.
fn enough(directory: &Path) {
    drop(std::fs::write(directory.join(ENOUGH), ""));
}

/// The error of a scenario that cannot be played: its line, the fault, and a suggestion.
fn refused(path: &Path, bad: Bad) -> Exit {
    let position = match bad.line {
        0 => format!("cannot play `{}`", path.display()),
        line => format!("cannot play `{}`, line {line}", path.display()),
    };
    Exit::usage(format!("{position}: {}", bad.what)).maybe_hint(bad.hint)
}
