//! What the run and a worker say to each other: one JSON document in, JSON lines out.

use std::path::PathBuf;
use std::time::Duration;

use harness::driver::Capabilities;
use harness::manifest::Manifest;
use harness::nfs_export::Misbehaviour;
use serde::{Deserialize, Serialize};

use crate::case::CaseId;
use crate::event::{Breakage, Status};
use crate::finding::Finding;
use crate::play::Played;

/// The descriptor a worker reports on.
pub const REPORT_FD: i32 = 3;
/// The descriptor whose end means that the run is gone.
pub const LIFELINE_FD: i32 = 4;

/// What a worker is told, on standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    /// What to do.
    pub task: Task,
    /// The driver.
    pub manifest: Manifest,
    /// Where its logs go. Exists, and is not below what the sandbox covers.
    pub directory: PathBuf,
    /// The run's ledger.
    pub ledger: PathBuf,
    /// Whether the sandbox is a user namespace, too.
    pub rootless: bool,
    /// The seed of everything random in it.
    pub seed: u64,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether stories that differ are to be written into the source instead of failing.
    pub update: bool,
    /// Whether the sandbox is to stay as it is when the case does not pass.
    #[serde(default)]
    pub keep: bool,
    /// The disk that keeps what the node and the driver write, in a guest whose power is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<PathBuf>,
    /// How often the power was cut already.
    #[serde(default)]
    pub cuts: u32,
    /// How the suite's own NFS server is to misbehave, where somebody wants to see a case notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoil: Option<Misbehaviour>,
}

/// What a worker is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Start the driver once and ask what it can do.
    Ask,
    /// Carry out a case with a driver that was asked.
    Case(CaseId, Box<Abilities>),
    /// Play the scenario with this text.
    Play(String),
    /// Play these manifests, each with the name of its file, until it was seen enough.
    PlayFiles {
        /// The manifests, each with the name of its file.
        files: Vec<(String, String)>,
        /// Whether it is over as soon as all pods have their volumes.
        once: bool,
    },
}

/// One line of what a worker says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The case's body has come to a step.
    Step(String),
    /// A story differs and is to be written into the source.
    Expectation(Expectation),
    /// The power is to be cut, now.
    CutPower,
    /// The answer to [`Task::Ask`].
    Abilities(Box<Abilities>),
    /// The sandbox, the driver or the node could not be brought up.
    Refused(Refusal),
    /// What a player has to tell while it plays.
    Told(String),
    /// Every pod of the manifests that are played has its volumes.
    Ready,
    /// The end of a scenario. The last line.
    Played(Played),
    /// The end of a case. The last line, unless the sandbox is kept.
    Outcome(Box<Outcome>),
    /// The sandbox stays as it is until the run lets go. The last line.
    Kept,
}

/// A story as it was seen, and the place in the source where another one stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// The source file, below the workspace.
    pub file: String,
    /// The line of `expect!`.
    pub line: u32,
    /// Its column.
    pub column: u32,
    /// What stands there.
    pub data: String,
    /// What should stand there.
    pub actual: String,
}

/// Why nothing could begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The error and its causes.
    pub chain: Vec<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// The last lines of the driver's log, where the driver is the reason.
    pub log: Vec<String>,
    /// Whether the driver, and not the machine, is the reason.
    pub driver: bool,
}

/// What the driver answered when it was asked what it can do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// What it says of itself.
    pub says: Capabilities,
    /// Why it makes no block volume, if it does not.
    pub no_block: Option<String>,
    /// Why it makes no volume with a file system, if it does not.
    pub no_filesystem: Option<String>,
    /// Why it makes no volume that two pods may have, if it does not.
    pub no_shared: Option<String>,
}

/// How a case went, as its worker saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Passed, failed, leaked, error or driver exited: expectations are the run's business.
    pub status: Status,
    /// How long it took.
    pub seconds: f64,
    /// Where it broke.
    pub breakage: Option<Breakage>,
    /// What was found.
    pub findings: Vec<Finding>,
    /// What was left behind.
    pub left_behind: Vec<String>,
    /// What the kernel said.
    pub kernel: Vec<String>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
}

impl Abilities {
    /// Whether it makes and deletes volumes.
    pub fn creates(&self) -> bool {
        self.says.controller_can("CREATE_DELETE_VOLUME")
    }

    /// Whether it can list its volumes.
    pub fn lists(&self) -> bool {
        self.says.controller_can("LIST_VOLUMES")
    }

    /// Whether it stages volumes before it publishes them.
    pub fn stages(&self) -> bool {
        self.says.node_can("STAGE_UNSTAGE_VOLUME")
    }

    /// Whether it gives volumes to groups itself.
    pub fn gives_groups(&self) -> bool {
        self.says.node_can("VOLUME_MOUNT_GROUP")
    }

    /// Whether an ordinary volume may be had by more than one pod of a node.
    pub fn shares_on_a_node(&self) -> bool {
        self.says.node_can("SINGLE_NODE_MULTI_WRITER")
    }

    /// Whether volumes must be attached to a node before anything else.
    pub fn attaches(&self) -> bool {
        self.says.controller_can("PUBLISH_UNPUBLISH_VOLUME")
    }
}
