//! What the driver knows: its nodes, its volumes and snapshots, and who uses them where.
//!
//! These are plain records. [`crate::journal`] keeps them on disk, and the control socket hands them out whole,
//! so a test can hold them against the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything the driver knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Books {
    /// The next number for something created. Never used twice.
    pub next: u64,
    /// The nodes that have ever served this state, by name.
    pub nodes: BTreeMap<String, Node>,
    /// The volumes, by id.
    pub volumes: BTreeMap<String, Volume>,
    /// The snapshots, by id.
    pub snapshots: BTreeMap<String, Snapshot>,
    /// The groups of snapshots, by id.
    pub groups: BTreeMap<String, Group>,
    /// File systems held still for a copy: where each is mounted, and by which node's driver. Thawed when it starts.
    pub held: BTreeMap<PathBuf, String>,
    /// Inline volumes that are gone. Unpublishing one again is no error, though nothing is left to find.
    pub departed: BTreeSet<String>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, as `NodeGetInfo` tells it.
    pub name: String,
    /// The zone it stands in.
    pub zone: String,
}

/// How a volume is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// A sparse image behind a loop device: a file system, or the raw device.
    Loop,
    /// A tmpfs of the volume's size.
    Tmpfs,
    /// A plain directory, for one node.
    Directory,
    /// A plain directory that many nodes may write to, as a network share.
    Shared,
}

/// How a volume is accessed: `access_type` of a capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// As a device.
    Block,
    /// As a directory.
    Mount {
        /// The file system asked for; empty leaves it to the driver.
        fs_type: String,
        /// Mount options.
        flags: Vec<String>,
        /// The group that shall own the files; empty for none.
        group: String,
    },
}

/// By how many, and whether for writing: `access_mode` of a capability.
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

/// One way to use a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// As a device or as a directory.
    pub access: Access,
    /// By how many.
    pub mode: Mode,
}

/// What a volume was filled with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The id of a snapshot.
    Snapshot(String),
    /// The id of a volume.
    Volume(String),
}

/// The file system on an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// `ext4`, `xfs` or `btrfs`.
    pub fs_type: String,
    /// False while it is being made: what is there is nobody's data and may be made again.
    pub finished: bool,
    /// True on a copy, until it was given an identity of its own.
    pub twin: bool,
    /// How large a device it fills. Less than the volume's size after an expansion, until it was grown.
    pub bytes: u64,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// The number it was created with; also the name of its file.
    pub number: u64,
    /// Its id.
    pub id: String,
    /// The name the caller gave it.
    pub name: String,
    /// Its size in bytes.
    pub capacity: u64,
    /// How it is kept.
    pub backing: Backing,
    /// The uses it was created for.
    pub capabilities: Vec<Capability>,
    /// The parameters it was created with.
    pub parameters: BTreeMap<String, String>,
    /// The parameters that were modified since, or given as mutable.
    pub mutable_parameters: BTreeMap<String, String>,
    /// What it was filled with.
    pub source: Option<Source>,
    /// The zone it can be reached from.
    pub zone: String,
    /// False until its contents exist: a volume that nobody was told of yet.
    pub created: bool,
    /// True for an inline volume, which lives from publish to unpublish.
    pub ephemeral: bool,
    /// The file system on it, once it has one.
    pub format: Option<Format>,
    /// Where the controller has published it, by node.
    pub attached: BTreeMap<String, Attachment>,
    /// Where it is staged, by node.
    pub staged: BTreeMap<String, Staging>,
    /// Where it is published, by target path.
    pub targets: BTreeMap<PathBuf, Target>,
}

impl Volume {
    /// The targets of one node.
    pub fn targets_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a PathBuf, &'a Target)> {
        self.targets.iter().filter(move |(_, target)| target.node == node)
    }
}

/// A volume published to a node by the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Changes with each attachment, so that a stale publish context is noticed.
    pub generation: u64,
    /// Whether it was attached for reading only.
    pub readonly: bool,
    /// The use it was attached for.
    pub capability: Capability,
}

/// A volume made ready on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staging {
    /// Where: the caller's staging path, or a private one if the caller knows no staging.
    pub path: PathBuf,
    /// Whether `path` is ours and not the caller's.
    pub private: bool,
    /// The use it was staged for.
    pub capability: Capability,
    /// False while it is being made or undone.
    pub finished: bool,
    /// The SELinux context among the mount options, for inspection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// What the caller said about the volume, without tokens.
    pub volume_context: BTreeMap<String, String>,
}

/// A volume published at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// On which node.
    pub node: String,
    /// The use it was published for.
    pub capability: Capability,
    /// Whether for reading only.
    pub readonly: bool,
    /// False while it is being made or undone.
    pub finished: bool,
    /// What the caller said about the volume, pod info included, without tokens.
    pub volume_context: BTreeMap<String, String>,
    /// The service account tokens that came with the last call, wherever they travelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Sensitive>,
    /// The SELinux context among the mount options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// How often it was published, republishing included.
    pub calls: u64,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The number it was created with; also the name of its file.
    pub number: u64,
    /// Its id.
    pub id: String,
    /// The name the caller gave it.
    pub name: String,
    /// The id of the volume it was taken of.
    pub source: String,
    /// The volume's size when it was taken.
    pub size: u64,
    /// How it is kept; never `Tmpfs`, which is copied into a directory.
    pub backing: Backing,
    /// The file system on it.
    pub format: Option<Format>,
    /// Seconds since the epoch.
    pub seconds: i64,
    /// The id of the group it was taken with.
    pub group: Option<String>,
    /// False until its contents exist.
    pub created: bool,
}

/// Snapshots taken at one point in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its id.
    pub id: String,
    /// The name the caller gave it.
    pub name: String,
    /// The ids of the volumes, sorted.
    pub sources: Vec<String>,
    /// The ids of its snapshots.
    pub snapshots: Vec<String>,
    /// Seconds since the epoch.
    pub seconds: i64,
    /// False until all its snapshots exist.
    pub created: bool,
}

/// Something that must not be printed. It is stored and handed out over the control socket, but `Debug` masks it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sensitive(String);

impl Sensitive {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<masked>")
    }
}
