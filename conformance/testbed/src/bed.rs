//! The testbed of a case: driver, proxy, API server and node, put up inside the sandbox, and what the case makes on it.
//!
//! Everything a case does to the world goes through here, as one function each, and every wait has a limit.

mod attach_failure;
mod behind;
mod calls;
mod cluster;
mod containers;
mod copies;
mod crash;
mod dead_end;
mod disks;
mod driver_holds;
mod failing_state;
mod files;
mod load;
mod nfs;
pub(crate) mod node_calls;
mod objects;
mod other_node;
mod patience;
pub(crate) mod pattern;
mod put_up;
mod reboot;
mod remains;
mod shared_driver;
mod silence;
mod spec;
mod winding_up;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::AccessMode;
use harness::api_server::{ProvisionError, Provisioned, VolumeRequest};
use harness::census;
use harness::cgroup::Cgroup;
use harness::driver::{DriverError, Exit};
use harness::fault_fs::FaultFs;
use harness::manifest::Sensitive;
use harness::masks::SHORTEST;
use harness::node::NodeError;
use harness::proxy::{Gate, Rule, code_name, is_unanswered, unreadable};
use harness::sandbox::Ownership;
use harness::testbed::{OtherNode, Testbed, TestbedError};
use harness::tmpfs::Tmpfs;
use tonic::Status;

use crate::call::{Code, Method};
use crate::failure::{Place, What, chain, words};
use crate::foreign::Foreign;
use crate::limits::DeviceGroups;
use crate::message::Abilities;
use containers::Started;
use patience::Waited;

pub use crash::Victim;
pub use driver_holds::Held;
pub use load::DriverLoad;

pub(crate) use cluster::ClaimSpec;
pub(crate) use containers::Running;
pub(crate) use nfs::NfsSpec;
pub use patience::SHOWN;
pub(crate) use put_up::builder;
pub(crate) use spec::{MountSpec, PodSpec, VolumeSpec};
pub use winding_up::Books;

/// A testbed, and what a case has made on it.
#[derive(Debug)]
pub struct Bed {
    // Fields are dropped in this order: first who uses volumes, then who provides them.
    /// By pod.
    containers: RefCell<BTreeMap<String, Started>>,
    device_groups: DeviceGroups,
    other: OnceCell<OtherNode>,
    testbed: Testbed,
    /// The file system of the other node's root.
    _other_root: Option<Tmpfs>,
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
    // A file system that is served lies on the part of the machine below, so it goes first.
    fuse: RefCell<Option<FaultFs>>,
    /// The driver's directory, where a case has it fail. After the driver, whose files are in it.
    failing_state: RefCell<Option<failing_state::FailingState>>,
    ownership: Ownership,
    /// The devices of the sandbox's own file systems.
    devices_of_sandbox: Vec<u64>,
    local_files: reboot::LocalFiles,
    /// A part of the machine that is not the node's.
    machine: RefCell<Option<Tmpfs>>,
    /// Where the case keeps its logs.
    directory: PathBuf,
    seed: u64,
    /// How many lines the journal had when everything was up.
    beginning: usize,
}

/// A case's objects, its faults, and the calls it has seen: the next case begins without them.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Secrets of the case's own calls, by method.
    canaries: RefCell<BTreeMap<String, String>>,
    volumes: RefCell<BTreeMap<String, Provisioned>>,
    /// How long the slowest call of the case's own took until it was answered.
    slowest: Cell<Duration>,
    /// Ids of volumes and snapshots that calls of the case's own have deleted.
    deleted: RefCell<BTreeSet<String>>,
    pods: RefCell<BTreeSet<String>>,
    /// Pods that were deleted and are not known to be gone.
    leaving: RefCell<BTreeSet<String>>,
    /// Pods that are for the other node.
    on_other: RefCell<BTreeSet<String>>,
    gates: RefCell<BTreeMap<&'static str, Gate>>,
    /// Whether each call is made twice, to the end.
    repeats: Cell<bool>,
    /// Waits that timed out.
    dead_ends: RefCell<BTreeSet<String>>,
    /// Calls that were not answered in all their time.
    unanswered: RefCell<BTreeSet<String>>,
    before: RefCell<driver_holds::Before>,
    /// The node calls that the case makes itself, by volume.
    pub(crate) node_uses: RefCell<BTreeMap<String, node_calls::NodeUse>>,
    copies: RefCell<copies::Copies>,
    cluster: cluster::Cluster,
    held: RefCell<Held>,
}

