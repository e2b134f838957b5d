//! What every operation is given.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use api::clock::Clock;
use api::error::ErrorClass;
use api::names::{PluginName, PodUid, VolumeName};
use api::{ApiSource, Kind, Pod, Reference, Severity};
use host::Host;
use host::exec::{self, Containers};
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use crate::config::{Config, Dialer};
use crate::error::{Failure, Withdrawn};
use crate::facts::Facts;
use crate::paths::Paths;
use crate::request::Mounted;
use crate::transition::{PodRecord, Transition};

/// Numbers the operations of one manager, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub u64);

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Takes what operations report, in the order in which they report it: the manager's one queue.
///
/// Neither method waits. Once the manager has ended, both drop what they are given.
pub trait ReportQueue: fmt::Debug + Send + Sync + 'static {
    /// An operation has learned something. `done` is answered when the actual state has it, or refuses it.
    fn learned(
        &self,
        operation: OperationId,
        transition: Transition,
        done: oneshot::Sender<Result<(), Withdrawn>>,
    );

    /// An object gets a Kubernetes event.
    fn tell(&self, told: Told);
}

/// The hands of an operation. Cloning shares everything.
#[derive(Debug, Clone)]
pub struct OperationContext {
    /// The node.
    pub host: Arc<dyn Host>,
    pub api: Arc<dyn ApiSource>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Connections to drivers.
    pub dialer: Arc<dyn Dialer>,
    /// Who can run mounts in containers, if anybody can.
    pub containers: Option<Arc<dyn Containers>>,
    /// The layout of the root directory.
    pub paths: Arc<Paths>,
    /// How the manager was started.
    pub config: Arc<Config>,
    /// Kubernetes events.
    pub events: EventSink,
    /// The books.
    pub mark: Mark,
    /// What the manager knows of the world, as it changes.
    pub facts: watch::Receiver<Arc<Facts>>,
}

impl OperationContext {
    /// What the manager knows of the world right now.
    pub fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.facts.borrow())
    }

    /// The same hands with the mounts of a plugin made in the container that is registered for it. Asked at each
    /// operation: the registration may come and go.
    pub async fn for_plugin(&self, plugin: &PluginName) -> Result<Self, Failure> {
        let mut own = self.clone();
        if let Some(containers) = &self.containers {
            let host = exec::host_for(&self.host, containers, self.paths.root(), plugin.as_str()).await;
            // Nothing was tried.
            own.host = host.map_err(|error| Failure::from(error).with_class(ErrorClass::Transient))?;
        }
        Ok(own)
    }
}

/// Where one operation reports what it learns about its volume.
///
/// Each method returns once the books have it. If the manager is gone it never returns: an operation nobody
/// listens to does nothing more.
#[derive(Debug, Clone)]
pub struct Mark {
    volume: VolumeName,
    operation: OperationId,
    /// What a mount or a map records about its pod.
    record: Option<Arc<PodRecord>>,
    queue: Arc<dyn ReportQueue>,
}

impl Mark {
    /// A mark for one operation. Only mounts and maps have a record.
    pub fn new(
        volume: VolumeName,
        operation: OperationId,
        record: Option<PodRecord>,
        queue: Arc<dyn ReportQueue>,
    ) -> Self {
        Self { volume, operation, record: record.map(Arc::new), queue }
    }

    /// The volume of the operation.
    pub fn volume(&self) -> &VolumeName {
        &self.volume
    }

    /// Before the step per node is risked. Refused if no pod wants the volume any more.
    pub async fn device_uncertain(&self, path: impl Into<PathBuf>) -> Result<(), Withdrawn> {
        self.report(Transition::DeviceUncertain { path: path.into() }).await
    }

    /// After the step per node was done. An empty `device_path` keeps the one that is known.
    pub async fn device_mounted(
        &self,
        path: impl Into<PathBuf>,
        device_path: impl Into<String>,
        selinux_label: impl Into<String>,
    ) {
        let (path, device_path) = (path.into(), device_path.into());
        let selinux_label = selinux_label.into();
        self.tell(Transition::DeviceMounted { path, device_path, selinux_label }).await;
    }

    /// After the step per node has failed.
    pub async fn device_failed(
        &self,
        path: impl Into<PathBuf>,
        class: ErrorClass,
        selinux_label: impl Into<String>,
    ) {
        let (path, selinux_label) = (path.into(), selinux_label.into());
        self.tell(Transition::DeviceFailed { path, class, selinux_label }).await;
    }

