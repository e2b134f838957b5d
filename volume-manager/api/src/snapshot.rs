//! Snapshots of volumes, as the custom resources of `snapshot.storage.k8s.io` describe them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::object::{Bytes, Meta};
use super::storage::VolumeMode;
use crate::names::Namespaced;

/// A user's request for a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    pub meta: Meta,
    pub source: SnapshotSource,
    /// The class; `None` is the default one of the driver.
    pub class: Option<String>,
    pub status: SnapshotStatus,
}

/// The origin of a snapshot's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotSource {
    /// The volume of a claim in the same namespace.
    Claim(String),
    /// A content that an administrator has written down.
    Content(String),
}

impl Default for SnapshotSource {
    fn default() -> Self {
        Self::Claim(String::new())
    }
}

/// The state of a snapshot, for its user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotStatus {
    /// The content that it is bound to; empty if none yet.
    pub content: String,
    /// Whether a volume can be made from it.
    pub ready: bool,
    /// The least size of a volume that is made from it; `None` if unknown.
    pub restore_size: Option<Bytes>,
    /// The group snapshot that it is part of; empty if none.
    pub group: String,
    /// The driver's last error.
    pub error: Option<String>,
}

/// A snapshot in the driver's storage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotContent {
    pub meta: Meta,
    /// The snapshot that it belongs to.
    pub snapshot: Namespaced,
    /// The identity of that snapshot; empty until the two are bound.
    pub snapshot_uid: String,
    pub driver: String,
    pub class: String,
    /// `Delete` or `Retain`.
    pub deletion: String,
    pub source: ContentSource,
    /// Whether its volume was a directory or a device; `None` if unknown.
    pub source_mode: Option<VolumeMode>,
    pub status: ContentStatus,
}

/// The source of a content, by the driver's ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentSource {
    /// A snapshot of this volume is to be taken.
    Volume(String),
    /// The snapshot exists already.
    Snapshot(String),
}

impl Default for ContentSource {
    fn default() -> Self {
        Self::Volume(String::new())
    }
}

/// The state of a content, as the driver answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContentStatus {
    /// The driver's name for the snapshot; empty as long as it has not answered one.
    pub handle: String,
    /// Whether the driver has finished its work on it.
    pub ready: bool,
    /// `None` if the driver does not say.
    pub restore_size: Option<Bytes>,
    /// The driver's name for the group that it is part of; empty if none.
    pub group: String,
    /// The driver's last error.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotClass {
    pub meta: Meta,
    pub driver: String,
    /// Handed to the driver, but for those with the prefix `csi.storage.k8s.io/`.
    pub parameters: BTreeMap<String, String>,
    /// `Delete` or `Retain`.
    pub deletion: String,
}
