//! The needs of cases, and whether the driver or the machine is the reason when one is missing.
//!
//! One variant a need; its doc comment is its help text. A need is looked up before anything is started, and
//! all that are missing are named, not only the first.

use std::fmt;

use harness::facts::Fact;
use serde::{Deserialize, Serialize};

macro_rules! needs {
    ($($(#[doc = $doc:literal])+ $variant:ident: $who:ident, $word:literal;)+) => {
        /// Something that must be there before a case can run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Need {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Need {
            /// All of them, driver's first.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in `#[case(needs = […])]`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)+ }
            }

            pub fn help(self) -> String {
                match self { $(Self::$variant => [$($doc.trim()),+].join(" "),)+ }
            }

            /// The reason when it is missing: the driver or the machine.
            pub fn provider(self) -> Provider {
                match self { $(Self::$variant => Provider::$who,)+ }
            }

            /// Its name at the head of a report.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

needs! {
    /// The driver reports STAGE_UNSTAGE_VOLUME: a volume is staged once on a node before pods get it.
    StageUnstage: Driver, "stage";
    /// The driver creates and deletes volumes: it reports CREATE_DELETE_VOLUME.
    Creates: Driver, "create";
    /// Volumes are attached to nodes: the driver reports PUBLISH_UNPUBLISH_VOLUME.
    Attaches: Driver, "attach";
    /// Volumes are attached to nodes for reading only: the driver reports PUBLISH_READONLY.
    AttachesReadOnly: Driver, "attach read-only";
    /// The driver lists its volumes: it reports LIST_VOLUMES.
    Lists: Driver, "list";
    /// The node service reports the usage of a volume: it reports GET_VOLUME_STATS.
    Stats: Driver, "stats";
    /// The node service grows volumes: it reports EXPAND_VOLUME.
    ExpandsOnNode: Driver, "expand on node";
    /// The controller grows volumes: it reports EXPAND_VOLUME.
    Expands: Driver, "expand";
    /// The driver takes snapshots: it reports CREATE_DELETE_SNAPSHOT.
    Snapshots: Driver, "snapshots";
    /// The driver lists its snapshots: it reports LIST_SNAPSHOTS.
    ListsSnapshots: Driver, "list snapshots";
    /// The driver reports a single snapshot: it reports GET_SNAPSHOT.
    GetsSnapshots: Driver, "get snapshots";
    /// The driver copies volumes: it reports CLONE_VOLUME.
    Clones: Driver, "clone";
    /// The driver takes snapshots of several volumes at once: its group controller reports
    /// CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT.
    GroupSnapshots: Driver, "group snapshots";
    /// The driver changes parameters of volumes: it reports MODIFY_VOLUME.
    Modifies: Driver, "modify";
    /// The driver reports the space that is left for volumes: it reports GET_CAPACITY.
    TellsCapacity: Driver, "capacity";
    /// Volumes can be reached from some places only: the plugin reports VOLUME_ACCESSIBILITY_CONSTRAINTS, and its node
    /// says where it is.
    Topology: Driver, "topology";
    /// The node carries a limited number of volumes: it reports `max_volumes_per_node`.
    AttachLimit: Driver, "attach limit";
    /// Volumes have file systems of types that can be chosen: the manifest names some (`fs_types`).
    FsTypes: Driver, "fs types";
    /// The driver creates volumes that are raw block devices. There is no capability for it: it is asked
    /// for one with CreateVolume and says no or yes.
    Block: Driver, "block";
    /// The driver creates volumes with a file system. Asked like `Block`.
    Filesystem: Driver, "file system";
    /// Two pods on one node may have the volume at once: the driver reports SINGLE_NODE_MULTI_WRITER, or
    /// creates volumes with MULTI_NODE_MULTI_WRITER.
    Shared: Driver, "shared";
    /// The driver runs on two nodes that reach the same volumes (in the manifest: `nodes = 2`).
    TwoNodes: Driver, "two nodes";
    /// The driver runs on two nodes that do not reach each other's volumes (in the manifest: `nodes = 2` and
    /// `state = "per_node"`).
    NodesApart: Driver, "nodes apart";
    /// Pods on several nodes may have a volume at once: the driver creates volumes with MULTI_NODE_MULTI_WRITER.
    SharedByNodes: Driver, "shared by nodes";
    /// A volume begins empty and keeps what pods write until it is deleted: the manifest does not say
    /// `persistent = false`.
    Persistent: Driver, "persistent";
    /// The node takes two of the driver's volumes: it does not report `max_volumes_per_node` = 1, and the manifest does
    /// not name a single `existing` volume.
    TwoVolumes: Driver, "two volumes";
    /// The driver gives volumes to groups itself: it reports VOLUME_MOUNT_GROUP.
    GivesGroups: Driver, "gives groups";
    /// The driver leaves that to the node: it does not report VOLUME_MOUNT_GROUP.
    LeavesGroups: Driver, "leaves groups";
    /// Pods may have inline volumes of the driver (in the manifest: `inline = true`).
    Inline: Driver, "inline";
    /// The suite started the driver's process and may kill it and start it again.
    OwnProcess: Driver, "own process";
    /// The run is root, or the driver is one that needs none: most format and mount devices.
    Root: Host, "root";
    /// Files can belong to other users and groups, and devices can be made and mounted: the run is root on
    /// the machine itself, and not only in a user namespace.
    Owners: Host, "owners";
    /// Containers use no other devices than they may: the kernel asks a program of ours at each use.
    DeviceRules: Host, "device rules";
    /// FUSE file systems can be served.
    Fuse: Host, "fuse";
    /// The kernel has huge pages of 2 MiB; none need be set aside.
    HugePages: Host, "huge pages";
    /// Loop devices can be had.
    Loop: Host, "loop";
    /// The kernel serves NFS and mounts what is served. Guests can (`--tier vm`).
    Nfs: Host, "nfs";
    /// The machine's power can be cut, and it boots again with the disk it had: a guest (`--tier vm`).
    PowerCut: Host, "power cut";
    /// The kernel and its devices are the case's own, and whatever is left in them dies with it: a guest
    /// (`--tier vm`).
    OwnKernel: Host, "own kernel";
    /// The kernel maps devices (dm).
    DeviceMapper: Host, "device-mapper";
}

impl Need {
    /// The fact of the machine that it stands for; none where the driver is asked.
    pub fn fact(self) -> Option<Fact> {
        match self {
            Self::Root | Self::Owners => Some(Fact::Root),
            Self::Loop => Some(Fact::Loop),
            Self::DeviceRules => Some(Fact::DeviceRules),
            Self::Nfs => Some(Fact::Nfsd),
            // Both are what a guest is.
            Self::PowerCut | Self::OwnKernel => Some(Fact::PowerCut),
            Self::DeviceMapper => Some(Fact::DeviceMapper),
            Self::Fuse => Some(Fact::Fuse),
            Self::HugePages => Some(Fact::HugePages),
            Self::StageUnstage
            | Self::Creates
            | Self::Attaches
            | Self::AttachesReadOnly
            | Self::Lists
            | Self::Stats
            | Self::ExpandsOnNode
            | Self::Expands
            | Self::Snapshots
            | Self::ListsSnapshots
            | Self::GetsSnapshots
            | Self::Clones
            | Self::GroupSnapshots
            | Self::Modifies
            | Self::TellsCapacity
            | Self::Topology
            | Self::AttachLimit
            | Self::FsTypes
            | Self::Block
            | Self::Filesystem
            | Self::Shared
            | Self::TwoNodes
            | Self::NodesApart
            | Self::SharedByNodes
            | Self::Persistent
            | Self::TwoVolumes
            | Self::GivesGroups
            | Self::LeavesGroups
            | Self::Inline
            | Self::OwnProcess => None,
        }
    }
}

/// The reason for a skip: the driver or the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Provider {
    /// The driver does not claim it.
    Driver,
    /// The machine does not have it.
    Host,
}

/// A need that is not there, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub need: Need,
    /// One readable reason, naming the thing.
    pub reason: String,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The missing needs, each with the reason. Filled after the driver was asked and the machine probed.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    missing: std::collections::BTreeMap<Need, String>,
}

impl Ground {
    /// Notes that a need is not there.
    pub fn lacks(&mut self, need: Need, reason: impl Into<String>) {
        self.missing.insert(need, reason.into());
    }

    /// Notes that a need is there after all.
    pub fn gains(&mut self, need: Need) {
        self.missing.remove(&need);
    }

    /// Whether a need is there.
    pub fn has(&self, need: Need) -> bool {
        !self.missing.contains_key(&need)
    }

    /// Why a need is missing, if it is.
    pub fn reason(&self, need: Need) -> Option<&str> {
        self.missing.get(&need).map(String::as_str)
    }

    /// Everything among `needs` that is missing.
    pub fn missing(&self, needs: &[Need]) -> Vec<Missing> {
        let why = |need: &Need| Some(Missing { need: *need, reason: self.missing.get(need)?.clone() });
        needs.iter().filter_map(why).collect()
    }
}