    /// Before the step per node is undone.
    pub async fn device_undoing(&self) {
        self.tell(Transition::DeviceUndoing).await;
    }

    /// After the step per node was undone.
    pub async fn device_unmounted(&self) {
        self.tell(Transition::DeviceUnmounted).await;
    }

    /// Before the step per pod is risked. Refused if the pod is gone or no longer wants the volume. Only
    /// mounts and maps may say this and the next two.
    pub async fn pod_uncertain(&self) -> Result<(), Withdrawn> {
        self.report(Transition::PodUncertain(self.record())).await
    }

    /// After the step per pod was done.
    pub async fn pod_mounted(&self, mounted: Mounted) {
        self.tell(Transition::PodMounted(self.record(), mounted)).await;
    }

    /// After the step per pod has failed.
    pub async fn pod_failed(&self, class: ErrorClass) {
        self.tell(Transition::PodFailed(self.record(), class)).await;
    }

    fn record(&self) -> PodRecord {
        let record = self.record.as_deref();
        record.expect("only mounts and maps report that a pod has its volume").clone()
    }

    /// Before the step per pod is undone.
    pub async fn pod_undoing(&self, pod: &PodUid) {
        self.tell(Transition::PodUndoing(pod.clone())).await;
    }

    /// After the step per pod was undone.
    pub async fn pod_unmounted(&self, pod: &PodUid) {
        self.tell(Transition::PodUnmounted(pod.clone())).await;
    }

    /// Reports anything that cannot be refused.
    pub async fn tell(&self, transition: Transition) {
        // What is refused beside the two marks before a risk is that a volume is attached: it is verified again.
        let _ = self.report(transition).await;
    }

    async fn report(&self, transition: Transition) -> Result<(), Withdrawn> {
        let (done, applied) = oneshot::channel();
        self.queue.learned(self.operation, transition, done);
        match applied.await {
            Ok(answer) => answer,
            // The manager is gone. Going on would do things no record knows of.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Where Kubernetes events are sent to: at once, without waiting, in order.
#[derive(Debug, Clone)]
pub struct EventSink {
    queue: Arc<dyn ReportQueue>,
}

impl EventSink {
    /// A sink that hands events to the manager.
    pub fn new(queue: Arc<dyn ReportQueue>) -> Self {
        Self { queue }
    }

    /// Tells about an object.
    pub fn emit(&self, about: Reference, severity: Severity, reason: Reason, message: impl Into<String>) {
        self.queue.tell(Told { about, severity, reason, message: message.into() });
    }

    /// Bad news about a pod.
    pub fn warn_pod(&self, pod: &Pod, reason: Reason, message: impl Into<String>) {
        self.emit(Reference::to(Kind::Pod, &pod.meta), Severity::Warning, reason, message);
    }

    /// Good news about a pod.
    pub fn tell_pod(&self, pod: &Pod, reason: Reason, message: impl Into<String>) {
        self.emit(Reference::to(Kind::Pod, &pod.meta), Severity::Normal, reason, message);
    }
}

/// An event about an object, before it is one in the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// The object.
    pub about: Reference,
    /// Whether it is bad news.
    pub severity: Severity,
    /// One word for machines.
    pub reason: Reason,
    /// The text.
    pub message: String,
}

/// The reasons of events, which are the kubelet's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// A volume could not be mounted.
    FailedMount,
    /// A device could not be mapped.
    FailedMapVolume,
    /// A device was mapped.
    SuccessfulMountVolume,
    /// A volume could not be attached.
    FailedAttachVolume,
    /// A volume was attached.
    SuccessfulAttachVolume,
    /// A volume could not be grown.
    VolumeResizeFailed,
    /// A volume was grown on the node.
    FileSystemResizeSuccessful,
    /// A file system could not be grown.
    FileSystemResizeFailed,
    /// A device holds another file system than asked for.
    FailedMountOnFilesystemMismatch,
    /// A mount was there already.
    AlreadyMountedVolume,
    /// Changing the ownership of a volume takes long.
    VolumePermissionChangeInProgress,
    /// The node can attach no more volumes of a driver.
    VolumeAttachmentLimitExceeded,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names of the variants are the words of the API.
        fmt::Debug::fmt(self, f)
    }
}
