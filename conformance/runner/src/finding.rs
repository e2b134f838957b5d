//! Findings: what a run says against a driver, or against us, each said once.
//!
//! Twenty cases may trip over one fault. A finding is identified by the promise, the call it was broken in
//! and the way it was broken; the run reports it with the case that shows it best and counts the others.

use contracts::promise::Strength;
use serde::{Deserialize, Serialize};

use testbed::case::CaseId;

/// One broken promise, as one case saw it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// The id of the promise: `DRV-…`, `INV-…`, or the id of the case whose story did not come true.
    pub contract: String,
    /// The CSI call it was broken in, such as `NodeUnpublishVolume`; empty where there is none.
    pub method: String,
    /// How it was broken, in words that are equal whenever it is the same fault: no ids, no numbers.
    pub cause: String,
    /// Who is at fault, as far as that is known.
    pub party: Party,
    /// How far the promise binds a driver; none for everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<Strength>,
    /// The promise that the driver broke before, if that explains it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub consequence_of: String,
    /// What happened, in one plain sentence.
    pub sentence: String,
    /// The words of the standard, and which standard.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cites: String,
}

/// Who is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Party {
    /// The storage driver under test.
    Driver,
    /// The volume manager: our bug.
    Manager,
    /// The harness or the machine.
    Environment,
    /// Nobody can tell.
    Unknown,
}

impl Finding {
    /// What makes two findings the same.
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.contract, &self.method, &self.cause)
    }

    /// Whether it fails a case by itself. What CSI only recommends does not, nor what another finding explains.
    pub fn is_fault(&self) -> bool {
        self.consequence_of.is_empty() && self.strength.is_none_or(|strength| strength == Strength::Must)
    }
}

/// A finding of a run, with everywhere it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFinding {
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// The case that shows it best.
    pub case: CaseId,
    /// The other cases that met it.
    pub also_in: Vec<CaseId>,
}
