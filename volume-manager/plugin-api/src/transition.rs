//! Transitions: the only changes of the actual state that operations report.

use std::path::PathBuf;
use std::sync::Arc;

use api::Bytes;
use api::error::ErrorClass;
use api::names::{OuterName, PluginName, PodUid};
use serde::{Deserialize, Serialize};

use crate::request::Mounted;
use crate::spec::Spec;

/// A change of one volume in the actual state.
///
/// Marks come before the risky call that they announce, results after it. The result of a failed step has only
/// the error's class: its consequence depends on the state before the step.
#[derive(Debug, Clone)]
pub enum Transition {
    /// The volume is attached, or does not have to be: it is added to the actual state.
    Attached {
        spec: Arc<Spec>,
        plugin: PluginName,
        /// Whether the volume has to be attached.
        attachable: bool,
        /// The device's path or attachment; empty if it is not known.
        device_path: String,
        /// The capacity of the claim, if it was looked up.
        claim_size: Option<Bytes>,
    },
    /// A mount found the volume attached; the state of a reconstructed volume may lack that.
    AttachmentFound,
    /// The volume is about to be staged.
    DeviceUncertain {
        /// The staging path or global map.
        path: PathBuf,
    },
    /// The volume is staged.
    DeviceMounted {
        /// The staging path or global map.
        path: PathBuf,
        /// The device's path or attachment; empty to keep the known one.
        device_path: String,
        /// The label it is mounted with; empty for none.
        selinux_label: String,
    },
    /// Staging has failed.
    DeviceFailed {
        /// The staging path or global map.
        path: PathBuf,
        class: ErrorClass,
        /// The label it was to be mounted with; empty for none.
        selinux_label: String,
    },
    /// The volume is about to be unstaged.
    DeviceUndoing,
    /// The volume is unstaged.
    DeviceUnmounted,
    /// The volume is about to be published for a pod.
    PodUncertain(PodRecord),
    /// The volume is published for a pod.
    PodMounted(PodRecord, Mounted),
    /// Publishing has failed.
    PodFailed(PodRecord, ErrorClass),
    /// The volume is about to be unpublished.
    PodUndoing(PodUid),
    /// The volume is unpublished.
    PodUnmounted(PodUid),
    /// The volume was expanded.
    Resized(Bytes),
    /// The driver refuses to expand the volume while it is in use: it is not asked again as long as the volume
    /// is on this node.
    ExpansionBlocked,
    /// Whether the expansion has failed for good.
    ExpansionFailed(bool),
    /// The volume has left the node: it is removed from the actual state.
    Detached,
}

impl Transition {
    /// The pod, for a pod's share of the volume.
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

/// A pod's share of a volume in the actual state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodRecord {
    pub pod: PodUid,
    pub spec: Arc<Spec>,
    /// The volume's names in the pod.
    pub outer: Vec<OuterName>,
    /// The supplemental group of the volume, as written in its annotation.
    pub gid: Option<String>,
    /// The SELinux label that it is mounted with; empty for none.
    pub selinux_label: String,
}
