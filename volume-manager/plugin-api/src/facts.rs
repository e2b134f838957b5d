//! Facts about the API's objects and drivers, as last seen by the manager.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api::names::{AttachmentName, DriverName, VolumeName};
use api::{Attachment, CsiDriver, Node};
use serde::{Deserialize, Serialize};

/// The API objects and drivers that the manager knows. Shared and never changed in place: operations take the newest
/// with [`OperationContext::facts`](crate::OperationContext::facts).
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// CSIDriver objects by name.
    pub csi_drivers: BTreeMap<DriverName, Arc<CsiDriver>>,
    /// Whether all CSIDriver objects have been listed. Before that, nothing may depend on the absence of one.
    pub csi_drivers_known: bool,
    /// This node's object, if it has been seen.
    pub node: Option<Arc<Node>>,
    /// Whether the node's object is not followed; it is read where it is needed then.
    pub node_unfollowed: bool,
    /// The volumes that the node's object lists as attached, as a set.
    pub attached: Arc<BTreeSet<VolumeName>>,
    /// VolumeAttachments to this node with an attach error.
    pub attachments: BTreeMap<AttachmentName, Arc<Attachment>>,
    /// Drivers that are registered on this node.
    pub registered: BTreeMap<DriverName, RegisteredDriver>,
    /// Whether this node enforces SELinux.
    pub selinux: bool,
}

impl Facts {
    /// Takes in this node's object. Returns the volumes that are newly listed as attached.
    pub fn see_node(&mut self, node: Arc<Node>) -> Vec<VolumeName> {
        let attached: BTreeSet<_> =
            node.volumes_attached.iter().map(|attached| attached.name.clone()).collect();
        let new = attached.difference(&self.attached).cloned().collect();
        (self.node, self.attached) = (Some(node), Arc::new(attached));
        new
    }
}

/// A driver that is registered on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredDriver {
    /// The socket of its node service.
    pub endpoint: PathBuf,
    /// Counts registrations: another number is another instance, and nothing learned about the former one
    /// holds.
    pub instance: u64,
}
