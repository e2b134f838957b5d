//! Nodes and their drivers.

use serde::{Deserialize, Serialize};

use super::object::{Bytes, Meta};
use crate::names::VolumeName;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata, with the labels affinity is judged by.
    pub meta: Meta,
    pub taints: Vec<Taint>,
    /// Whether the node is ready.
    pub ready: bool,
    /// The volumes the node uses, or may use.
    pub volumes_in_use: Vec<VolumeName>,
    /// The volumes the controller has attached to it.
    pub volumes_attached: Vec<AttachedVolume>,
    pub allocatable: Allocatable,
}

/// The resources of a node for pods; zero is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allocatable {
    /// Thousandths of processors.
    pub cpu: u64,
    pub memory: Bytes,
    /// Its own file system.
    pub ephemeral_storage: Bytes,
}

impl Node {
    /// The entry of an attached volume; `None` if the controller has not attached it.
    pub fn attached(&self, volume: &VolumeName) -> Option<&AttachedVolume> {
        self.volumes_attached.iter().find(|attached| &attached.name == volume)
    }
}

/// A volume the controller has attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedVolume {
    pub name: VolumeName,
    /// The path of its device; empty for CSI.
    pub device_path: String,
}

/// A taint of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// The name of the taint, such as `node.kubernetes.io/unreachable`.
    pub key: String,
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The drivers of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    /// Metadata. The name is the node's.
    pub meta: Meta,
    /// The drivers, in the order of their registration.
    pub drivers: Vec<CsiNodeDriver>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiNodeDriver {
    pub name: String,
    /// The driver's own name for the node.
    pub node_id: String,
    /// The keys of its topology, in order.
    pub topology_keys: Vec<String>,
    /// The most volumes of the driver on the node; `None` for any number.
    pub allocatable: Option<i32>,
}
