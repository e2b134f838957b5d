//! The context of an operation.

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

/// The number of an operation, counted from 1 by each manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub u64);

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Takes the reports of operations, in the order in which they arrive: the manager's queue.
///
/// Neither method waits. After the manager has ended, both drop their arguments.
pub trait ReportQueue: fmt::Debug + Send + Sync + 'static {
    /// Reports a transition of an operation. `done` gets the answer when the actual state has applied or refused it.
    fn report(
        &self,
        operation: OperationId,
        transition: Transition,
        done: oneshot::Sender<Result<(), Withdrawn>>,
    );

    /// Emits a Kubernetes event about an object.
    fn emit(&self, event: EmittedEvent);
}

/// The context of an operation. Clones share everything.
#[derive(Debug, Clone)]
pub struct OperationContext {
    /// The node's kernel and file systems.
    pub host: Arc<dyn Host>,
    pub api: Arc<dyn ApiSource>,
    pub clock: Arc<dyn Clock>,
    pub dialer: Arc<dyn Dialer>,
    /// Runs mount tools in containers, if that is possible.
    pub containers: Option<Arc<dyn Containers>>,
    /// The paths below the root directory.
    pub paths: Arc<Paths>,
    pub config: Arc<Config>,
    pub events: EventSink,
    /// Reports to the actual state.
    pub mark: Mark,
    /// Facts about the node, drivers and attachments, as they change.
    pub facts: watch::Receiver<Arc<Facts>>,
}

impl OperationContext {
    /// The present facts about the node, drivers and attachments.
    pub fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.facts.borrow())
    }

    /// This context, with the mount tools of a plugin running in the container that is registered for it. Each
    /// operation looks the container up again: a registration may appear or vanish.
    pub async fn for_plugin(&self, plugin: &PluginName) -> Result<Self, Failure> {
        let mut context = self.clone();
        if let Some(containers) = &self.containers {
            let host = exec::host_for(&self.host, containers, self.paths.root(), plugin.as_str()).await;
            // Transient, because no mount was tried: the state of the volume stays.
            context.host = host.map_err(|error| Failure::from(error).with_class(ErrorClass::Transient))?;
        }
        Ok(context)
    }
}

/// Reports what one operation learns about its volume.
///
/// Each asynchronous method returns when the actual state has applied the report. After the manager has ended none of them
/// returns, so that the operation has no further effect. The others are for the last report: the end of the operation comes
/// after it in the same queue, so both are taken in at once.
#[derive(Debug, Clone)]
pub struct Mark {
    volume: VolumeName,
    operation: OperationId,
    /// The record of the pod, for a mount or map.
    record: Option<Arc<PodRecord>>,
    queue: Arc<dyn ReportQueue>,
}

impl Mark {
    /// The mark of one operation. Only mounts and maps have a record.
    pub fn new(
        volume: VolumeName,
        operation: OperationId,
        record: Option<PodRecord>,
        queue: Arc<dyn ReportQueue>,
    ) -> Self {
        Self { volume, operation, record: record.map(Arc::new), queue }
    }

    pub fn volume(&self) -> &VolumeName {
        &self.volume
    }

    /// Reports that the volume is about to be staged. Refused if no pod wants the volume any more.
    pub async fn device_uncertain(&self, path: impl Into<PathBuf>) -> Result<(), Withdrawn> {
        self.report(Transition::DeviceUncertain { path: path.into() }).await
    }

    /// Reports that the volume is staged. An empty `device_path` keeps the known one.
    pub async fn device_mounted(
        &self,
        path: impl Into<PathBuf>,
        device_path: impl Into<String>,
        selinux_label: impl Into<String>,
    ) {
        let (path, device_path) = (path.into(), device_path.into());
        let selinux_label = selinux_label.into();
        self.apply(Transition::DeviceMounted { path, device_path, selinux_label }).await;
    }

    /// Reports that staging has failed.
    pub async fn device_failed(
        &self,
        path: impl Into<PathBuf>,
        class: ErrorClass,
        selinux_label: impl Into<String>,
    ) {
        let (path, selinux_label) = (path.into(), selinux_label.into());
        self.apply(Transition::DeviceFailed { path, class, selinux_label }).await;
    }

    /// Reports that the volume is about to be unstaged.
    pub async fn device_unstaging(&self) {
        self.apply(Transition::DeviceUndoing).await;
    }

