//! The driver's books: its nodes, volumes and snapshots, and where each volume is attached, staged and published.
//!
//! Plain records. [`crate::journal`] keeps them on disk, and the control socket returns them whole, so that a test
//! can compare them with the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// All records of the driver, as its state file keeps them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Books {
    /// The number of the next new object. Numbers are not reused.
    pub next: u64,
    /// Nodes that have ever served this state, by name.
    pub nodes: BTreeMap<String, Node>,
    pub volumes: BTreeMap<String, Volume>,
    pub snapshots: BTreeMap<String, Snapshot>,
    /// Groups of snapshots, by id.
    pub groups: BTreeMap<String, Group>,
    /// File systems frozen for a copy: mount point, and the node whose driver froze it and thaws it when it starts.
    pub held: BTreeMap<PathBuf, String>,
    /// Ids of deleted inline volumes. Unpublishing one again is no error.
    pub departed: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The id that `NodeGetInfo` answers.
    pub name: String,
    pub zone: String,
}

/// The storage of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// A sparse image behind a loop device: a file system, or the raw device.
    Loop,
    /// A tmpfs of the volume's size.
    Tmpfs,
    /// A plain directory, for one node.
    Directory,
    /// A plain directory that several nodes may write to, like a network share.
    Shared,
    /// A directory that a daemon of the volume shows through FUSE, like a bucket of objects.
    Fuse,
}

/// `access_type` of a capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    Block,
    Mount {
        /// Empty leaves it to the driver.
        fs_type: String,
        flags: Vec<String>,
        /// The group to give the files to; empty for none.
        group: String,
    },
}

/// `access_mode` of a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
}

impl Mode {
    /// Whether the mode allows more than one node at a time.
    pub fn is_multi_node(self) -> bool {
        matches!(self, Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter)
    }

    /// Whether the mode forbids writing.
    pub fn is_read_only(self) -> bool {
        matches!(self, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
    }
}

/// A capability that a volume is used with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    pub access: Access,
    pub mode: Mode,
}

/// The source of a volume's content, by id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    Snapshot(String),
    Volume(String),
}

/// The file system on an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// `ext4`, `xfs` or `btrfs`.
    pub fs_type: String,
    /// `false` while mkfs runs: such a file system holds no data and may be made again.
    pub finished: bool,
    /// True on a copy until it has a UUID of its own.
    pub twin: bool,
    /// Size of the device that it fills. Less than the volume's size after an expansion, until it is grown.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Also the name of its file.
    pub number: u64,
    pub id: String,
    /// From the request.
    pub name: String,
    /// Bytes.
    pub capacity: u64,
    pub backing: Backing,
    /// From the request that created it, as are `parameters`.
    pub capabilities: Vec<Capability>,
    pub parameters: BTreeMap<String, String>,
    /// Mutable parameters of the creation, and modified ones.
    pub mutable_parameters: BTreeMap<String, String>,
    pub source: Option<Source>,
    /// The zone it can be reached from.
    pub zone: String,
    /// False until its contents exist; no answer has named the volume before.
    pub created: bool,
    /// True for an inline volume, which lives from publish to unpublish.
    pub ephemeral: bool,
    /// `None` until it has a file system.
    pub format: Option<Format>,
    /// By node.
    pub attached: BTreeMap<String, Attachment>,
    /// By node.
    pub staged: BTreeMap<String, Staging>,
    pub targets: BTreeMap<PathBuf, Target>,
}

impl Volume {
    /// Whether it was created for this use: as a device, or with a file system.
    pub fn is_made_for(&self, access: &Access) -> bool {
        let kind = std::mem::discriminant(access);
        self.capabilities.iter().any(|made| std::mem::discriminant(&made.access) == kind)
    }

    /// Whether the volume was created as a block volume.
    pub(crate) fn is_raw(&self) -> bool {
        self.capabilities.iter().any(|capability| capability.access == Access::Block)
    }

    pub fn targets_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a PathBuf, &'a Target)> {
        self.targets.iter().filter(move |(_, target)| target.node == node)
    }
}

/// The key of an attachment's generation in the publish context.
pub(crate) const GENERATION_KEY: &str = "fake.csi.volproof.dev/generation";

/// A volume attached to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Changes with each attachment, so that a stale publish context is noticed.
    pub generation: u64,
    pub readonly: bool,
    pub capability: Capability,
}

/// A volume staged on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staging {
    /// The caller's staging path, or a private one if the caller does not stage.
    pub path: PathBuf,
    /// Whether `path` is the driver's own.
    pub private: bool,
    pub capability: Capability,
    /// False while it is being made or undone.
    pub finished: bool,
    /// From the mount options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// Without tokens.
    pub volume_context: BTreeMap<String, String>,
}

/// A volume published at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub node: String,
    pub capability: Capability,
    pub readonly: bool,
    /// False while it is being made or undone.
    pub finished: bool,
    /// With pod info, without tokens.
    pub volume_context: BTreeMap<String, String>,
    /// Service account tokens of the last call, from the volume context or the secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Sensitive>,
    /// From the mount options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// Number of NodePublishVolume calls, with republishing.
    pub calls: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Also the name of its file.
    pub number: u64,
    pub id: String,
    /// From the request.
    pub name: String,
    /// The id of its volume.
    pub source: String,
    /// The volume's size at that time.
    pub size: u64,
    /// Never `Tmpfs`: a tmpfs is copied into a directory.
    pub backing: Backing,
    pub format: Option<Format>,
    /// Seconds since the epoch.
    pub seconds: i64,
    /// Of the second.
    #[serde(default)]
    pub nanos: i32,
    /// The id of its group.
    pub group: Option<String>,
    /// False until its contents exist.
    pub created: bool,
}

/// Snapshots taken at one point in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub id: String,
    /// From the request.
    pub name: String,
    /// Ids of the volumes, sorted.
    pub sources: Vec<String>,
    /// Ids.
    pub snapshots: Vec<String>,
    /// Seconds since the epoch.
    pub seconds: i64,
    /// False until all its snapshots exist.
    pub created: bool,
}

/// A secret. The journal and the control socket have it in clear; `Debug` masks it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sensitive(String);

impl Sensitive {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<masked>")
    }
}
