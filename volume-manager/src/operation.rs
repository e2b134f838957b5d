//! Operations: what is done to one volume, in the background, one at a time per [`Key`].
//!
//! The reconciler decides what an [`Operation`] is and puts everything into it that the decision rested on.
//! An operation never reads the manager's books; it reports each thing it learns as a
//! [`Transition`] through its [`Mark`], and ends with success or with [`Failed`]. Its future may be dropped
//! at any await: what was marked until then is the truth, or on the safe side of it.

pub(crate) mod attach;
pub(crate) mod detach;
mod device;
pub mod executor;
mod expand;
pub mod key;
mod map;
mod mount;
pub mod pending;
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

/// Something to do to one volume.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Checks with the API that the volume is attached, and opens the books on it.
    Verify(Arc<VerifyAttached>),
    /// Attaches the volume to a node (controller only).
    Attach(Arc<AttachVolume>),
    /// Detaches the volume from a node (controller only).
    Detach(Arc<DetachVolume>),
    /// Makes the volume appear in a pod, staging it first if it has to be.
    Mount(Arc<MountVolume>),
    /// The same for a device.
    Map(Arc<MountVolume>),
    /// Takes the volume back from a pod.
    Unmount(Arc<UnmountVolume>),
    /// The same for a device.
    Unmap(Arc<UnmountVolume>),
    /// Takes the volume back from the node.
    UnmountDevice(Arc<UnmountDevice>),
    /// The same for a device.
    UnmapDevice(Arc<UnmountDevice>),
    /// Grows a volume that a pod uses.
    Expand(Arc<ExpandVolume>),
}

/// Checks that a volume is attached.
#[derive(Debug, Clone)]
pub struct VerifyAttached {
    pub volume: VolumeName,
    /// What the plugin is told about it.
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    /// Whether it has to be attached at all.
    pub attachable: bool,
    /// Whether its size is unknown and wanted.
    pub wants_size: bool,
}

/// Attaches a volume.
#[derive(Debug, Clone)]
pub struct AttachVolume {
    pub volume: VolumeName,
    /// What the plugin is told about it.
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    pub node: NodeName,
    /// The pods that wait for it, which are told.
    pub pods: Vec<Arc<Pod>>,
}

/// Detaches a volume.
#[derive(Debug, Clone)]
pub struct DetachVolume {
    pub volume: VolumeName,
    /// What the plugin is told about it; unknown after a restart if no pod has named it since.
    pub spec: Option<Arc<Spec>>,
    pub node: NodeName,
    /// Whether to ask the node's object once more that the volume is not in use.
    pub verify_safe: bool,
}

/// Mounts or maps a volume for a pod.
#[derive(Debug, Clone)]
pub struct MountVolume {
    pub volume: VolumeName,
    /// What the plugin is told about it.
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    pub pod: Arc<Pod>,
    /// The volume's names in the pod; at least one.
    pub outer: Vec<OuterName>,
    /// The supplemental group the volume brings along, as written.
    pub gid: Option<String>,
    /// The SELinux label to mount with; empty for none.
    pub selinux_label: String,
    /// How large it should be, for kinds that can limit themselves.
    pub size_limit: Option<Bytes>,
    /// Where its device is, as far as it is known; empty if it is not.
    pub device_path: String,
    /// Whether it has to be attached.
    pub attachable: bool,
    /// Whether the step per node is done, may be done, or is not.
    pub device: Before,
    /// Whether the step per pod is done, may be done, or is not.
    pub before: Before,
    /// Whether another pod has the volume, or may have it.
    pub used_elsewhere: bool,
    /// Whether growing it has failed for good on this node.
    pub expansion_failed: bool,
    /// Whether growing it must not be tried while it is in use.
    pub expansion_blocked: bool,
}

impl MountVolume {
    /// What the books say about the volume in this pod once it may be there.
    pub fn record(&self) -> PodRecord {
        PodRecord {
            pod: self.pod.uid(),
            spec: Arc::clone(&self.spec),
            outer: self.outer.clone(),
            gid: self.gid.clone(),
            selinux_label: self.selinux_label.clone(),
        }
    }
}

/// Unmounts or unmaps a volume of a pod.
#[derive(Debug, Clone)]
pub struct UnmountVolume {
    pub volume: VolumeName,
    pub plugin: PluginName,
    /// The pod, whose object may be gone.
    pub pod: PodUid,
    /// The volume's inner name.
    pub inner: SpecName,
    /// What the plugin is told about it, as far as it is known.
    pub spec: Option<Arc<Spec>>,
}

/// Takes a volume back from the node.
#[derive(Debug, Clone)]
pub struct UnmountDevice {
    pub volume: VolumeName,
    pub plugin: PluginName,
    /// What the plugin is told about it.
    pub spec: Arc<Spec>,
    /// Where its device is; may be empty, or the name of an attachment.
    pub device_path: String,
    /// Where the step per node was done.
    pub device_mount_path: PathBuf,
}

/// Grows a volume that a pod uses.
#[derive(Debug, Clone)]
pub struct ExpandVolume {
    pub volume: VolumeName,
    /// What the plugin is told about it, with its new size.
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    pub pod: Arc<Pod>,
    /// Where the volume is in the pod.
    pub mounted: Mounted,
    /// Where its device is; may be empty, or the name of an attachment.
    pub device_path: String,
    /// How large it should be.
    pub new_size: Bytes,
    /// How large it was.
    pub old_size: Bytes,
    /// Whether growing it has failed for good on this node.
    pub expansion_failed: bool,
}

/// Why an operation ended without success.
#[derive(Debug, thiserror::Error)]
#[error("{step} for volume \"{volume}\"")]
pub struct Failed {
    /// What failed, in the kubelet's words, such as `MountVolume.SetUp failed`.
    pub step: &'static str,
    /// The volume, as the message names it.
    pub volume: String,
    /// The reason of the event about it, if there is to be one.
    pub reason: Option<Reason>,
    /// Why.
    pub source: Failure,
}

impl Failed {
    /// A failure nobody is told about but the log.
    pub fn quiet(step: &'static str, volume: impl ToString, source: impl Into<Failure>) -> Self {
        Self { step, volume: volume.to_string(), reason: None, source: source.into() }
    }

    /// A failure the pod's events tell about.
    pub fn told(
        step: &'static str,
        reason: Reason,
        volume: impl ToString,
        source: impl Into<Failure>,
    ) -> Self {
        Self { step, volume: volume.to_string(), reason: Some(reason), source: source.into() }
    }

    /// All there is to say, as the kubelet writes it: with a blank before the colon.
    pub fn message(&self) -> String {
        self.saying(&self.source.chain())
    }

    /// The same without paths of the node: the text of the event.
    pub fn told_as(&self) -> String {
        self.saying(&self.source.told())
    }

    fn saying(&self, why: &str) -> String {
        format!("{} for volume \"{}\" : {why}", self.step, self.volume)
    }
}

impl Operation {
    /// The name that back-off, metrics and traces use.
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

    /// The volume it is about.
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

    /// The pod it is done for, if it is done for one.
    pub fn pod(&self) -> Option<PodUid> {
        match self {
            Self::Mount(mount) | Self::Map(mount) => Some(mount.pod.uid()),
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
