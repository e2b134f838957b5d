//! The events that wake the manager's loop, and the notices it sends to subscribers.
//!
//! All events come through one queue and are handled in the order of arrival. Deadlines are the exception: the
//! loop waits for the next one itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::follow::News;
use api::names::{DriverName, OuterName, PluginName, PodUid, SpecName, VolumeName};
use api::{Kind, Pod, VolumeMode};
use plugin_api::error::Withdrawn;
use plugin_api::{EmittedEvent, Mounted, OperationId, ReportQueue, Transition, VolumeStats};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::dump::Dump;
use crate::operation::{Failed, OperationName};
use crate::populator::{PodState, Resolved};
use crate::recovery::{self, Knowledge};
use crate::waits::WaitError;

/// An event for the manager's loop.
#[derive(Debug)]
pub(crate) enum Event {
    /// A command of the manager's owner.
    Command(Command),
    /// A followed API object has changed, or all objects of a kind have been listed.
    Api(Kind, News),
    /// A report of a running operation.
    Operation(OperationId, Report),
    /// A Kubernetes event is to be emitted.
    Emit(EmittedEvent),
    /// A driver was added or removed.
    Driver(Registration),
    /// The volumes of a pod were resolved.
    Resolved(PodUid, Resolved),
    /// Something about the volumes that a previous run left on this node.
    Recovery(recovery::Event),
    /// Whether the node enforces SELinux.
    SeLinux(bool),
}

/// Commands of the manager's owner. Each question carries the sender for its answer; an owner that no longer
/// listens is no error.
#[derive(Debug)]
pub enum Command {
    /// Adds a pod that is bound to this node, or replaces its object.
    SetPod(Arc<Pod>),
    /// Removes a pod whose object is deleted.
    RemovePod(PodUid),
    /// Sets the state of a pod's containers.
    SetPodState(PodUid, PodState),
    /// All pods bound to this node have been added.
    SourcesReady,
    /// Waits until a pod's volumes are mounted, and syncs the pod.
    WaitMounted(PodUid, Duration, oneshot::Sender<Result<(), WaitError>>),
    /// Waits until a pod has no volume.
    WaitUnmounted(PodUid, Duration, oneshot::Sender<Result<(), WaitError>>),
    /// Waits until nothing is under way and nothing is due.
    WaitIdle(Duration, oneshot::Sender<Result<(), WaitError>>),
    /// Asks for the volumes that a pod has mounted.
    MountedVolumes(PodUid, oneshot::Sender<BTreeMap<OuterName, MountedVolume>>),
    /// The statistics of a pod's mounted volumes.
    Measure(PodUid, oneshot::Sender<BTreeMap<OuterName, Measured>>),
    /// The volumes for the node's `volumesInUse`; `None` until recovery has compared it with the node's object.
    VolumesInUse(oneshot::Sender<Option<Vec<VolumeName>>>),
    /// Reports the `volumesInUse` of the node's object.
    MarkReportedInUse(Vec<VolumeName>),
    /// A snapshot of the manager's state.
    Dump(oneshot::Sender<Dump>),
    /// Sends notices to this channel from now on.
    Subscribe(mpsc::UnboundedSender<Notice>),
    /// Ends the manager; operations under way are dropped.
    Shutdown(oneshot::Sender<()>),
}

/// A report of a running operation.
#[derive(Debug)]
pub enum Report {
    /// The operation has a transition, and waits until the actual state has applied it.
    Learned {
        /// The change of the actual state.
        transition: Transition,
        /// Answers the operation; `Withdrawn` ends it.
        done: oneshot::Sender<Result<(), Withdrawn>>,
    },
    /// The operation has ended.
    Finished(Outcome),
}

/// The loop's queue, for operations.
#[derive(Debug, Clone)]
pub(crate) struct EventQueue(pub(crate) mpsc::UnboundedSender<Event>);

impl ReportQueue for EventQueue {
    fn report(
        &self,
        operation: OperationId,
        transition: Transition,
        done: oneshot::Sender<Result<(), Withdrawn>>,
    ) {
        // If the loop has ended, `done` is dropped and the operation does not go on.
        let _ = self.0.send(Event::Operation(operation, Report::Learned { transition, done }));
    }

    fn emit(&self, event: EmittedEvent) {
        // If the loop has ended, the Kubernetes event is lost with it.
        let _ = self.0.send(Event::Emit(event));
    }
}

/// The outcome of an operation.
#[derive(Debug)]
pub enum Outcome {
    Done,
    Failed(Failed),
    /// The operation panicked: a bug of ours, counted as a failure.
    Panicked(String),
}

/// A driver was added or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    /// A driver listens on a socket, for the first time, again or on another one.
    Added { driver: DriverName, endpoint: PathBuf },
    /// A driver has no socket any more.
    Removed { driver: DriverName },
}

/// The statistics of a volume, or why its plugin has none.
pub type Measured = Result<VolumeStats, Arc<str>>;

/// A mounted volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedVolume {
    pub volume: VolumeName,
    /// The name of its PersistentVolume or pod volume.
    pub inner: SpecName,
    pub plugin: PluginName,
    pub mode: VolumeMode,
    /// The path of the mount, and the facts that the container runtime needs.
    pub mounted: Mounted,
    /// The supplemental group of the volume, as written in its annotation.
    pub gid: Option<String>,
    /// Whether the pod mounts its claim read-only.
    pub read_only: bool,
}

/// Notices to subscribers, in the order of the changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Notice {
    /// An entry of the desired or the actual state changed; an empty text is no entry. Texts are those of
    /// recordings.
    State {
        /// `actual` or `desired`.
        world: String,
        /// `volume <unique name>` or `pod <uid> <unique name>`.
        key: String,
        from: String,
        to: String,
    },
    /// An operation was started.
    Started {
        name: OperationName,
        volume: VolumeName,
        /// The pod, for an operation on a pod's share of the volume.
        pod: Option<PodUid>,
    },
    /// An operation has ended.
    Ended {
        name: OperationName,
        volume: VolumeName,
        /// The pod, for an operation on a pod's share of the volume.
        pod: Option<PodUid>,
        /// The error, if it failed.
        error: Option<String>,
    },
    /// A Kubernetes event was emitted.
    Emitted(EmittedEvent),
    /// The node's `volumesInUse` must be this list. A writer of the node's status must ask for the newest list
    /// when it writes: an older one could remove a volume that is mounted already.
    InUse(Vec<VolumeName>),
    /// The manager knows this from now on, until it ends.
    Knows(Knowledge),
    /// A wait has ended.
    Waited {
        /// `mounted` or `unmounted`.
        what: String,
        pod: PodUid,
        /// The error, if it failed.
        error: Option<String>,
    },
}
