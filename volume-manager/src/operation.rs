//! Operations: the work on one volume, in the background, one at a time per [`Key`].
//!
//! The reconciler builds an [`Operation`] and puts everything into it that the decision was based on. An
//! operation never reads the manager's state. It reports each thing it learns as a [`Transition`](plugin_api::Transition) through its
//! [`Mark`](plugin_api::Mark), and ends with success or with [`Failed`]. Its future may be dropped at any await: what it has
//! reported until then is true, or uncertain.

pub(crate) mod attach;
pub(crate) mod detach;
mod device;
mod expand;
pub mod key;
mod map;
mod mount;
pub mod pending;
mod run;
mod unmap;
mod unmount;
pub mod verify;

use std::path::PathBuf;
use std::sync::Arc;

use api::names::{NodeName, OuterName, PluginName, PodUid, SpecName, VolumeName};
use api::{Bytes, Pod};
use plugin_api::error::Failure;
use plugin_api::{Before, Mounted, PodRecord, Reason, Spec};

pub(crate) use expand::NODE_RESIZE_PENDING;
pub use key::{Key, OperationName};
pub(crate) use run::run;

/// An operation on one volume.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Checks with the API that the volume is attached, and adds it to the actual state.
    Verify(Arc<VerifyAttached>),
    /// Attaches the volume to a node (attach/detach controller only).
    Attach(Arc<AttachVolume>),
    /// Detaches the volume from a node (attach/detach controller only).
    Detach(Arc<DetachVolume>),
    /// Mounts a filesystem volume for a pod: stages it if needed, then publishes it.
    Mount(Arc<MountVolume>),
    /// Maps a block volume into a pod.
    Map(Arc<MountVolume>),
    /// Unmounts a filesystem volume from a pod.
    Unmount(Arc<UnmountVolume>),
    /// Unmaps a block volume from a pod.
    Unmap(Arc<UnmountVolume>),
    /// Unmounts a filesystem volume from the node (unstage).
    UnmountDevice(Arc<UnmountDevice>),
    /// Removes a block volume from the node.
    UnmapDevice(Arc<UnmountDevice>),
    /// Expands a volume that a pod uses.
    Expand(Arc<ExpandVolume>),
}

/// Parameters of [`Operation::Verify`].
#[derive(Debug, Clone)]
pub struct VerifyAttached {
    pub volume: VolumeName,
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    /// Whether the volume has to be attached.
    pub attachable: bool,
    /// Whether the size of the volume's claim is to be looked up.
    pub wants_size: bool,
}

/// Parameters of [`Operation::Attach`].
#[derive(Debug, Clone)]
pub struct AttachVolume {
    pub volume: VolumeName,
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    pub node: NodeName,
    /// The pods that wait for the volume; each gets an event.
    pub pods: Vec<Arc<Pod>>,
}

/// Parameters of [`Operation::Detach`].
#[derive(Debug, Clone)]
pub struct DetachVolume {
    pub volume: VolumeName,
    /// `None` after a restart, until a pod names the volume.
    pub spec: Option<Arc<Spec>>,
    pub node: NodeName,
    /// Whether to read the node's object again before, and to fail if it lists the volume as in use.
    pub verify_safe: bool,
}

/// Parameters of [`Operation::Mount`] and [`Operation::Map`].
#[derive(Debug, Clone)]
pub struct MountVolume {
    pub volume: VolumeName,
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    pub pod: Arc<Pod>,
    /// The pod's, with the text that the books have.
    pub uid: PodUid,
    /// The volume's names in the pod; at least one.
    pub outer: Vec<OuterName>,
    /// The supplemental group of the volume, as written in its annotation.
    pub gid: Option<String>,
    /// The SELinux label to mount with; empty for none.
    pub selinux_label: String,
    /// The size limit, for plugins that can enforce one.
    pub size_limit: Option<Bytes>,
    /// The device's path, or the name of an attachment; empty if not known.
    pub device_path: String,
    /// Whether the volume has to be attached.
    pub attachable: bool,
    /// Whether the volume is staged, may be, or is not.
    pub device: Before,
    /// Whether the volume is published for the pod, may be, or is not.
    pub before: Before,
    /// Whether another pod has or may have the volume.
    pub used_elsewhere: bool,
    /// Whether an expansion has failed for good on this node.
    pub expansion_failed: bool,
    /// Whether the volume must not be expanded while it is in use.
    pub expansion_blocked: bool,
}

impl MountVolume {
    /// The actual state's record of the volume in this pod, once it may be mounted.
    pub fn record(&self) -> PodRecord {
        PodRecord {
            pod: self.uid.clone(),
            spec: Arc::clone(&self.spec),
            outer: self.outer.clone(),
            gid: self.gid.clone(),
            selinux_label: self.selinux_label.clone(),
        }
    }
}

