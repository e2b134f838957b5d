//! Snapshots of several volumes at one moment, as the custom resources of `groupsnapshot.storage.k8s.io` describe them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::object::{Bytes, Meta};
use super::storage::Requirement;
use crate::names::{Namespaced, sha256_hex};

/// The beginning of the names of a group's snapshots.
const MEMBER: &str = "snapshot-";
/// The beginning of the names of their contents.
const MEMBER_CONTENT: &str = "snapcontent-";

/// A user's request for a snapshot of each of several claims.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSnapshot {
    pub meta: Meta,
    pub source: GroupSource,
    /// The class; `None` is the default one of the driver.
    pub class: Option<String>,
    pub status: GroupSnapshotStatus,
}

/// The origin of a group's data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GroupSource {
    /// The volumes of the claims with these labels in the same namespace.
    Claims(Vec<Requirement>),
    /// A content that an administrator has written down.
    Content(String),
}

impl Default for GroupSource {
    fn default() -> Self {
        Self::Claims(Vec::new())
    }
}

/// The state of a group snapshot, for its user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSnapshotStatus {
    /// The content that it is bound to; empty if none yet.
    pub content: String,
    /// Whether volumes can be made from all of its snapshots.
    pub ready: bool,
    /// The driver's last error.
    pub error: Option<String>,
}

/// A group of snapshots in the driver's storage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSnapshotContent {
    pub meta: Meta,
    /// The group snapshot that it belongs to.
    pub group: Namespaced,
    /// The identity of that group snapshot; empty until the two are bound.
    pub group_uid: String,
    pub driver: String,
    pub class: String,
    /// `Delete` or `Retain`.
    pub deletion: String,
    pub source: GroupContentSource,
    pub status: GroupContentStatus,
}

/// The source of a group's content, by the driver's ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupContentSource {
    /// A snapshot of each of these volumes is to be taken.
    Volumes(Vec<String>),
    /// The group and its snapshots exist already.
    Group { group: String, snapshots: Vec<String> },
}

impl Default for GroupContentSource {
    fn default() -> Self {
        Self::Volumes(Vec::new())
    }
}

/// The state of a group's content, as the driver answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupContentStatus {
    /// The driver's name for the group; empty as long as it has not answered one.
    pub handle: String,
    /// Whether the driver has finished its work on all snapshots of the group.
    pub ready: bool,
    /// The snapshots of the group.
    pub members: Vec<GroupMember>,
    /// The driver's last error.
    pub error: Option<String>,
}

/// A snapshot of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupMember {
    /// The driver's id of the volume.
    pub volume: String,
    /// The driver's id of the snapshot.
    pub snapshot: String,
    pub ready: bool,
    /// `None` if the driver does not say.
    pub restore_size: Option<Bytes>,
}

impl GroupMember {
    /// The names of the snapshot and of the content that stand for a volume's part of a group.
    pub fn names(group_uid: &str, volume: &str) -> (String, String) {
        let hash = sha256_hex(&[group_uid, volume]);
        (format!("{MEMBER}{hash}"), format!("{MEMBER_CONTENT}{hash}"))
    }

    /// The name of the content of a member with this name.
    pub fn content_of(snapshot: &str) -> String {
        format!("{MEMBER_CONTENT}{}", snapshot.strip_prefix(MEMBER).unwrap_or(snapshot))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSnapshotClass {
    pub meta: Meta,
    pub driver: String,
    /// Handed to the driver, but for those with the prefix `csi.storage.k8s.io/`.
    pub parameters: BTreeMap<String, String>,
    /// `Delete` or `Retain`.
    pub deletion: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_member_leads_to_its_content() {
        let (snapshot, content) = GroupMember::names("uid", "volume");
        assert_eq!(GroupMember::content_of(&snapshot), content);
        let hash = snapshot.strip_prefix(MEMBER).expect("it begins so");
        assert_eq!(hash.len(), 64);
        assert_ne!(snapshot, GroupMember::names("uid", "other").0);
    }
}
