//! PersistentVolumeClaims. The sizes in their status tell how far an expansion is.

use serde_json::Value;

use super::{ApiObject, Claim, bytes};
use crate::json::text;

/// The finalizer that keeps a claim while a pod uses it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

impl<'a> Claim<'a> {
    /// The name of the persistent volume that the claim is given.
    pub fn volume_name(self) -> Option<&'a str> {
        self.spec()["volumeName"].as_str()
    }

    /// The name of the snapshot that the claim's volume is restored from.
    pub fn source_snapshot(self) -> Option<&'a str> {
        let source = &self.spec()["dataSource"];
        (text(source, "kind") == "VolumeSnapshot").then(|| text(source, "name"))
    }

    /// `Pending`, `Bound` or `Lost`; empty if the trace does not have it.
    pub fn phase(self) -> &'a str {
        text(self.status(), "phase")
    }

    pub fn is_bound(self) -> bool {
        self.phase() == "Bound"
    }

    pub fn is_pending(self) -> bool {
        self.phase() == "Pending"
    }

    /// The size of the bound volume in bytes, if the trace has it.
    pub fn capacity(self) -> Option<u64> {
        bytes(text(&self.status()["capacity"], "storage"))
    }

    /// The size in bytes to which the volume is being expanded: zero if there is none, `None` if it cannot be read.
    pub fn allocated_bytes(self) -> Option<u64> {
        match self.allocated() {
            "" => Some(0),
            quantity => bytes(quantity),
        }
    }

    /// Whether the controllers are expanding the volume.
    pub fn is_controller_resizing(self) -> bool {
        self.resize_status() == "ControllerResizeInProgress"
    }

    /// The size to which the node has to expand the volume, as it is written.
    pub fn pending_node_size(self) -> Option<&'a str> {
        (self.resize_status() == "NodeResizePending").then(|| self.allocated())
    }

    /// Whether a change of the volume's attributes is under way.
    pub fn is_being_modified(self) -> bool {
        self.status()["modifyVolumeStatus"]["status"] == "InProgress"
    }

    /// Whether the claim has to stay while a pod uses it.
    pub fn is_protected(self) -> bool {
        self.finalizers().into_iter().flatten().any(|finalizer| finalizer == PROTECTION)
    }

    fn spec(self) -> &'a Value {
        &self.0["spec"]
    }

    fn status(self) -> &'a Value {
        &self.0["status"]
    }

    fn allocated(self) -> &'a str {
        text(&self.status()["allocatedResources"], "storage")
    }

    fn resize_status(self) -> &'a str {
        text(&self.status()["allocatedResourceStatuses"], "storage")
    }
}
