//! The messages between a run and a worker: one JSON document in, JSON lines out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use testbed::case::CaseId;
use testbed::failure::Breakage;
use testbed::message::{Abilities, Orders, Progress, Refusal, Sample};

use crate::event::Status;
use crate::finding::Finding;
use crate::promises::Judged;
use crate::turn::Turn;

/// The descriptor on which a worker reports.
pub const REPORT_FD: i32 = 3;
/// The descriptor whose end means that the run is gone.
pub const LIFELINE_FD: i32 = 4;
/// The descriptor from which a worker with several cases takes its turns.
pub const TURNS_FD: i32 = 8;

/// The assignment of a worker, on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assignment {
    pub task: Task,
    pub orders: Orders,
}

impl Assignment {
    /// The time limit that the worker sets itself.
    pub fn limit(&self) -> Duration {
        match self.task {
            Task::Cases(..) => SHIFT + self.orders.timeout,
            Task::Ask | Task::Case(..) | Task::Play(_) => self.orders.timeout,
        }
    }
}

/// The task of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Start the driver once and ask what it can do.
    Ask,
    /// Carry out a case with a driver that was asked.
    Case(CaseId, Box<Abilities>),
    /// Carry out those of these cases whose turn it is, one after the other on one driver, until one does not pass, [`MOST`]
    /// have passed or [`SHIFT`] is over.
    Cases(Vec<SharedCase>, Box<Abilities>),
    /// Play a script instead of a case.
    Play(Script),
}

impl Task {
    /// Whether the task runs a program at the terminal of the run.
    pub fn needs_terminal(&self) -> bool {
        matches!(self, Self::Play(Script::Manifests(Manifests { inside: Some(_), .. })))
    }
}

/// The time during which cases are begun on one driver. Findings at the driver's end are reported only then, so the time is
/// short.
pub const SHIFT: Duration = Duration::from_secs(3);

/// The most cases on one driver: their verdicts wait for its end.
pub const MOST: usize = 40;

/// A case that shares its driver with other cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCase {
    pub turn: Turn,
    pub id: CaseId,
    /// The existing directory for the case's own logs; the driver's are in the directory of the orders.
    pub directory: PathBuf,
    pub tag: String,
    pub seed: u64,
}

/// A script that is played instead of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Script {
    /// The text of a scenario.
    Scenario(String),
    /// Manifests, until the user ends the run.
    Manifests(Manifests),
}

/// Manifests to be played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifests {
    /// Name and text of each file.
    pub files: Vec<(String, String)>,
    /// Whether the run ends as soon as all pods have their volumes.
    pub once: bool,
    /// The program that runs in a container as soon as all pods have their volumes; the run ends with it.
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
    /// Whether the program is a shell: nothing else is printed while it runs.
    pub is_shell: bool,
}

/// The outcome of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Played {
    /// Expectations that were not met, each with the state that was there instead.
    pub failures: Vec<String>,
    /// Resources that could not be taken down.
    pub left: Vec<String>,
}

/// A message of a worker: one line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The progress of a case.
    Progress(Progress),
    /// The answer to [`Task::Ask`].
    Abilities(Box<Abilities>),
    /// The sandbox, the driver or the node could not be brought up.
    Refused(Refusal),
    /// A line of a player, for the user.
    Told(String),
    /// A finding against the driver or the node while manifests are played.
    Found(Box<Finding>),
    /// Every pod of the manifests has all the volumes that it can get.
    Ready,
    /// The program in a container has ended with this code: the run has its terminal back.
    Exited(u8),
    /// The end of a scenario. The last line.
    Played(Played),
    /// The end of a case. The last line, unless the sandbox is kept or other cases follow.
    Outcome(Box<Outcome>),
    /// The next of several cases begins. Its steps and its outcome follow.
    Begun(CaseId),
    /// A shared driver has ended, with the findings of its end, if any. The last line.
    DriverEnded(Option<Box<Outcome>>),
    /// The sandbox stays until the run closes the lifeline. The last line.
    Kept,
}

/// The outcome of a case, as its worker saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Passed, failed, leaked, error or driver exited. The run applies the manifest's expected failures.
    pub status: Status,
    pub seconds: f64,
    /// The step at which the story broke.
    pub breakage: Option<Breakage>,
    pub findings: Vec<Finding>,
    /// The promises that were kept or not observable.
    #[serde(default)]
    pub judged: Judged,
    pub left_behind: Vec<String>,
    /// Defects in the kernel's log.
    pub kernel: Vec<String>,
    /// Checks that could not be made, each with the reason.
    pub unchecked: Vec<String>,
    /// Waits that ended without success.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub dead_ends: BTreeSet<String>,
    /// The points that the case tried, of all that there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
}
