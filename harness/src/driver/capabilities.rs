//! A driver's capabilities, as it reports them; they are never configured.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The capabilities of a driver, in the words of the specification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub name: String,
    pub version: String,
    /// Of the plugin: `CONTROLLER_SERVICE`, `ONLINE`, …
    pub plugin: BTreeSet<String>,
    /// Of the controller service: `CREATE_DELETE_VOLUME`, …
    pub controller: BTreeSet<String>,
    /// Of the group controller service: `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT`.
    #[serde(default)]
    pub group: BTreeSet<String>,
    /// Of the node service: `STAGE_UNSTAGE_VOLUME`, …
    pub node: BTreeSet<String>,
    /// Its own name for this node.
    pub node_id: String,
    /// How many of its volumes the node takes; 0 for any number.
    pub max_volumes: i64,
    /// Where the node is, for volumes that are not everywhere.
    pub topology: std::collections::BTreeMap<String, String>,
}

impl Capabilities {
    /// Whether it has a controller service.
    pub fn controls(&self) -> bool {
        self.plugin.contains("CONTROLLER_SERVICE")
    }

    /// Whether its controller can do something.
    pub fn controller_can(&self, capability: &str) -> bool {
        self.controller.contains(capability)
    }

    /// Whether its node service can do something.
    pub fn node_can(&self, capability: &str) -> bool {
        self.node.contains(capability)
    }
}
