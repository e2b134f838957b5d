//! One volume in the book of what is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use api::Bytes;
use api::names::{PluginName, PodUid};
use plugin_api::{Before, Mounted, PodRecord, Spec};

/// A volume this node has or may have.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeRecord {
    /// What the plugin is told about it. Of the first pod that brought it, or rebuilt from disk.
    pub spec: Arc<Spec>,
    pub plugin: PluginName,
    /// Whether the controller attached it.
    pub attachability: Attachability,
    /// The step per node.
    pub device: Device,
    /// Where its device is or, for CSI, the name of its attachment; empty if unknown. Kept until the record
    /// goes.
    pub device_path: String,
    /// How large it is; zero if unknown.
    pub size: Bytes,
    /// Whether the driver refused to grow it while it is in use.
    pub expansion_blocked: bool,
    /// The SELinux label it was mounted with, empty for none; `None` if no pod has had it yet.
    pub selinux_label: Option<String>,
    pub pods: BTreeMap<PodUid, PodEntry>,
}

/// Whether a volume has to be attached by the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachability {
    /// It has, and was.
    Yes,
    /// It has not.
    No,
    /// It was learned from disk, which does not say.
    Unknown,
}

/// The step per node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// It is not done.
    NotMounted,
    /// An operation is trying it for the first time. If it fails for certain, it was never done.
    Attempted {
        /// Where.
        at: PathBuf,
    },
    /// It may be done: an attempt was cut short, or its undo failed.
    Uncertain {
        /// Where.
        at: PathBuf,
    },
    /// It is done.
    Mounted {
        /// Where.
        at: PathBuf,
    },
}

/// A volume in a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodEntry {
    /// What the pod has, or may have.
    pub record: PodRecord,
    /// Whether it has it.
    pub mount: PodMount,
    /// Whether it is to be brought up to date.
    pub needs_remount: bool,
    /// Whether it was learned from disk and has not been confirmed since.
    pub reconstructed: bool,
}

/// Whether a pod has a volume. One that does not has no entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodMount {
    /// An operation is trying it for the first time. If it fails for certain, it was never done.
    Attempted,
    /// It may have it: an attempt was cut short, or its undo failed.
    Uncertain,
    /// It has it.
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
            pods: BTreeMap::new(),
        }
    }

    pub(super) fn set_unknown_size(&mut self, size: Bytes) {
        if self.size.is_zero() {
            self.size = size;
        }
    }

    /// Whether it should be grown: both sizes are known, and the driver has not refused.
    pub(crate) fn is_smaller_than(&self, wanted: Bytes) -> bool {
        !self.expansion_blocked && !self.size.is_zero() && wanted > self.size
    }

    /// Whether the controller attached it, as far as it is known.
    pub fn is_attached(&self) -> bool {
        self.attachability == Attachability::Yes
    }

    /// Whether it was read back without an attachment, and nobody certainly uses it: it is to be attached before
    /// anybody does again.
    pub fn has_lost_attachment(&self) -> bool {
        let staged = matches!(self.device, Device::Mounted { .. });
        let used = staged || self.pods.values().any(|entry| entry.mounted().is_some());
        self.attachability == Attachability::No && !used
    }

    /// Whether another pod than this one has it, or may have it.
    pub fn is_used_elsewhere(&self, pod: &PodUid) -> bool {
        self.pods.keys().any(|other| other != pod)
    }
}

impl Device {
    /// Where it is done, or may be.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::NotMounted => None,
            Self::Attempted { at } | Self::Uncertain { at } | Self::Mounted { at } => Some(at),
        }
    }

    /// The same for an operation that is about to begin.
    pub fn before(&self) -> Before {
        match self {
            Self::NotMounted => Before::Absent,
            Self::Attempted { .. } | Self::Uncertain { .. } => Before::Uncertain,
            Self::Mounted { .. } => Before::Mounted,
        }
    }
}

impl PodEntry {
    /// What the pod has, if it certainly has it.
    pub fn mounted(&self) -> Option<&Mounted> {
        match &self.mount {
            PodMount::Mounted(mounted) => Some(mounted),
            PodMount::Attempted | PodMount::Uncertain => None,
        }
    }
}

/// The words of the recordings.
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
