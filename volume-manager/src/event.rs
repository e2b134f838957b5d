//! Everything that can wake the manager's loop, as one enum, and everything it tells the world.
//!
//! All events come through one queue, so their order is the order in which things happened to the manager.
//! Time is the one exception: the loop itself waits for the next moment something is due.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::follow::News;
use api::names::{DriverName, OuterName, PluginName, PodUid, SpecName, VolumeName};
use api::{ApiError, Kind, Node, Pod, Volume, VolumeMode};
use plugin_api::error::{Failure, Withdrawn};
use plugin_api::{Found, Mounted, OperationId, ReportQueue, Told, Transition};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::manager::dump::Dump;
use crate::manager::waits::WaitError;
use crate::operation::{Failed, OperationName};
use crate::populator::Resolved;
use crate::reconstruct::{Reconstruction, Recovered};

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// The owner of the manager wants something.
    Command(Command),
    /// An object that decisions rest on has changed, or all of a kind have been seen.
    Api(Kind, News),
    /// A running operation has something to say.
    Operation(OperationId, Report),
    /// Somebody is to be told something through a Kubernetes event.
    Tell(Told),
    /// A driver came or went.
    Driver(Registration),
    /// The volumes of a pod were looked up.
    Resolved(PodUid, Resolved),
    /// The directories left by the last incarnation were read.
    Reconstructed(Reconstruction),
    /// The node's object was read, to correct what was reconstructed.
    NodeRead(Result<Arc<Node>, ApiError>),
    /// A directory that explained nothing was looked into by other means.
    Identified(Found, Identified),
    /// The volume was looked for whose place on the node this is.
    Traced(PathBuf, Result<Option<Arc<Volume>>, ApiError>),
    /// The node was asked whether it enforces SELinux.
    SeLinux(bool),
}

/// What a directory that explained nothing turned out to be.
#[derive(Debug)]
pub enum Identified {
    /// A volume.
    Recovered(Recovered),
    /// Nothing: nothing is mounted.
    Nothing,
    /// Something is mounted, and nobody knows what.
    Unknown(Option<Failure>),
}

/// What the owner of the manager may want. Answers go through the sender each question carries; an owner
/// that no longer listens is no error.
#[derive(Debug)]
pub enum Command {
    /// A pod is bound to this node, or has changed.
    SetPod(Arc<Pod>),
    /// The object of a pod is gone.
    RemovePod(PodUid),
    /// What the runtime does with a pod.
    SetPodState(PodUid, PodState),
    /// All pods that were to be known have been given.
    SourcesReady,
    /// Wait until a pod's volumes are there, which also is a sync of the pod.
    WaitMounted(PodUid, Duration, oneshot::Sender<Result<(), WaitError>>),
    /// Wait until a pod has none any more.
    WaitUnmounted(PodUid, Duration, oneshot::Sender<Result<(), WaitError>>),
    /// Wait until nothing is under way and nothing is due.
    WaitIdle(Duration, oneshot::Sender<Result<(), WaitError>>),
    /// The volumes a pod has.
    MountedVolumes(PodUid, oneshot::Sender<BTreeMap<OuterName, MountedVolume>>),
    /// The volumes the node must say it uses; `None` until that is known.
    VolumesInUse(oneshot::Sender<Option<Vec<VolumeName>>>),
    /// What the node's object says it uses.
    MarkReportedInUse(Vec<VolumeName>),
    /// Everything the manager believes.
    Dump(oneshot::Sender<Dump>),
    /// Listen to what it does.
    Subscribe(mpsc::UnboundedSender<Notice>),
    /// End, dropping what is under way.
    Shutdown(oneshot::Sender<()>),
}

/// What the runtime does with a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodState {
    /// Its containers may run.
    #[default]
    Running,
    /// They are being stopped: it gets no new volumes, and keeps those it has.
    Terminating,
    /// They are gone for good: its volumes may go, too.
    RuntimeGone,
}

/// What a running operation says.
#[derive(Debug)]
pub enum Report {
    /// It has learned something, and waits until that is in the books.
    Learned {
        /// What.
        transition: Transition,
        /// Answers it.
        done: oneshot::Sender<Result<(), Withdrawn>>,
    },
    /// It has ended.
    Finished(Outcome),
}

/// The loop's queue, as operations see it.
#[derive(Debug, Clone)]
pub(crate) struct EventQueue(pub(crate) mpsc::UnboundedSender<Event>);

impl ReportQueue for EventQueue {
    fn learned(
        &self,
        operation: OperationId,
        transition: Transition,
        done: oneshot::Sender<Result<(), Withdrawn>>,
    ) {
        // A loop that has ended drops `done`, and with it the operation never goes on.
        let _ = self.0.send(Event::Operation(operation, Report::Learned { transition, done }));
    }

    fn tell(&self, told: Told) {
        // A loop that has ended has nobody to tell.
        let _ = self.0.send(Event::Tell(told));
    }
}

/// How an operation ended.
#[derive(Debug)]
pub enum Outcome {
    /// It did what it was for.
    Done,
    /// It did not.
    Failed(Failed),
    /// It panicked, which is our bug and counts as a failure.
    Panicked(String),
}

/// A driver came or went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    /// It can be reached, perhaps again and elsewhere.
    Added {
        /// Its name.
        driver: DriverName,
        /// Its socket.
        endpoint: PathBuf,
    },
    /// It cannot be reached any more.
    Removed {
        /// Its name.
        driver: DriverName,
    },
}

/// A volume a pod has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedVolume {
    /// Its unique name.
    pub volume: VolumeName,
    /// Its inner name.
    pub inner: SpecName,
    pub plugin: PluginName,
    /// A directory or a device.
    pub mode: VolumeMode,
    /// Where it is and what the runtime must know of it.
    pub mounted: Mounted,
    /// The supplemental group it brings along, as written.
    pub gid: Option<String>,
    /// Whether the pod's reference to its claim says that it only reads.
    pub read_only: bool,
}

/// What the manager tells whoever subscribed, in the order it happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Notice {
    /// One entry of the books changed; an empty text is no entry. The words are those of the recordings.
    State {
        /// `actual` or `desired`.
        world: String,
        /// `volume <unique name>` or `pod <uid> <unique name>`.
        key: String,
        /// Before.
        from: String,
        /// After.
        to: String,
    },
    /// An operation was started.
    Started {
        name: OperationName,
        volume: VolumeName,
        /// Its pod, if it is for one.
        pod: Option<PodUid>,
    },
    /// An operation has ended.
    Ended {
        name: OperationName,
        volume: VolumeName,
        /// Its pod, if it was for one.
        pod: Option<PodUid>,
        /// Why it failed, if it did.
        error: Option<String>,
    },
    /// A Kubernetes event was emitted.
    Told(Told),
    /// The node must say that it uses these volumes. Whoever writes that asks for the newest list when they
    /// write: an older one could take back what was already relied on.
    InUse(Vec<VolumeName>),
    /// A wait came back.
    Waited {
        /// `mounted` or `unmounted`.
        what: String,
        pod: PodUid,
        /// Why it failed, if it did.
        error: Option<String>,
    },
}
