//! What an operation can learn about its volume: the only things that change the actual state.

use std::path::PathBuf;
use std::sync::Arc;

use api::Bytes;
use api::error::ErrorClass;
use api::names::{OuterName, PluginName, PodUid};
use serde::{Deserialize, Serialize};

use crate::request::Mounted;
use crate::spec::Spec;

/// Something learned about one volume.
///
/// Marks come before what they announce, and results after it; the result of a failed step says only which
/// class of error it was, because what follows from that depends on what was known before the step.
#[derive(Debug, Clone)]
pub enum Transition {
    /// The volume is attached, or does not have to be: the books are opened on it.
    Attached {
        /// What the plugin is told about it.
        spec: Arc<Spec>,
        plugin: PluginName,
        /// Whether it has to be attached.
        attachable: bool,
        /// Where its device is; empty if that is not known.
        device_path: String,
        /// What its claim could hold, if that was asked.
        claim_size: Option<Bytes>,
    },
    /// A mount has found the volume attached, which what was read back may not say.
    AttachmentFound,
    /// The step per node is about to be risked.
    DeviceUncertain {
        /// Where it is done.
        path: PathBuf,
    },
    /// The step per node is done.
    DeviceMounted {
        /// Where it was done.
        path: PathBuf,
        /// Where the device is; empty to keep what is known.
        device_path: String,
        /// The label it was mounted with; empty for none.
        selinux_label: String,
    },
    /// The step per node ended with an error.
    DeviceFailed {
        /// Where it was to be done.
        path: PathBuf,
        /// What the error says.
        class: ErrorClass,
        /// The label it was to be mounted with; empty for none.
        selinux_label: String,
    },
    /// The step per node is about to be undone.
    DeviceUndoing,
    /// The step per node is undone.
    DeviceUnmounted,
    /// The step per pod is about to be risked.
    PodUncertain(PodRecord),
    /// The step per pod is done.
    PodMounted(PodRecord, Mounted),
    /// The step per pod ended with an error.
    PodFailed(PodRecord, ErrorClass),
    /// The step per pod is about to be undone.
    PodUndoing(PodUid),
    /// The step per pod is undone.
    PodUnmounted(PodUid),
    /// The volume has grown.
    Resized(Bytes),
    /// The driver refused to grow the volume while it is in use: never ask again while it is on this node.
    ExpansionBlocked,
    /// Growing the volume failed for good, or no longer does.
    ExpansionFailed(bool),
    /// The volume has left the node: the books on it are closed.
    Detached,
}

impl Transition {
    /// The pod it is about, if it is about one.
    pub fn pod(&self) -> Option<&PodUid> {
        match self {
            Self::PodUncertain(record) | Self::PodMounted(record, _) | Self::PodFailed(record, _) => {
                Some(&record.pod)
            }
            Self::PodUndoing(pod) | Self::PodUnmounted(pod) => Some(pod),
            Self::Attached { .. }
            | Self::AttachmentFound
            | Self::DeviceUncertain { .. }
            | Self::DeviceMounted { .. }
            | Self::DeviceFailed { .. }
            | Self::DeviceUndoing
            | Self::DeviceUnmounted
            | Self::Resized(_)
            | Self::ExpansionBlocked
            | Self::ExpansionFailed(_)
            | Self::Detached => None,
        }
    }
}

/// What the books hold about a volume in one pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodRecord {
    pub pod: PodUid,
    /// What the plugin was told.
    pub spec: Arc<Spec>,
    /// The volume's names in the pod.
    pub outer: Vec<OuterName>,
    /// The supplemental group the volume brings along, as written.
    pub gid: Option<String>,
    /// The SELinux label it was mounted with; empty for none.
    pub selinux_label: String,
}