impl Deref for Bed {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.testbed
    }
}

/// Why a step of a case failed.
#[derive(Debug)]
pub(crate) enum StepError {
    /// The world is not as the case says.
    Broken(Vec<String>),
    /// The suite could not do its part.
    Ours(Vec<String>),
    /// The machine has not enough of something: which, what to do, and what came of it.
    Environment(Vec<String>),
    /// The driver broke a numbered promise; the text says how.
    Promise(&'static str, String),
}

impl StepError {
    pub(crate) fn into_cause(self) -> What {
        match self {
            Self::Broken(chain) => What::Broken { chain, seen: None },
            Self::Ours(chain) => What::Ours(chain),
            Self::Environment(chain) => What::Environment(chain),
            Self::Promise(contract, cause) => What::Promise { contract, method: String::new(), cause },
        }
    }

    pub(crate) fn ours(error: &(dyn Error + 'static)) -> Self {
        Self::Ours(chain(error))
    }

    pub(crate) fn of_testbed(error: &TestbedError) -> Self {
        match error {
            TestbedError::Driver(error @ DriverError::Overloaded { .. }) => Self::Environment(chain(error)),
            TestbedError::Driver(error) if error.is_of_the_driver() => {
                let told =
                    format!("The driver was ended and does not start again: {}.", chain(error).join(": "));
                Self::Promise(STARTS_AGAIN, told)
            }
            TestbedError::Driver(error) => Self::Broken(chain(error)),
            TestbedError::Refused(why) => {
                Self::Broken(vec!["The node does not take the driver.".to_owned(), why.clone()])
            }
            error => Self::ours(error),
        }
    }

    /// The same with the reason in front; behind the load of a machine, which may be the reason for that one.
    fn because(self, reason: String) -> Self {
        match self {
            Self::Broken(mut chain) => {
                chain.insert(0, reason);
                Self::Broken(chain)
            }
            Self::Environment(mut chain) => {
                chain.insert(chain.len().min(1), reason);
                Self::Environment(chain)
            }
            ours @ (Self::Ours(_) | Self::Promise(..)) => ours,
        }
    }

    /// An error that the node reports is about the volumes; one in talking to the node is the harness's.
    pub(crate) fn of_node(error: &NodeError) -> Self {
        match error {
            NodeError::Refused(why) => Self::Broken(vec![sentence(why)]),
            _ => Self::ours(error),
        }
    }
}

/// How long a wait lasts while no call is under way: enough for four tries of the back-off ladder.
const FUTILE: Duration = Duration::from_secs(10);

/// The `oom_score_adj` of a process that the kernel is to kill first when there is no memory left.
const FIRST_TO_DIE: &str = "1000";

/// How long a node whose time can be let pass is waited for before it is.
const MOMENT: Duration = Duration::from_secs(2);

/// How long a pod that cannot have its volumes is waited for.
const REFUSED: Duration = Duration::from_secs(1);

/// How long a process may sleep in the kernel for a disk before that is reported.
const GLANCE: Duration = Duration::from_millis(200);

/// The calls that change anything, on the node or behind it.
const CHANGING: [&str; 8] = [
    "CreateVolume",
    "DeleteVolume",
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "NodeStageVolume",
    "NodeUnstageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
];

/// The promise of a driver that makes copies.
const COPIES: &str = "DRV-014";

/// The promise of a driver that is ended in the middle of a case.
pub(crate) const STARTS_AGAIN: &str = "DRV-133";

type Result<T = ()> = std::result::Result<T, StepError>;

impl Bed {
    /// Has the driver make a volume, and binds a claim to it.
    pub(crate) async fn create_volume(&self, spec: &VolumeSpec) -> Result {
        match self.try_create_volume(spec).await? {
            Ok(()) => Ok(()),
            Err(ProvisionError::Create { source, .. }) if spec.source.is_some() && is_refusal(&source) => {
                let told = format!(
                    "CreateVolume of a copy answered {} \"{}\".",
                    code_name(source.code()),
                    words(&source)
                );
                Err(StepError::Promise(COPIES, told))
            }
            Err(refused) => Err(StepError::Broken(chain(&refused))),
        }
    }

