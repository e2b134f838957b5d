//! What a run tells its reporters.
//!
//! The runner emits these events in order and reporters render them; none can influence the run. The same
//! types, serialised, are `results.json` and the lines of `--format json`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use testbed::case::CaseId;
use testbed::failure::{Breakage, Place};

use crate::finding::{Finding, RunFinding};
use crate::promises::{Judged, PromiseRecord};
use crate::since::Since;

/// Something a reporter may want to show.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The driver has been asked, the machine looked at, the cases chosen.
    RunStarted(Box<Header>),
    /// A case has begun.
    CaseStarted {
        /// Which.
        id: CaseId,
    },
    /// A case has come to a step of its body.
    CaseStep {
        /// Which case.
        id: CaseId,
        /// What it does now, such as `web.stop()`.
        step: String,
    },
    /// A case has ended, or was skipped.
    CaseFinished(Box<CaseReport>),
    /// The run was interrupted; these cases were still running.
    Interrupted {
        /// They are being stopped.
        running: Vec<CaseId>,
        /// What `volproof sweep` would undo, when there was no time to be tidy.
        sweep: Option<Vec<String>>,
    },
    /// All cases have ended, and the sandboxes of these stay until the reader has seen enough.
    Kept {
        /// Those that did not pass.
        cases: Vec<CaseId>,
    },
    /// Everything is over.
    RunFinished(Box<RunRecord>),
}

/// What is known before the first case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The driver's name, as it answered.
    pub driver: String,
    /// Its version, as it answered.
    pub driver_version: String,
    /// What it says it can do, in the words of the needs.
    pub abilities: Vec<String>,
    /// The kernel's release.
    pub kernel: String,
    /// The privilege the run has: `root`, `rootless`, or `guest` where all of it is in guests.
    pub privilege: String,
    /// The guests in which cases run, in a line; empty where none does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub guests: String,
    /// What the machine has.
    pub has: Vec<String>,
    /// What the machine lacks and some case needs.
    pub lacks: Vec<String>,
    /// How many cases were selected.
    pub cases: usize,
    /// How many run at once.
    pub lanes: usize,
    /// The seed of everything random in the run.
    pub seed: u64,
    /// What the cases are about, if that was narrowed down.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Answers of the driver to the first questions that are odd, and break no promise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub odd: Vec<String>,
    /// How far the driver is kept from the machine, in lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<String>,
    /// What this run cannot see or promise, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
}

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The story came true and nothing was left behind.
    Passed,
    /// The driver broke what CSI obliges it to, or the case's own sentence did not come true.
    Failed,
    /// The story came true, and something was left behind.
    Leaked,
    /// The case could not be carried out, or the volume manager broke a rule of its own.
    Error,
    /// The driver's process ended though nobody asked it to.
    DriverExited,
    /// The driver does not claim what the case needs.
    SkippedDriver,
    /// The machine does not have what the case needs.
    SkippedHost,
    /// It failed, as was expected.
    Xfail,
    /// It passed though it was expected to fail.
    Xpass,
}

impl Status {
    /// Every status, in the order of summaries.
    pub const ALL: [Self; 9] = [
        Self::Passed,
        Self::Failed,
        Self::Leaked,
        Self::Error,
        Self::DriverExited,
        Self::Xpass,
        Self::Xfail,
        Self::SkippedDriver,
        Self::SkippedHost,
    ];

    /// Whether the run cannot exit 0 because of it.
    pub fn is_bad(self) -> bool {
        match self {
            Self::Failed | Self::Leaked | Self::Error | Self::DriverExited | Self::Xpass => true,
            Self::Passed | Self::SkippedDriver | Self::SkippedHost | Self::Xfail => false,
        }
    }

    /// Whether the case did not run.
    pub fn is_skip(self) -> bool {
        matches!(self, Self::SkippedDriver | Self::SkippedHost)
    }
}

impl fmt::Display for Status {
    /// The name others script against.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Leaked => "leaked",
            Self::Error => "error",
            Self::DriverExited => "driver_exited",
            Self::SkippedDriver => "skipped_driver",
            Self::SkippedHost => "skipped_host",
            Self::Xfail => "xfail",
            Self::Xpass => "xpass",
        })
    }
}

/// Everything about one case of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    pub id: CaseId,
    /// How it ended.
    pub status: Status,
    /// How long it took; 0 when it was skipped.
    pub seconds: f64,
    /// Its place in the order of endings, from 1.
    pub number: usize,
    /// How many cases the run has.
    pub of: usize,
    /// The sentence it proves.
    pub proves: String,
    /// Where it is written.
    pub at: Place,
    /// Why it was skipped, or why it was expected to fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Where in the story it broke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakage: Option<Breakage>,
    /// The promises it found broken.
    pub findings: Vec<Finding>,
    /// What it says of the others; [`RunRecord::promises`] has the sum.
    #[serde(skip)]
    pub judged: Judged,
    /// The promises that it judges and had no occasion to: neither kept nor broken in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<String>,
    /// What it left behind, in the words of the story.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
    /// What the kernel said that it should not have had to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
    /// What could not be checked after the case, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
    /// The directory with its logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<PathBuf>,
    /// The files in there that hold something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_files: Vec<String>,
    /// The cases before it on the same driver, where it passes without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<CaseId>,
    /// The command that runs this case again, with those before it if it needs them.
    pub again: String,
    /// How to look around in its sandbox, where one can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<String>,
}

/// A whole run: what `results.json` holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Raised when the meaning of a field changes.
    pub version: u32,
    /// What was known before the first case.
    pub header: Header,
    /// The cases in the order of their endings.
    pub cases: Vec<CaseReport>,
    /// Every finding once.
    pub findings: Vec<RunFinding>,
    /// Every promise with what became of it.
    #[serde(default)]
    pub promises: Vec<PromiseRecord>,
    /// Defects that the kernel noticed in itself during the run and that name no device: nobody can tell which
    /// case they belong to, and after one no case can be believed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
    /// How long it all took.
    pub seconds: f64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// What `volproof` exits with.
    pub exit_code: u8,
    /// What a reader may do next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// What has changed since an earlier run, if the user named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
}

impl RunRecord {
    /// The version of `results.json` that this code writes.
    pub const VERSION: u32 = 1;

    /// How many cases ended so.
    pub fn count(&self, status: Status) -> usize {
        self.cases.iter().filter(|case| case.status == status).count()
    }
}

#[cfg(test)]
impl CaseReport {
    /// A report with nothing in it, for tests to fill.
    pub(crate) fn sample(id: &str, status: Status) -> Self {
        Self {
            id: CaseId::new(id),
            status,
            seconds: if status.is_skip() { 0.0 } else { 0.314 },
            number: 1,
            of: 62,
            proves: "A volume can be read and written.".into(),
            at: Place { file: "conformance/cases/src/csi/block.rs".into(), line: 12 },
            reasons: vec![],
            breakage: None,
            findings: vec![],
            judged: Judged::default(),
            not_tried: vec![],
            left_behind: vec![],
            kernel: vec![],
            unchecked: vec![],
            logs: None,
            log_files: vec![],
            after: vec![],
            again: format!("volproof run {id}"),
            look: None,
        }
    }

    pub(crate) fn with_findings(mut self, findings: impl IntoIterator<Item = Finding>) -> Self {
        self.findings = findings.into_iter().collect();
        self
    }
}