/// Parameters of [`Operation::Unmount`] and [`Operation::Unmap`].
#[derive(Debug, Clone)]
pub struct UnmountVolume {
    pub volume: VolumeName,
    pub plugin: PluginName,
    /// The pod; its object may be deleted.
    pub pod: PodUid,
    /// The name of the PersistentVolume or pod volume.
    pub inner: SpecName,
    /// `None` if it is not known.
    pub spec: Option<Arc<Spec>>,
}

/// Parameters of [`Operation::UnmountDevice`] and [`Operation::UnmapDevice`].
#[derive(Debug, Clone)]
pub struct UnmountDevice {
    pub volume: VolumeName,
    pub plugin: PluginName,
    pub spec: Arc<Spec>,
    /// The device's path, or the name of an attachment; may be empty.
    pub device_path: String,
    /// The staging path or global map.
    pub device_mount_path: PathBuf,
}

/// Parameters of [`Operation::Expand`].
#[derive(Debug, Clone)]
pub struct ExpandVolume {
    pub volume: VolumeName,
    /// The spec with the new size.
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    pub pod: Arc<Pod>,
    /// The mount for the pod.
    pub mounted: Mounted,
    /// The device's path, or the name of an attachment; may be empty.
    pub device_path: String,
    pub new_size: Bytes,
    pub old_size: Bytes,
    /// Whether an expansion has failed for good on this node.
    pub expansion_failed: bool,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[error("{step} for volume \"{volume}\"")]
pub struct Failed {
    /// The failed step, in the kubelet's words, such as `MountVolume.SetUp failed`.
    pub step: &'static str,
    /// The volume's name in the message.
    pub volume: String,
    /// The reason of the Kubernetes event, if one is emitted.
    pub reason: Option<Reason>,
    pub source: Failure,
}

impl Failed {
    /// A failure that is logged and emits no Kubernetes event.
    pub fn quiet(step: &'static str, volume: impl ToString, source: impl Into<Failure>) -> Self {
        Self { step, volume: volume.to_string(), reason: None, source: source.into() }
    }

    /// A failure that also emits a Kubernetes event about the pod.
    pub fn with_event(
        step: &'static str,
        reason: Reason,
        volume: impl ToString,
        source: impl Into<Failure>,
    ) -> Self {
        Self { step, volume: volume.to_string(), reason: Some(reason), source: source.into() }
    }

    /// The full message, in the kubelet's form with a blank before the colon.
    pub fn message(&self) -> String {
        self.saying(&self.source.chain())
    }

    /// The message without paths of the node, for the Kubernetes event.
    pub fn event_message(&self) -> String {
        self.saying(&self.source.user_message())
    }

    fn saying(&self, why: &str) -> String {
        format!("{} for volume \"{}\" : {why}", self.step, self.volume)
    }
}

impl Operation {
    /// The name in back-offs, metrics and traces.
    pub fn name(&self) -> OperationName {
        match self {
            Self::Verify(_) => OperationName::Verify,
            Self::Attach(_) => OperationName::Attach,
            Self::Detach(_) => OperationName::Detach,
            Self::Mount(_) => OperationName::Mount,
            Self::Map(_) => OperationName::Map,
            Self::Unmount(_) => OperationName::Unmount,
            Self::Unmap(_) => OperationName::Unmap,
            Self::UnmountDevice(_) => OperationName::UnmountDevice,
            Self::UnmapDevice(_) => OperationName::UnmapDevice,
            Self::Expand(_) => OperationName::Expand,
        }
    }

    pub fn volume(&self) -> &VolumeName {
        match self {
            Self::Verify(verify) => &verify.volume,
            Self::Attach(attach) => &attach.volume,
            Self::Detach(detach) => &detach.volume,
            Self::Mount(mount) | Self::Map(mount) => &mount.volume,
            Self::Unmount(unmount) | Self::Unmap(unmount) => &unmount.volume,
            Self::UnmountDevice(device) | Self::UnmapDevice(device) => &device.volume,
            Self::Expand(expand) => &expand.volume,
        }
    }

    /// The pod, for an operation on a pod's share of the volume.
    pub fn pod(&self) -> Option<PodUid> {
        match self {
            Self::Mount(mount) | Self::Map(mount) => Some(mount.uid.clone()),
            Self::Unmount(unmount) | Self::Unmap(unmount) => Some(unmount.pod.clone()),
            Self::Expand(expand) => Some(expand.pod.uid()),
            Self::Verify(_)
            | Self::Attach(_)
            | Self::Detach(_)
            | Self::UnmountDevice(_)
            | Self::UnmapDevice(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
