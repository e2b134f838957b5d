//! What the manager has last seen of the API and of drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api::names::{AttachmentName, DriverName, VolumeName};
use api::{Attachment, CsiDriver, Node};
use serde::{Deserialize, Serialize};

/// What the manager knows of the world beyond its volumes, as of its last look. Shared, never changed in
/// place: operations take the newest with [`OperationContext::facts`].
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// CSIDriver objects by name.
    pub csi_drivers: BTreeMap<DriverName, Arc<CsiDriver>>,
    /// Whether all CSIDriver objects have been seen at least once. Until then no decision may rest on the
    /// absence of one.
    pub csi_drivers_known: bool,
    /// This node's object, if it was seen.
    pub node: Option<Arc<Node>>,
    /// Whether it never will be: nobody follows it, and what it says is asked for where it matters.
    pub node_unfollowed: bool,
    /// The volumes that it says are attached: the same, to be looked up.
    pub attached: Arc<BTreeSet<VolumeName>>,
    /// Attachments to this node that could not be made, by name.
    pub attachments: BTreeMap<AttachmentName, Arc<Attachment>>,
    /// Drivers that can be reached on this node.
    pub registered: BTreeMap<DriverName, RegisteredDriver>,
    /// Whether this node enforces SELinux.
    pub selinux: bool,
}

impl Facts {
    /// This node's object was seen. Returns what it says is attached and did not say before.
    pub fn see_node(&mut self, node: Arc<Node>) -> Vec<VolumeName> {
        let attached: BTreeSet<_> =
            node.volumes_attached.iter().map(|attached| attached.name.clone()).collect();
        let new = attached.difference(&self.attached).cloned().collect();
        (self.node, self.attached) = (Some(node), Arc::new(attached));
        new
    }
}

/// A driver that has registered with this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredDriver {
    /// Its socket.
    pub endpoint: PathBuf,
    /// Counts the registrations of this manager's life: another number is another instance, and nothing
    /// learned about the former one holds.
    pub instance: u64,
}
