//! A driver's capabilities, as it reports them; they are never configured.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The capabilities of a driver, in the words of the specification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub name: String,
    pub version: String,
    /// Capabilities of the plugin: `CONTROLLER_SERVICE`, `ONLINE`, …
    pub plugin: BTreeSet<String>,
    /// Capabilities of the controller service: `CREATE_DELETE_VOLUME`, …
    pub controller: BTreeSet<String>,
    /// Capabilities of the group controller service: `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT`.
    #[serde(default)]
    pub group: BTreeSet<String>,
    /// Capabilities of the node service: `STAGE_UNSTAGE_VOLUME`, …
    pub node: BTreeSet<String>,
    /// The driver's id of this node.
    pub node_id: String,
    /// The most volumes of the driver on the node; 0 for any number.
    pub max_volumes: i64,
    /// The topology of the node.
    pub topology: std::collections::BTreeMap<String, String>,
}

impl Capabilities {
    /// Whether the driver has a controller service.
    pub fn controls(&self) -> bool {
        self.plugin.contains("CONTROLLER_SERVICE")
    }

    /// Whether the controller service reports a capability.
    pub fn controller_can(&self, capability: &str) -> bool {
        self.controller.contains(capability)
    }

    /// Whether the driver takes group snapshots.
    pub fn takes_groups(&self) -> bool {
        self.group.contains("CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT")
    }

    /// Whether the node service reports a capability.
    pub fn node_can(&self, capability: &str) -> bool {
        self.node.contains(capability)
    }
}
