//! The events of a run, and its record.
//!
//! The runner emits these events in order and reporters render them; none can influence the run. The same
//! types, serialised, are `results.json` and the lines of `--format json`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use testbed::case::CaseId;
use testbed::failure::{Breakage, Place};
use testbed::message::Sample;

use crate::finding::{Finding, RunFinding};
use crate::promises::{Judged, PromiseRecord};
use crate::since::Since;

/// An event of a run that reporters may show.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The driver and the machine are known, and the cases are selected.
    RunStarted(Box<Header>),
    CaseStarted {
        id: CaseId,
    },
    /// A case has begun a step of its body.
    CaseStep {
        id: CaseId,
        /// The step, such as `web.stop()`.
        step: String,
    },
    /// A case has ended, or was skipped.
    CaseFinished(Box<CaseReport>),
    /// The run was interrupted; these cases were still running.
    Interrupted {
        /// These cases are being stopped.
        running: Vec<CaseId>,
        /// The resources that `volproof sweep` has to undo, if the run ends at once without undoing them.
        sweep: Option<Vec<String>>,
    },
    /// All cases have ended, and the sandboxes of failed cases stay until the user ends the run.
    Kept {
        /// The id of this run: another one may have kept the same cases.
        run: String,
        /// The cases that did not pass.
        cases: Vec<CaseId>,
    },
    RunFinished(Box<RunRecord>),
}

/// The head of a report: driver, machine and selection, as known before the first case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The driver's name, as it answered.
    pub driver: String,
    /// Its version, as it answered.
    pub driver_version: String,
    /// The driver's capabilities, by the names of the needs.
    pub abilities: Vec<String>,
    /// The kernel's release.
    pub kernel: String,
    /// The privilege of the run: `root`, `rootless`, or `guest` if all cases run in guests.
    pub privilege: String,
    /// One line about the guests in which cases run; empty if none does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub guests: String,
    /// The features of the machine that cases need.
    pub has: Vec<String>,
    /// The features that some case needs and the machine lacks.
    pub lacks: Vec<String>,
    /// The number of selected cases.
    pub cases: usize,
    /// The number of cases that run concurrently.
    pub lanes: usize,
    /// The seed of everything random in the run.
    pub seed: u64,
    /// The subject of the cases, if the selection names one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Odd answers of the driver to the first questions that break no promise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub odd: Vec<String>,
    /// Lines about the isolation of the driver from the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<String>,
    /// Limits of this run, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
}

/// The outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The case saw its story, and nothing was left behind.
    Passed,
    /// The driver broke a MUST of CSI, or the case did not see its story.
    Failed,
    /// The case saw its story, and something was left behind.
    Leaked,
    /// The case could not be carried out, or the volume manager broke a rule of its own.
    Error,
    /// The driver's process ended unasked.
    DriverExited,
    /// The driver does not claim what the case needs.
    SkippedDriver,
    /// The machine does not have what the case needs.
    SkippedHost,
    /// The case failed, as the manifest expects.
    Xfail,
    /// The case passed, and the manifest expects it to fail.
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

    /// Whether a run with such a case exits with an error.
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
    /// The stable name, in `results.json` and for scripts.
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

/// One case of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    pub id: CaseId,
    pub status: Status,
    /// Its duration; 0 if it was skipped.
    pub seconds: f64,
    /// Its number in the order of endings, from 1.
    pub number: usize,
    /// The number of cases in the run.
    pub of: usize,
    /// The sentence that the case proves.
    pub proves: String,
    /// The case's file and line.
    pub at: Place,
    /// Why it was skipped, or why it was expected to fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The step at which the story broke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakage: Option<Breakage>,
    /// The promises that the case found broken.
    pub findings: Vec<Finding>,
    /// The promises that were kept or not observable in the case; [`RunRecord::promises`] has the sum.
    #[serde(skip)]
    pub judged: Judged,
    /// The promises that the case judges and did not try: neither kept nor broken in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<String>,
    /// Leftovers of the case, in the symbols of the story.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
    /// Defects in the kernel's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
    /// Checks that could not be made after the case, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
    /// The points that the case tried, of all that there are: it chooses a few unless the run is thorough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// The directory with the case's logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<PathBuf>,
    /// The logs in it that are not empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_files: Vec<String>,
    /// The cases before it on the same driver, if it passes without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<CaseId>,
    /// The command that runs this case again, with those before it if it needs them.
    pub again: String,
    /// The command that enters the case's sandbox, if that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<String>,
}

/// The record of a run, as in `results.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Raised when the meaning of a field changes.
    pub version: u32,
    pub header: Header,
    /// The cases in the order of their endings.
    pub cases: Vec<CaseReport>,
    /// Every finding once.
    pub findings: Vec<RunFinding>,
    /// Every promise with its standing after the run.
    #[serde(default)]
    pub promises: Vec<PromiseRecord>,
    /// Defects of the kernel that its log reported without a device. They belong to no known case, and no result after one
    /// can be trusted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
    pub seconds: f64,
    pub interrupted: bool,
    pub exit_code: u8,
    /// Hints for the next step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// The difference from an earlier run, if the user named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
}

impl RunRecord {
    /// The version of `results.json` that this code writes.
    pub const VERSION: u32 = 1;

    /// The points that all cases tried, one sample for each kind of point.
    pub fn samples(&self) -> Vec<Sample> {
        let mut sums: Vec<Sample> = Vec::new();
        for sample in self.cases.iter().flat_map(|case| &case.samples) {
            match sums.iter_mut().find(|sum| sum.points == sample.points) {
                Some(sum) => {
                    sum.tried += sample.tried;
                    sum.all += sample.all;
                }
                None => sums.push(sample.clone()),
            }
        }
        sums
    }

    /// The number of cases with this status.
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
            samples: vec![],
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
