//! The testbed of a case: driver, proxy, API server and node, put up inside the sandbox, and the objects that the case
//! makes on it.
//!
//! Each act of a case on its testbed is one function here, and every wait has a limit.

mod attach_failure;
mod behind;
mod calls;
mod cluster;
mod containers;
mod copies;
mod crash;
pub(crate) mod daemons;
mod disks;
mod driver_holds;
mod failing_state;
mod faults;
mod files;
mod last_words;
mod load;
mod nfs;
pub(crate) mod node_calls;
mod objects;
mod other_node;
mod patience;
pub(crate) mod pattern;
mod pods;
mod put_up;
mod reboot;
mod registration;
mod remains;
mod shared_driver;
mod shutdown;
mod silence;
mod spec;
mod step_error;
mod volumes;
mod winding_up;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use harness::api_server::Provisioned;
use harness::census;
use harness::census::process::Process;
use harness::cgroup::Cgroup;
use harness::driver::Exit;
use harness::fault_fs::FaultFs;
use harness::journal::Story;
use harness::manifest::Sensitive;
use harness::masks::SHORTEST;
use harness::proxy::Gate;
use harness::sandbox::Ownership;
use harness::testbed::{NodeRoot, OtherNode, Testbed};
use harness::tmpfs::Tmpfs;

use crate::dead_end::NotUndone;
use crate::failure::Place;
use crate::foreign::Foreign;
use crate::limits::DeviceGroups;
use crate::message::Abilities;
use crate::message::Sample;
use containers::Started;

pub use crash::Victim;
pub use driver_holds::Held;
pub use load::DriverLoad;

pub(crate) use cluster::ClaimSpec;
pub(crate) use containers::Running;
pub(crate) use nfs::NfsSpec;
pub use patience::SHOWN;
pub(crate) use put_up::builder;
pub(crate) use spec::{MountSpec, PodSpec, VolumeSpec};
pub(crate) use step_error::{STARTS_AGAIN, StepError};
pub use winding_up::Books;

/// A testbed, and the objects that a case has made on it.
#[derive(Debug)]
pub struct Bed {
    // Fields are dropped in this order: first the users of volumes, then their providers.
    /// The running containers, by the name of their pod.
    containers: RefCell<BTreeMap<String, Started>>,
    device_groups: DeviceGroups,
    other: OnceCell<OtherNode>,
    testbed: Testbed,
    _other_root: Option<NodeRoot>,
    // After the driver, whose processes are in it.
    cgroup: Option<Arc<Cgroup>>,
    abilities: Abilities,
    /// The state of a driver that already ran before volproof did.
    foreign: Option<Foreign>,
    secrets: Vec<Sensitive<String>>,
    pub(crate) made: Made,
    /// The NFS server of the case, and the volumes that are on it.
    nfs: nfs::Nfs,
    limit: Duration,
    /// Waits that timed out in earlier cases.
    known_dead_ends: BTreeSet<String>,
    disks: disks::Disks,
    // Its mount is on `machine`, so it is dropped first.
    fuse: RefCell<Option<FaultFs>>,
    /// The driver's directory, if a case lets it fail. Dropped after the driver, whose files are in it.
    failing_state: RefCell<Option<failing_state::FailingState>>,
    ownership: Ownership,
    /// The file systems that the driver keeps its files on: those of the sandbox, and the disks of the manifest.
    devices_of_driver: Vec<u64>,
    /// A directory of the machine outside of the node's root.
    machine: RefCell<Option<Tmpfs>>,
    /// The directory of the case's logs.
    directory: PathBuf,
    seed: u64,
    thorough: bool,
    /// The length of the journal when the testbed was up.
    beginning: usize,
}

/// A case's objects, its faults, and the calls it has seen: the next case begins without them.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Made-up secrets in the case's own calls, by method.
    canaries: RefCell<BTreeMap<String, String>>,
    volumes: RefCell<BTreeMap<String, Provisioned>>,
    /// Those that the driver of the other node has made.
    of_other: RefCell<BTreeSet<String>>,
    /// The duration of the case's slowest own call.
    slowest: Cell<Duration>,
    /// Ids of volumes and snapshots that the case's own calls have deleted.
    deleted: RefCell<BTreeSet<String>>,
    pods: RefCell<BTreeSet<String>>,
    /// Pods that were deleted and are not known to be gone.
    leaving: RefCell<BTreeSet<String>>,
    /// Pods of the other node.
    on_other: RefCell<BTreeSet<String>>,
    gates: RefCell<BTreeMap<&'static str, Gate>>,
    /// Whether each call is made twice until the end of the case.
    repeats: Cell<bool>,
    /// Waits that timed out.
    dead_ends: RefCell<BTreeSet<String>>,
    /// The points of which the case has tried some or all.
    pub(crate) samples: RefCell<Vec<Sample>>,
    /// The first call that the end of the case has waited for in vain.
    pub(crate) not_undone: RefCell<Option<NotUndone>>,
    /// Calls that were not answered within their time limit.
    unanswered: RefCell<BTreeSet<String>>,
    before: RefCell<driver_holds::Before>,
    /// The node calls that the case makes itself, by volume.
    pub(crate) node_uses: RefCell<BTreeMap<String, node_calls::NodeUse>>,
    copies: RefCell<copies::Copies>,
    cluster: cluster::Cluster,
    held: RefCell<Held>,
    /// Daemons of the driver that the case has stopped.
    hung: RefCell<Vec<Process>>,
}