    /// Reports that the volume is unstaged.
    pub fn device_unmounted(&self) {
        self.last(Transition::DeviceUnmounted);
    }

    /// Reports that the volume is about to be published. Refused if the pod no longer wants the volume. Only
    /// mounts and maps may call `pod_uncertain`, `pod_mounted` and `pod_failed`.
    pub async fn pod_uncertain(&self) -> Result<(), Withdrawn> {
        self.report(Transition::PodUncertain(self.record())).await
    }

    /// Reports that the volume is published.
    pub fn pod_mounted(&self, mounted: Mounted) {
        self.last(Transition::PodMounted(self.record(), mounted));
    }

    /// Reports that publishing has failed.
    pub async fn pod_failed(&self, class: ErrorClass) {
        self.apply(Transition::PodFailed(self.record(), class)).await;
    }

    fn record(&self) -> PodRecord {
        let record = self.record.as_deref();
        record.expect("only mounts and maps report that a pod has its volume").clone()
    }

    /// Reports that the volume is about to be unpublished.
    pub async fn pod_undoing(&self, pod: &PodUid) {
        self.apply(Transition::PodUndoing(pod.clone())).await;
    }

    /// Reports that the volume is unpublished.
    pub fn pod_unmounted(&self, pod: &PodUid) {
        self.last(Transition::PodUnmounted(pod.clone()));
    }

    /// Reports the last transition of an operation, and ignores a refusal.
    pub fn last(&self, transition: Transition) {
        self.queue.report(self.operation, transition, oneshot::channel().0);
    }

    /// Reports a transition and ignores a refusal.
    pub async fn apply(&self, transition: Transition) {
        // The marks before a risky call return their refusal and do not come here. Of the other transitions only an
        // attachment can be refused, and that is verified again.
        let _ = self.report(transition).await;
    }

    async fn report(&self, transition: Transition) -> Result<(), Withdrawn> {
        let (done, applied) = oneshot::channel();
        self.queue.report(self.operation, transition, done);
        match applied.await {
            Ok(answer) => answer,
            // The manager has ended, so no actual state would hold further effects: the operation stops here.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Emits Kubernetes events in order, and without a wait.
#[derive(Debug, Clone)]
pub struct EventSink {
    queue: Arc<dyn ReportQueue>,
}

impl EventSink {
    /// A sink that hands events to the manager.
    pub fn new(queue: Arc<dyn ReportQueue>) -> Self {
        Self { queue }
    }

    /// Emits an event about an object.
    pub fn emit(&self, about: Reference, severity: Severity, reason: Reason, message: impl Into<String>) {
        self.queue.emit(EmittedEvent { about, severity, reason, message: message.into() });
    }

    /// Emits a warning about a pod.
    pub fn warn_pod(&self, pod: &Pod, reason: Reason, message: impl Into<String>) {
        self.emit(Reference::to(Kind::Pod, &pod.meta), Severity::Warning, reason, message);
    }

    /// Emits a normal event about a pod.
    pub fn tell_pod(&self, pod: &Pod, reason: Reason, message: impl Into<String>) {
        self.emit(Reference::to(Kind::Pod, &pod.meta), Severity::Normal, reason, message);
    }
}

/// A Kubernetes event before it is written to the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmittedEvent {
    pub about: Reference,
    pub severity: Severity,
    /// The kind of event, as programs compare it.
    pub reason: Reason,
    pub message: String,
}

/// The reasons of events; they are the kubelet's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// A volume could not be mounted.
    FailedMount,
    /// A block volume could not be mapped.
    FailedMapVolume,
    /// A block volume was mapped.
    SuccessfulMountVolume,
    /// A volume could not be attached.
    FailedAttachVolume,
    /// A volume was attached.
    SuccessfulAttachVolume,
    /// A volume could not be expanded.
    VolumeResizeFailed,
    /// A volume was expanded on the node.
    FileSystemResizeSuccessful,
    /// A file system could not be expanded.
    FileSystemResizeFailed,
    /// A device has another file system than the volume names.
    FailedMountOnFilesystemMismatch,
    /// The volume is mounted already, for a pod with another group.
    AlreadyMountedVolume,
    /// Changing the ownership of a volume takes long.
    VolumePermissionChangeInProgress,
    /// The node can attach no more volumes of a driver.
    VolumeAttachmentLimitExceeded,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variants are named as in the API.
        fmt::Debug::fmt(self, f)
    }
}
