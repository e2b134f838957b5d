//! Findings: the faults of a driver, of the volume manager or of the environment, each reported once in a run.
//!
//! Twenty cases may meet one fault. A finding is identified by the promise, the call in which it was broken, and the
//! cause; the run reports it with the case that shows it best and counts the others.

use contracts::promise::Strength;
use serde::{Deserialize, Serialize};

use testbed::case::CaseId;

/// One broken promise, as one case saw it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// The id of the promise: `DRV-…`, `INV-…`, or the id of the case that did not see its story.
    pub contract: String,
    /// The CSI call in which it was broken, such as `NodeUnpublishVolume`; empty if there is none.
    pub method: String,
    /// How the promise was broken. Equal for each occurrence of a fault, so without ids and numbers.
    pub cause: String,
    /// The part that is at fault, as far as that is known.
    pub party: Party,
    /// The strength of a driver's promise; `None` for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<Strength>,
    /// The promise that the driver broke before, if that explains it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub consequence_of: String,
    /// What happened, in one plain sentence.
    pub sentence: String,
    /// The sentence of the standard, with its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cites: String,
}

/// The part that is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Party {
    /// The storage driver under test.
    Driver,
    /// The volume manager or a controller: our bug.
    Manager,
    /// The harness or the machine.
    Environment,
    /// The trace does not show which.
    Unknown,
}

impl Finding {
    /// Two findings with the same key are the same fault.
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.contract, &self.method, &self.cause)
    }

    /// Whether the finding fails a case by itself: not a recommendation of CSI, nor the consequence of another finding.
    pub fn is_fault(&self) -> bool {
        self.consequence_of.is_empty() && self.strength.is_none_or(|strength| strength == Strength::Must)
    }
}

/// A finding of a run, with all cases that met it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFinding {
    #[serde(flatten)]
    pub finding: Finding,
    /// The case that shows it best.
    pub case: CaseId,
    /// The other cases that met the fault.
    pub also_in: Vec<CaseId>,
}