    /// The same; what the driver answers where it makes none.
    pub(crate) async fn try_create_volume(
        &self,
        spec: &VolumeSpec,
    ) -> Result<std::result::Result<(), ProvisionError>> {
        let mut request = VolumeRequest::new(&spec.name, self.manifest());
        request.block = spec.block;
        if let Some(fs_type) = &spec.fs_type {
            request.fs_type.clone_from(fs_type);
        }
        request.mount_options.clone_from(&spec.mount_options);
        if !spec.block {
            request.size = request.size.max(least_size(&request.fs_type));
        }
        request.size = spec.size.unwrap_or(request.size);
        request.source.clone_from(&spec.source);
        if spec.single_pod {
            request.access_modes = vec![AccessMode::ReadWriteOncePod];
        }
        // An ordinary volume is enough where the driver tells single and multiple writers apart.
        if spec.on_all_nodes || spec.shared && !self.abilities.shares_on_a_node() {
            request.access_modes = vec![AccessMode::ReadWriteMany];
        }
        let earlier = self.driver_loops();
        let made = self.provisioner.provision(&request).await;
        self.remember_loops(&earlier);
        let made = match made {
            Ok(made) => made,
            Err(refused @ ProvisionError::Create { .. }) => return Ok(Err(refused)),
            Err(error) => return Err(StepError::Broken(chain(&error))),
        };
        if let Some(gid) = spec.gid {
            self.give_group(&made.volume, gid)?;
        }
        self.made.volumes.borrow_mut().insert(spec.name.clone(), made);
        if spec.source.is_some() {
            self.made.copies.borrow_mut().volumes.insert(spec.name.clone());
        }
        Ok(Ok(()))
    }

    /// Gives a pod to the node.
    pub(crate) async fn add_pod(&self, spec: &PodSpec) -> Result {
        self.put_on(&spec.name, spec.on_other_node);
        self.node_of(&spec.name).add_pod(spec.pod()).map_err(|error| StepError::ours(&error))?;
        self.made.pods.borrow_mut().insert(spec.name.clone());
        Ok(())
    }

    /// Waits until a pod has its volumes.
    pub(crate) async fn wait_mounted(&self, pod: &str) -> Result {
        let (node, journal) = (self.node_of(pod), self.journal_of(pod));
        let begun = journal.length();
        let waited = self.patiently(journal, |limit| node.wait_mounted(pod, limit)).await;
        waited.map_err(|waited| {
            let error = StepError::from(waited);
            match attach_failure::of(&journal.since(begun), pod) {
                Some(failure) => error.because(failure),
                None => error,
            }
        })
    }

    /// Finds that a pod does not get its volumes, for a reason that the node tells.
    pub(crate) async fn mount_is_refused(&self, pod: &str) -> Result {
        match self.node_of(pod).wait_mounted(pod, REFUSED).await {
            Err(NodeError::Refused(_)) => Ok(()),
            Err(error) => Err(StepError::ours(&error)),
            Ok(()) => Err(StepError::Broken(vec![format!("The pod `{pod}` has its volumes all the same.")])),
        }
    }

