//! What the run and a worker say to each other: one JSON document in, JSON lines out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use testbed::case::CaseId;
use testbed::failure::Breakage;
use testbed::message::{Abilities, Orders, Progress, Refusal};

use crate::event::Status;
use crate::finding::Finding;
use crate::promises::Judged;

/// The descriptor a worker reports on.
pub const REPORT_FD: i32 = 3;
/// The descriptor whose end means that the run is gone.
pub const LIFELINE_FD: i32 = 4;

/// What a worker is told, on standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assignment {
    pub task: Task,
    pub orders: Orders,
}

impl Assignment {
    /// How long it may take by its own reckoning.
    pub fn limit(&self) -> Duration {
        match self.task {
            Task::Cases(..) => SHIFT + self.orders.timeout,
            Task::Ask | Task::Case(..) | Task::Play(_) => self.orders.timeout,
        }
    }
}

/// What a worker is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Start the driver once and ask what it can do.
    Ask,
    /// Carry out a case with a driver that was asked.
    Case(CaseId, Box<Abilities>),
    /// Carry out cases one after the other on one driver, until one does not pass or [`SHIFT`] is over.
    Cases(Vec<SharedCase>, Box<Abilities>),
    /// Play what no case says.
    Play(Script),
}

impl Task {
    /// Whether it runs a program at the terminal of the run.
    pub fn needs_terminal(&self) -> bool {
        matches!(self, Self::Play(Script::Manifests(Manifests { inside: Some(_), .. })))
    }
}

/// So long cases are begun on one driver: what is found at its end is told only then, and nobody likes to wait for it.
pub const SHIFT: Duration = Duration::from_secs(3);

/// A case on a driver that other cases have as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCase {
    pub id: CaseId,
    /// Where its own logs go. Exists; the driver's are in the directory of the orders.
    pub directory: PathBuf,
    pub seed: u64,
}

/// What is played instead of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Script {
    /// The text of a scenario.
    Scenario(String),
    /// Manifests, until they were seen enough.
    Manifests(Manifests),
}

/// Manifests to be played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifests {
    /// Name and text of each file.
    pub files: Vec<(String, String)>,
    /// Whether it is over as soon as all pods have their volumes.
    pub once: bool,
    /// What runs in a container as soon as all pods have their volumes; then it is over.
    pub inside: Option<Inside>,
}

/// A program that runs in a container of a pod, at the terminal of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// The pod; the first one if none is named.
    pub pod: Option<String>,
    /// Its container; the first one if none is named.
    pub container: Option<String>,
    pub command: Vec<String>,
    /// Whether it is a shell, beside which nothing else is told.
    pub is_shell: bool,
}

/// How a script went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Played {
    /// What did not come, with the state that was there instead.
    pub failures: Vec<String>,
    /// What would not be taken down.
    pub left: Vec<String>,
}

/// One line of what a worker says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// What a case says while it runs.
    Progress(Progress),
    /// The answer to [`Task::Ask`].
    Abilities(Box<Abilities>),
    /// The sandbox, the driver or the node could not be brought up.
    Refused(Refusal),
    /// What a player has to tell while it plays.
    Told(String),
    /// What the rules say against the driver or the node while manifests are played.
    Found(Box<Finding>),
    /// Every pod of the manifests that are played has its volumes, or has those that it can get.
    Ready,
    /// The program in a container has ended, with this code: the terminal is the run's again.
    Exited(u8),
    /// The end of a scenario. The last line.
    Played(Played),
    /// The end of a case. The last line, unless the sandbox is kept or other cases follow.
    Outcome(Box<Outcome>),
    /// The next of several cases begins. Its steps and its outcome follow.
    Begun(CaseId),
    /// The driver that several cases had has ended, and what that showed, if anything. The last line.
    DriverEnded(Option<Box<Outcome>>),
    /// The sandbox stays as it is until the run lets go. The last line.
    Kept,
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
    /// What it says of the promises that held.
    #[serde(default)]
    pub judged: Judged,
    /// What was left behind.
    pub left_behind: Vec<String>,
    /// What the kernel said.
    pub kernel: Vec<String>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
    /// What was waited for in vain.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub dead_ends: BTreeSet<String>,
}
