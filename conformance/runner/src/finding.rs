//! Findings: what a run says against a driver, or against us, each said once.
//!
//! Twenty cases may trip over one fault. A finding is identified by the promise, the call it was broken in
//! and the way it was broken; the run reports it with the case that shows it best and counts the others.

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
    /// Whose promise it was.
    pub party: Party,
    /// What happened, in one plain sentence.
    pub sentence: String,
    /// The words of the standard, and which standard.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cites: String,
}

/// Who made the promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Party {
    /// The storage driver under test.
    Driver,
    /// The volume manager: our bug, never the driver's failure.
    Manager,
    /// The harness or the machine.
    Environment,
}

impl Finding {
    /// What makes two findings the same.
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.contract, &self.method, &self.cause)
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