    /// Deletes a pod whose containers have ended.
    pub(crate) async fn remove_pod(&self, pod: &str) -> Result {
        self.end_container(pod).await?;
        self.made.pods.borrow_mut().remove(pod);
        self.made.leaving.borrow_mut().insert(pod.to_owned());
        match self.node_of(pod).remove_pod(pod, false).await {
            // It dies as it was told to, and learns of the pod when it is back.
            Err(NodeError::Exited { .. }) => Ok(()),
            removed => removed.map_err(|error| StepError::ours(&error)),
        }
    }

    /// Waits until nothing of a deleted pod is left on the node.
    pub(crate) async fn wait_gone(&self, pod: &str) -> Result {
        let node = self.node_of(pod);
        self.patiently(self.journal_of(pod), |limit| node.wait_gone(pod, limit)).await?;
        self.made.leaving.borrow_mut().remove(pod);
        Ok(())
    }

    /// The same where the node's time passes: by so much, each time it comes to nothing for a moment.
    pub(crate) async fn wait_gone_within(&self, pod: &str, time: Duration) -> Result {
        let node = &self.node;
        let end = Instant::now() + self.limit;
        loop {
            match node.wait_gone(pod, MOMENT).await {
                Ok(()) => break,
                Err(NodeError::Refused(_)) if Instant::now() < end => {}
                Err(error) => return Err(StepError::of_node(&error)),
            }
            node.advance(time).await.map_err(|error| StepError::ours(&error))?;
        }
        self.made.leaving.borrow_mut().remove(pod);
        Ok(())
    }

    /// Lets the next calls fail before they reach the driver.
    pub(crate) fn fail(&self, method: Method, code: Code, times: u32) {
        self.proxy().inject(Rule::of(method.name()).code(code.name()).times(times));
    }

    /// Has each call that changes anything made twice.
    pub(crate) fn repeat_every_call(&self) {
        self.made.repeats.set(true);
        for method in CHANGING {
            self.proxy().inject(Rule { duplicate: true, ..Rule::of(method) });
        }
    }

    /// Holds the next answer.
    pub(crate) fn hold(&self, method: Method) {
        let gate = self.proxy().hold(method.name());
        self.made.gates.borrow_mut().insert(method.name(), gate);
    }

    /// Holds the next answer and then loses it.
    pub(crate) fn hold_and_lose(&self, method: Method) {
        let lost = Rule::of(method.name()).code("Unavailable").times(1).forward();
        let gate = self.proxy().hold_with(lost);
        self.made.gates.borrow_mut().insert(method.name(), gate);
    }

    /// Waits until an answer is held.
    pub(crate) async fn held(&self, method: Method) -> Result {
        let Some(gate) = self.made.gates.borrow().get(method.name()).cloned() else { return Ok(()) };
        match tokio::time::timeout(self.limit, gate.reached()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(StepError::Broken(vec![format!(
                "No {} was answered within {} s.",
                method.name(),
                self.limit.as_secs()
            )])),
        }
    }

    /// Lets a held answer go on.
    pub(crate) fn release(&self, method: Method) {
        if let Some(gate) = self.made.gates.borrow_mut().remove(method.name()) {
            gate.open();
        }
    }

    /// Lets the node die after this number of further effects.
    pub(crate) async fn doom_node(&self, effects: u64) {
        self.node.dies_after(effects);
    }

    /// Waits until the node is at rest, or has died and was started again: whether it had.
    pub(crate) async fn revive_node(&self) -> Result<bool> {
        let node = &self.node;
        if node.is_running() {
            match self.patiently(&self.journal, |limit| node.wait_idle(limit)).await {
                Ok(()) => return Ok(false),
                Err(Waited { node: NodeError::Down | NodeError::Exited { .. }, .. }) => {}
                Err(waited) => return Err(waited.into()),
            }
        }
        node.restart().await.map_err(|error| StepError::ours(&error))?;
        Ok(true)
    }

