//! Requests to plugins, and their results.

use std::path::PathBuf;
use std::sync::Arc;

use api::error::ErrorClass;
use api::names::{OuterName, PodUid, SpecName};
use api::{Bytes, Pod};
use host::HostError;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::spec::Spec;

/// Mount the volume for a pod.
#[derive(Debug, Clone)]
pub struct SetUp {
    pub spec: Arc<Spec>,
    pub pod: Arc<Pod>,
    /// The first of the volume's names in the pod.
    pub outer: OuterName,
    /// The device's path or, for CSI, the name of the attachment; empty if it is not attached.
    pub device_path: String,
    /// The user that all containers run as.
    pub user: Option<u32>,
    /// The group that the volume's files are given to.
    pub group: Option<u32>,
    /// Whether nothing is changed if the root directory has that group already.
    pub group_on_root_mismatch: bool,
    /// The size limit, for plugins that can enforce one.
    pub size_limit: Option<Bytes>,
    /// The SELinux label to mount with; empty for none.
    pub selinux_label: String,
    /// The state of the pod's mount. After any failure, a mount that may exist keeps its directory and record.
    pub before: Before,
}

/// The state of a mount or stage when an operation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Before {
    Absent,
    /// The mount may exist.
    Uncertain,
    /// The mount exists and only has to be updated.
    Mounted,
}

/// The result of cleaning up after a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// Nothing of the call is left.
    Complete,
    /// The call had its effect although it answered an error: only its undo can remove that.
    Needed,
}

impl Before {
    /// Cleans up after a failed attempt, unless the attempt or an earlier one may have left something that
    /// needs the directories and the record. If the call had its effect, or something cannot be removed, the
    /// failure becomes uncertain, so that the step is undone later: nothing else would remember it.
    ///
    /// The kubelet cleans up after every final error, and forgets what it could not remove and what the driver
    /// has done. An earlier attempt with an unknown outcome may have succeeded without a mount to show for it,
    /// and its undo needs the record.
    pub async fn tidy(
        self,
        failure: Failure,
        removal: impl Future<Output = Result<Undo, HostError>>,
    ) -> Failure {
        if self != Self::Absent || failure.class() == ErrorClass::Uncertain {
            return failure;
        }
        match removal.await {
            Ok(Undo::Complete) => failure,
            Ok(Undo::Needed) => {
                tracing::warn!(
                    "a failed call had its effect; the volume is uncertain and the call will be undone"
                );
                failure.with_class(ErrorClass::Uncertain)
            }
            Err(error) => {
                let error = api::error::chain(&error);
                tracing::warn!(
                    error,
                    "cannot clean up after a failed attempt; the volume is uncertain and the attempt will be undone"
                );
                failure.with_class(ErrorClass::Uncertain)
            }
        }
    }
}

/// A mounted volume, as the container runtime needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// The directory, or the symlink to the device.
    pub path: PathBuf,
    /// Whether containers may not write to it.
    pub read_only: bool,
    /// Whether the node may change its ownership.
    pub managed: bool,
    /// Whether the runtime has to label its files.
    pub selinux_relabel: bool,
}

/// Unmount the volume from a pod.
#[derive(Debug, Clone)]
pub struct TearDown {
    /// The pod; its object may be deleted.
    pub pod: PodUid,
    /// The name of the PersistentVolume or pod volume.
    pub inner: SpecName,
    /// The volume's spec; `None` if it is not known.
    pub spec: Option<Arc<Spec>>,
}

/// Stage the volume.
#[derive(Debug, Clone)]
pub struct MountDevice {
    pub spec: Arc<Spec>,
    /// The device's path or, for CSI, the name of the attachment; empty if it is not attached.
    pub device_path: String,
    /// The staging path.
    pub path: PathBuf,
    /// The group of the pod that the volume is staged for first.
    pub group: Option<u32>,
    /// The SELinux label to mount with; empty for none.
    pub selinux_label: String,
    /// The state of the stage. After any failure, a stage that may exist keeps its directory and record.
    pub before: Before,
}

/// Map a block volume for a pod.
#[derive(Debug, Clone)]
pub struct MapDevice {
    pub spec: Arc<Spec>,
    pub pod: Arc<Pod>,
    /// The device's path or, for CSI, the name of the attachment; empty if it is not attached.
    pub device_path: String,
    /// The state of the stage.
    pub device_before: Before,
    /// The state of the pod's map.
    pub before: Before,
}

/// Expand a volume on the node.
#[derive(Debug, Clone)]
pub struct Expand {
    pub spec: Arc<Spec>,
    pub new_size: Bytes,
    pub old_size: Bytes,
    /// The pod's mount, or the device.
    pub volume_path: PathBuf,
    /// The device's path or, for CSI, the name of the attachment.
    pub device_path: String,
    /// The staging path; empty if it is not staged.
    pub staging_path: PathBuf,
}