impl Deref for Bed {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.testbed
    }
}

/// The limit of a wait while no call is under way: enough for four tries of the back-off ladder.
const FUTILE: Duration = Duration::from_secs(10);

/// The time that a process may sleep in the kernel for a disk before that is reported.
const GLANCE: Duration = Duration::from_millis(200);

type Result<T = ()> = std::result::Result<T, StepError>;

impl Bed {
    /// The line of the driver's log that says why it ended.
    pub async fn last_words(&self) -> Option<String> {
        last_words::last_words(&self.driver().lock().await.log_tail(last_words::LINES))
    }

    /// The message of a crash in the driver's log.
    pub async fn crash_message(&self) -> Option<String> {
        last_words::crash(&self.driver().lock().await.log_tail(last_words::LINES))
    }

    /// Notes a step of the case in the journal.
    pub(crate) fn step(&self, step: &str, at: &Place) {
        self.journal.step(step, &at.to_string());
    }

    /// Waits until nothing is under way. Returns the operations that still are at the end of the time limit.
    pub(crate) async fn settle(&self) -> Vec<String> {
        let node = &self.node;
        if !node.is_running() {
            return vec![];
        }
        let leaving: Vec<String> = self.made.leaving.borrow().iter().cloned().collect();
        for pod in leaving {
            let node = self.node_of(&pod);
            if !node.is_running() {
                continue;
            }
            match self.patiently(self.journal_of(&pod), |limit| node.wait_gone(&pod, limit)).await {
                Ok(()) => drop(self.made.leaving.borrow_mut().remove(&pod)),
                Err(waited) => return waited.lines(),
            }
        }
        if let Some(other) = self.other().filter(|other| other.node.is_running()) {
            let waited = self.patiently(&other.journal, |limit| other.node.wait_idle(limit)).await;
            if let Err(waited) = waited {
                return waited.lines();
            }
        }
        match self.patiently(&self.journal, |limit| node.wait_idle(limit)).await {
            Ok(()) => vec![],
            Err(waited) => waited.lines(),
        }
    }

    /// The story since the last look.
    pub fn look(&self) -> Story {
        self.journal.look()
    }

    /// The calls without an answer, and the processes that are stuck in the kernel.
    pub async fn under_way(&self) -> Vec<String> {
        let calls = self.journal.in_flight();
        let mut stuck = census::stuck();
        if !stuck.is_empty() {
            tokio::time::sleep(GLANCE).await;
            let again = census::stuck();
            stuck.retain(|process| again.contains(process));
        }
        let calls = calls.into_iter().map(|call| format!("under way: {call}"));
        calls.chain(stuck.iter().map(ToString::to_string)).collect()
    }

    /// Whether the driver stages volumes.
    pub(crate) fn stages(&self) -> bool {
        self.abilities.stages()
    }

    /// The seed of all random choices.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the case has made volumes that outlive a pod.
    pub(crate) fn has_volumes(&self) -> bool {
        !self.made.volumes.borrow().is_empty()
    }

    pub(crate) fn is_thorough(&self) -> bool {
        self.thorough
    }

    /// The points that the case has tried, of all that there are.
    pub fn samples(&self) -> Vec<Sample> {
        self.made.samples.borrow().clone()
    }

    /// The control group that limits the driver, if there is one.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_deref()
    }

    /// The values that must not appear in any log: the driver's secrets, and the cluster's unless they are too short.
    pub fn secrets(&self) -> Vec<Sensitive<String>> {
        let confided = self.api_server.confided();
        let confided = confided.iter().map(|secret| String::from_utf8_lossy(secret.reveal()).into_owned());
        let long = confided.filter(|secret| secret.len() >= SHORTEST).map(Sensitive::new);
        let canaries = self.made.canaries.borrow();
        let canaries = canaries.values().cloned().map(Sensitive::new);
        self.secrets.iter().cloned().chain(long).chain(canaries).collect()
    }
}

/// The sentence for a driver that ended unasked.
pub fn ended_by_itself(exit: Exit) -> String {
    format!("The driver ended by itself: {exit}.")
}

/// A fragment as a sentence.
pub fn sentence(fragment: &str) -> String {
    let mut letters = fragment.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let end = if fragment.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}
