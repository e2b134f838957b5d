//! The orders for a testbed, the abilities of its driver, and the progress of a case.

use std::collections::BTreeSet;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::driver::{Capabilities, WrongAnswer};
use harness::manifest::Manifest;
use harness::nfs_export::Misbehaviour;
use harness::sandbox::Bounds;
use serde::{Deserialize, Serialize};

use crate::failure::chain;

/// The settings and the time limit of a testbed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    pub manifest: Manifest,
    /// The existing directory for its logs.
    pub directory: PathBuf,
    pub ledger: PathBuf,
    /// The end of the names of its volumes. A backend outside the sandbox, in a cloud or a pool, is the same for all cases
    /// and runs: a name must not mean the volume of another one.
    pub tag: String,
    /// Whether the sandbox is a user namespace, too.
    pub rootless: bool,
    /// The seed of everything random in it.
    pub seed: u64,
    /// Whether cases try each of the points that they otherwise choose a few of.
    #[serde(default)]
    pub thorough: bool,
    /// The time limit of the case.
    pub timeout: Duration,
    /// Whether stories that differ are to be written into the source instead of failing.
    pub update: bool,
    /// Whether the sandbox is to stay as it is when the case does not pass.
    #[serde(default)]
    pub keep: bool,
    /// Whether the logs of a case are written also if it passes.
    #[serde(default)]
    pub keeps_all_logs: bool,
    /// The disk that keeps what the node and the driver write, in a guest whose power is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<PathBuf>,
    /// The number of power cuts so far.
    #[serde(default)]
    pub cuts: u32,
    /// How the suite's own NFS server misbehaves, for tests that a case notices it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoil: Option<Misbehaviour>,
    /// Waits that timed out in earlier cases of the run: the next cases skip them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub dead_ends: BTreeSet<String>,
}

impl Orders {
    /// Nothing but the driver: no randomness, no guest, and nothing stays.
    pub fn new(manifest: Manifest, directory: PathBuf, ledger: PathBuf, timeout: Duration) -> Self {
        Self {
            manifest,
            tag: tag(&directory, &ledger),
            directory,
            ledger,
            timeout,
            rootless: false,
            seed: 0,
            thorough: false,
            update: false,
            keep: false,
            keeps_all_logs: true,
            disk: None,
            cuts: 0,
            spoil: None,
            dead_ends: BTreeSet::new(),
        }
    }
}

/// The tag of a case in a run. Each case and each repetition has its own directory of logs.
fn tag(directory: &Path, ledger: &Path) -> String {
    let run = ledger.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    format!("-{run}-{:08x}", hasher.finish() as u32)
}

/// A message of a case before its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// The body has come to a step.
    Step(String),
    /// A story differs and is to be written into the source.
    Expectation(Expectation),
    /// The power is to be cut, now.
    CutPower,
}

/// Points of one kind that a case has tried, of all that there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Their name in the plural, such as `crash points`.
    pub points: String,
    pub tried: usize,
    pub all: usize,
}

/// An observed story, and the place in the source of the expected one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// The source file, below the workspace.
    pub file: String,
    /// The line of `expect!`.
    pub line: u32,
    pub column: u32,
    /// The expected story in the case's source.
    pub data: String,
    /// The story that was seen.
    pub actual: String,
}

/// Why nothing could begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The error and its causes.
    pub chain: Vec<String>,
    /// A hint for the user.
    pub hint: Option<String>,
    /// The last lines of the driver's log, where the driver is the reason.
    pub log: Vec<String>,
    /// Whether the driver's process has ended, or could not begin.
    pub driver_has_ended: bool,
}

/// The driver's abilities, from its answers before the first case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// The capabilities that it reports.
    pub says: Capabilities,
    /// Why it makes no block volume, if it does not.
    pub no_block: Option<String>,
    /// Why it makes no volume with a file system, if it does not.
    pub no_filesystem: Option<String>,
    /// Why it makes no volume that two pods may have, if it does not.
    pub no_shared: Option<String>,
    /// Why it makes no volume for pods on several nodes, if it does not.
    #[serde(default)]
    pub no_shared_by_nodes: Option<String>,
    /// Answers that break a promise, or with which nothing can be tried.
    pub wrong: Vec<WrongAnswer>,
    /// Answers that are odd and break no promise: a line each in the head of the report.
    pub odd: Vec<String>,
    /// The last lines the driver printed, where an answer was wrong.
    pub last_words: Vec<String>,
    /// The isolation of the driver from the machine during the questions.
    #[serde(default)]
    pub bounds: Bounds,
    /// Whether the driver could use none of the machine's disks.
    #[serde(default)]
    pub disks_limited: bool,
    /// Whether the driver did not end on SIGTERM, and had to be killed.
    #[serde(default)]
    pub outlives_sigterm: bool,
}

impl Abilities {
    /// Whether no case can be tried with such answers.
    pub fn are_unusable(&self) -> bool {
        self.wrong.iter().any(|answer| answer.is_fatal)
    }

    /// Whether the driver creates and deletes volumes.
    pub fn creates(&self) -> bool {
        self.says.controller_can("CREATE_DELETE_VOLUME")
    }

    /// Whether the driver can list its volumes.
    pub fn lists(&self) -> bool {
        self.says.controller_can("LIST_VOLUMES")
    }

    /// Whether the driver stages volumes before it publishes them.
    pub fn stages(&self) -> bool {
        self.says.node_can("STAGE_UNSTAGE_VOLUME")
    }

    /// Whether the driver gives volumes to groups itself.
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

impl Refusal {
    /// Something that is neither the driver's nor the user's fault.
    pub fn ours(error: &(dyn Error + 'static)) -> Self {
        Self { chain: chain(error), hint: None, log: vec![], driver_has_ended: false }
    }
}
