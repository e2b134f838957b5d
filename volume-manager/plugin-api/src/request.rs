//! Requests to plugins, and what they return.

use std::path::PathBuf;
use std::sync::Arc;

use api::error::ErrorClass;
use api::names::{OuterName, PodUid, SpecName};
use api::{Bytes, Pod};
use host::HostError;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::spec::Spec;

/// Makes the volume appear for a pod.
#[derive(Debug, Clone)]
pub struct SetUp {
    /// The volume.
    pub spec: Arc<Spec>,
    pub pod: Arc<Pod>,
    /// The volume's name in the pod, the first if it has several.
    pub outer: OuterName,
    /// Where its device is or, for CSI, the name of its attachment; empty if it is not attached.
    pub device_path: String,
    /// The user that all containers run as.
    pub user: Option<u32>,
    /// The group the volume is given to.
    pub group: Option<u32>,
    /// Whether a volume whose root already has the group is left alone.
    pub group_on_root_mismatch: bool,
    /// How large it should be, for kinds that can limit themselves.
    pub size_limit: Option<Bytes>,
    /// The SELinux label to mount with; empty for none.
    pub selinux_label: String,
    /// What is known of the volume in this pod. Whatever fails, a mount that may exist keeps its directory
    /// and its record.
    pub before: Before,
}

/// What is known of a volume in a pod when an operation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Before {
    /// It is not there.
    Absent,
    /// It may be there.
    Uncertain,
    /// It is there, and is only to be brought up to date.
    Mounted,
}

/// What clearing up after a failed call has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// Nothing of the call is left.
    Complete,
    /// The call has had its effect although it answered an error: only the call that undoes it can take that away.
    Needed,
}

impl Before {
    /// Removes what was made for a failed attempt, unless the attempt or an earlier one may have left something
    /// that needs it. If the driver's effect shows, or something cannot be removed, the outcome is uncertain, so
    /// that the step is undone: nothing else would remember it.
    ///
    /// The kubelet removes after any final error, and forgets what it could not remove and what the driver has done.
    /// An earlier attempt with an open outcome may have worked without a mount to show for it, and its undo needs
    /// the record.
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
                tracing::warn!("a failed call has had its effect; it will be undone");
                failure.with_class(ErrorClass::Uncertain)
            }
            Err(error) => {
                let error = api::error::chain(&error);
                tracing::warn!(error, "cannot remove what a failed attempt made; it will be undone");
                failure.with_class(ErrorClass::Uncertain)
            }
        }
    }
}

/// A volume that was set up: what the runtime is told about it, and how it is taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Where it is: a directory, or the link to its device.
    pub path: PathBuf,
    /// Whether containers may not write to it.
    pub read_only: bool,
    /// Whether its ownership is ours to change.
    pub managed: bool,
    /// Whether the runtime has to label its files.
    pub selinux_relabel: bool,
}

/// Takes the volume back from a pod.
#[derive(Debug, Clone)]
pub struct TearDown {
    /// The pod, which may be long gone.
    pub pod: PodUid,
    /// The volume's inner name.
    pub inner: SpecName,
    /// The volume, as far as it is known.
    pub spec: Option<Arc<Spec>>,
}

/// Does the step per node.
#[derive(Debug, Clone)]
pub struct MountDevice {
    /// The volume.
    pub spec: Arc<Spec>,
    /// Where its device is or, for CSI, the name of its attachment; empty if it is not attached.
    pub device_path: String,
    /// Where it is done.
    pub path: PathBuf,
    /// The group of the pod that happens to be first.
    pub group: Option<u32>,
    /// The SELinux label to mount with; empty for none.
    pub selinux_label: String,
    /// Whether it may be done already. Whatever fails, what may exist keeps its directory and its record.
    pub before: Before,
}

/// Hands over a device.
#[derive(Debug, Clone)]
pub struct MapDevice {
    /// The volume.
    pub spec: Arc<Spec>,
    pub pod: Arc<Pod>,
    /// Where its device is or, for CSI, the name of its attachment; empty if it is not attached.
    pub device_path: String,
    /// Whether the step per node may be done already.
    pub device_before: Before,
    /// Whether the step per pod may be done already.
    pub before: Before,
}

/// Grows a volume on the node.
#[derive(Debug, Clone)]
pub struct Expand {
    /// The volume.
    pub spec: Arc<Spec>,
    /// How large it should be.
    pub new_size: Bytes,
    /// How large it was.
    pub old_size: Bytes,
    /// Where it is: the pod's directory, or the device.
    pub volume_path: PathBuf,
    /// Where its device is or, for CSI, the name of its attachment.
    pub device_path: String,
    /// Where it is staged; empty if nowhere.
    pub staging_path: PathBuf,
}
