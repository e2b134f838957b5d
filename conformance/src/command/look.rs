//! Looking before running: at the machine, and at the driver.

use std::path::Path;

use harness::manifest::Manifest;

use super::Exit;
use crate::need::{Ground, Need};
use crate::runner::{Ledger, lane};
use crate::worker::message::{Abilities, Orders, Refusal, Said, Task};

/// What the machine offers, as far as a need can ask for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    /// The kernel's release.
    pub(super) kernel: String,
    /// `root` or `rootless`.
    pub(super) privilege: String,
    /// Why there can be no sandbox at all, if so.
    pub(super) no_sandbox: Option<String>,
    /// What is missing, and why.
    pub(super) lacks: Vec<(Need, String)>,
}

/// Probes the machine by doing.
pub(super) fn machine() -> Machine {
    let root = nix::unistd::geteuid().is_root();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let mut lacks = Vec::new();
    if !root {
        lacks.push((Need::Root, "the run is not root".to_owned()));
    }
    let loops = std::fs::OpenOptions::new().read(true).write(true).open("/dev/loop-control");
    if let Err(error) = loops {
        lacks.push((Need::Loop, format!("`/dev/loop-control`: {error}")));
    }
    let privilege = if root { "root" } else { "rootless" }.to_owned();
    Machine { kernel, privilege, no_sandbox: None, lacks }
}

/// Refuses where no driver could be started at all.
pub(super) fn can_sandbox(machine: &Machine) -> Result<(), Exit> {
    match &machine.no_sandbox {
        None => Ok(()),
        Some(why) => Err(Exit::environment("cannot make a sandbox for the driver").details([why.clone()])),
    }
}

/// Starts the driver once and asks what it can do.
pub(super) async fn ask(manifest: &Manifest, ledger: &Ledger, directory: &Path) -> Result<Abilities, Exit> {
    let directory = directory.join("asked");
    std::fs::create_dir_all(&directory).map_err(anyhow::Error::from)?;
    let timeout = manifest.start_timeout() + 6 * manifest.call_timeout();
    let orders = Orders {
        task: Task::Ask,
        manifest: manifest.clone(),
        directory: directory.clone(),
        ledger: ledger.path(),
        seed: 0,
        timeout,
        update: false,
    };
    let mut answer = None;
    let hear = |said| match said {
        Said::Abilities(abilities) => answer = Some(Ok(*abilities)),
        Said::Refused(refusal) => answer = Some(Err(refused(refusal))),
        Said::Step(_) | Said::Expectation(_) | Said::Outcome(_) => {}
    };
    let ended = lane::run(&orders, hear, std::future::pending::<()>()).await;
    match (answer, ended) {
        (Some(answer), Ok(_)) => answer,
        (_, Err(error)) => Err(Exit::environment("cannot start a worker").details([error.to_string()])),
        (None, Ok(ended)) => Err(Exit::environment("cannot ask the driver: the worker gave no answer")
            .details([format!("{ended:?}")])
            .details(lane::last_words(&directory))),
    }
}

fn refused(refusal: Refusal) -> Exit {
    let Refusal { chain, hint, log, driver: _ } = refusal;
    let mut chain = chain.into_iter();
    let exit = Exit::environment(chain.next().unwrap_or_default()).details(chain).maybe_hint(hint);
    if log.is_empty() {
        exit
    } else {
        exit.details(["its last words:".to_owned()]).details(log.into_iter().map(|line| format!("  {line}")))
    }
}

/// What is there for the cases, of the machine and of the driver.
pub(super) fn ground(machine: &Machine, manifest: &Manifest, abilities: &Abilities) -> Ground {
    let mut ground = Ground::default();
    machine.lacks.iter().for_each(|(need, reason)| ground.lacks(*need, reason.clone()));
    if !abilities.stages() {
        ground.lacks(Need::StageUnstage, "does not report STAGE_UNSTAGE_VOLUME");
    }
    let refused = [
        (Need::Block, &abilities.no_block),
        (Need::Filesystem, &abilities.no_filesystem),
        (Need::Shared, &abilities.no_shared),
    ];
    for (need, reason) in refused {
        reason.iter().for_each(|reason| ground.lacks(need, reason.clone()));
    }
    if manifest.is_running_already() {
        ground.lacks(Need::OwnProcess, "was started by somebody else (`socket`)");
    }
    ground
}
