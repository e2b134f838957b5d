//! The record of one volume in the actual state.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use api::Bytes;
use api::names::{PluginName, PodUid};
use plugin_api::{Before, Mounted, PodRecord, Spec};

use crate::few::Few;

/// A volume that is or may be on this node.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeRecord {
    /// The spec from the first pod that wanted the volume, or reconstructed from disk.
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    /// Whether the volume is attached by the attach/detach controller.
    pub attachability: Attachability,
    /// Whether the volume is staged (filesystem) or set up below its global map (block).
    pub device: Device,
    /// The device's path or, for CSI, the name of the attachment; empty if unknown. Kept as long as the record.
    pub device_path: String,
    /// The size; zero if unknown.
    pub size: Bytes,
    /// Whether the driver has refused to expand the volume while it is in use.
    pub expansion_blocked: bool,
    /// The SELinux label that the volume is mounted with, empty for none; `None` if no pod has set it yet.
    pub selinux_label: Option<String>,
    pub pods: Few<PodUid, PodEntry>,
}

/// Whether a volume is attached by the attach/detach controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachability {
    /// The volume has to be attached, and is.
    Yes,
    /// The volume does not have to be attached, or is not.
    No,
    /// Unknown: it was reconstructed from disk and not compared with the node's object yet.
    Unknown,
}

/// Whether a volume is staged on this node, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// Not staged.
    NotMounted,
    /// An operation stages the volume for the first time. After a final error it is not staged.
    Attempted {
        /// The staging path or global map.
        at: PathBuf,
    },
    /// The volume may be staged: an attempt was interrupted, or an unstage has failed.
    Uncertain {
        /// The staging path or global map.
        at: PathBuf,
    },
    /// Staged.
    Mounted {
        /// The staging path or global map.
        at: PathBuf,
    },
}

/// The entry of a pod in a volume's record.
#[derive(Debug, Clone, PartialEq)]
pub struct PodEntry {
    /// The parameters of the mount.
    pub record: PodRecord,
    /// Whether the volume is mounted for the pod.
    pub mount: PodMount,
    /// Whether the mount has to be updated.
    pub needs_remount: bool,
    /// Whether the entry was reconstructed from disk and no operation has confirmed it since.
    pub reconstructed: bool,
}

/// The mount of a volume for a pod. A pod without one has no entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodMount {
    /// An operation mounts the volume for the first time. After a final error it is not mounted.
    Attempted,
    /// The volume may be mounted: an attempt was interrupted, or an unmount has failed.
    Uncertain,
    Mounted(Mounted),
}

impl VolumeRecord {
    pub(super) fn new(
        spec: Arc<Spec>,
        plugin: PluginName,
        attachability: Attachability,
        device_path: String,
    ) -> Self {
        Self {
            spec,
            plugin,
            attachability,
            device: Device::NotMounted,
            device_path,
            size: Bytes::default(),
            expansion_blocked: false,
            selinux_label: None,
            pods: Few::default(),
        }
    }

    pub(super) fn set_size_if_unknown(&mut self, size: Bytes) {
        if self.size.is_zero() {
            self.size = size;
        }
    }

    /// Whether the volume has to be expanded to this size: its own size is known, and the driver has not refused.
    pub(crate) fn must_grow_to(&self, wanted: Bytes) -> bool {
        !self.expansion_blocked && !self.size.is_zero() && wanted > self.size
    }

    /// Whether the volume is known to be attached.
    pub fn is_attached(&self) -> bool {
        self.attachability == Attachability::Yes
    }

    /// Whether the volume must be attached before it is mounted again: it was reconstructed, the node's object does not list
    /// it as attached, and no mount of it is certain.
    pub fn has_lost_attachment(&self) -> bool {
        let staged = matches!(self.device, Device::Mounted { .. });
        let used = staged || self.pods.values().any(|entry| entry.mounted().is_some());
        self.attachability == Attachability::No && !used
    }

    /// Whether another pod has or may have the volume.
    pub fn is_used_by_another_pod(&self, pod: &PodUid) -> bool {
        self.pods.keys().any(|other| other != pod)
    }
}

impl Device {
    /// The path at which the volume is or may be staged.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::NotMounted => None,
            Self::Attempted { at } | Self::Uncertain { at } | Self::Mounted { at } => Some(at),
        }
    }

    /// The state for an operation that is about to begin.
    pub fn before(&self) -> Before {
        match self {
            Self::NotMounted => Before::Absent,
            Self::Attempted { .. } | Self::Uncertain { .. } => Before::Uncertain,
            Self::Mounted { .. } => Before::Mounted,
        }
    }
}

impl PodEntry {
    /// The mount, if it is certain.
    pub fn mounted(&self) -> Option<&Mounted> {
        match &self.mount {
            PodMount::Mounted(mounted) => Some(mounted),
            PodMount::Attempted | PodMount::Uncertain => None,
        }
    }
}

/// The text that recordings use.
impl fmt::Display for VolumeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.device {
            Device::NotMounted => "DeviceNotMounted",
            Device::Attempted { .. } | Device::Uncertain { .. } => "DeviceMountUncertain",
            Device::Mounted { .. } => "DeviceGloballyMounted",
        };
        let attachable = self.attachability == Attachability::Yes;
        let path = self.device.path().map(|path| path.display().to_string()).unwrap_or_default();
        let device = &self.device_path;
        write!(f, "{state} attachable={attachable} devicePath=\"{device}\" deviceMountPath=\"{path}\"")
    }
}

impl fmt::Display for PodMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attempted | Self::Uncertain => "VolumeMountUncertain",
            Self::Mounted(_) => "VolumeMounted",
        })
    }
}