    /// Has the machine run out of memory, and the driver killed for it.
    pub(crate) async fn starve_driver(&self) -> Result {
        self.expect_driver_death();
        let (driver, exited) = {
            let driver = self.driver().lock().await;
            (driver.pid(), driver.exited())
        };
        let ours = |error: io::Error| StepError::ours(&error);
        let score = driver.map(|pid| format!("/proc/{pid}/oom_score_adj")).ok_or(io::ErrorKind::NotFound);
        std::fs::write(score.map_err(io::Error::from).map_err(ours)?, FIRST_TO_DIE).map_err(ours)?;
        // It keeps the last line, and there is never an end of a line. After the driver, it is the next to die.
        let mut hog = tokio::process::Command::new("tail");
        let hog = hog.arg("/dev/zero").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut hog = hog.kill_on_drop(true).spawn().map_err(ours)?;
        let died = tokio::time::timeout(self.limit, async { tokio::join!(exited, hog.wait()) }).await;
        match died {
            Ok((Exit::Signal(_), _)) => Ok(()),
            Ok((exit, _)) => Err(StepError::Broken(vec![ended_by_itself(exit)])),
            Err(_) => Err(StepError::Ours(vec!["memory did not run out in time".to_owned()])),
        }
    }

    /// The last line the driver printed.
    pub async fn last_words(&self) -> Option<String> {
        self.driver().lock().await.log_tail(1).pop()
    }

    /// Has the kernel panic: data that is not on disk yet is lost, and no process is ended in order.
    pub(crate) fn panic_kernel(&self) -> Result {
        std::fs::write("/proc/sysrq-trigger", "c").map_err(|error| StepError::ours(&error))
    }

    /// Notes a step of the case in the journal.
    pub(crate) fn step(&self, step: &str, at: &Place) {
        self.journal.step(step, &at.to_string());
    }

    /// Waits until the node has taken note of all pods.
    pub(crate) async fn wait_noticed(&self) -> Result {
        let node = &self.node;
        node.wait_noticed(FUTILE.min(self.limit)).await.map_err(|error| StepError::of_node(&error))
    }

    /// Waits until nothing is under way; says what still is when the time is over.
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
    pub fn look(&self) -> String {
        self.journal.look().to_string()
    }

    /// The calls that have not been answered, and the processes that get nowhere.
    pub async fn under_way(&self) -> Vec<String> {
        let calls = self.journal.in_flight();
        let mut stuck = census::stuck();
        if !stuck.is_empty() {
            tokio::time::sleep(GLANCE).await;
            let again = census::stuck();
            stuck.retain(|one| again.contains(one));
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

    /// The control group that limits the driver, if there is one.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_deref()
    }

    /// The values that must stand nowhere: the driver's, and those of the cluster that no innocent word has in it.
    pub fn secrets(&self) -> Vec<Sensitive<String>> {
        let confided = self.api_server.confided();
        let confided = confided.iter().map(|secret| String::from_utf8_lossy(secret.reveal()).into_owned());
        let telling = confided.filter(|secret| secret.len() >= SHORTEST).map(Sensitive::new);
        let canaries = self.made.canaries.borrow();
        let canaries = canaries.values().cloned().map(Sensitive::new);
        self.secrets.iter().cloned().chain(telling).chain(canaries).collect()
    }
}

/// Whether a driver has said by itself that it does not do it, and has not only run out of space.
fn is_refusal(status: &Status) -> bool {
    let says_nothing = matches!(status.code(), tonic::Code::Unavailable | tonic::Code::ResourceExhausted);
    !says_nothing && unreadable(status).is_none() && !is_unanswered(status)
}

/// The sentence for a driver that ended without having been asked to.
pub fn ended_by_itself(exit: Exit) -> String {
    format!("The driver ended by itself: {exit}.")
}

/// A fragment as a sentence.
fn sentence(fragment: &str) -> String {
    let mut letters = fragment.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let end = if fragment.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

/// The least size for which the tools can make a file system: a manifest names one size, and several file systems.
fn least_size(fs_type: &str) -> u64 {
    match fs_type {
        "xfs" => 300 << 20,
        "btrfs" => 128 << 20,
        _ => 0,
    }
}
