//! The difference from an earlier run: findings that are new, mended or still there, and cases that take longer.
//!
//! It is only reported: the exit code does not depend on it. [`difference`](crate::difference) computes it.

use serde::{Deserialize, Serialize};
use testbed::case::CaseId;

/// The difference between two runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Since {
    /// The earlier run, as the user named it.
    pub run: String,
    pub new: Vec<Fault>,
    pub mended: Vec<Fault>,
    pub still_there: Vec<Fault>,
    /// Faults of the earlier run whose cases had no verdict in this run.
    pub not_tried: Vec<Fault>,
    /// Cases that passed in both runs and took much longer in this one.
    pub slower: Vec<Slower>,
}

/// A fault, and the case that shows it best.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The promise; the case itself if there is no promise.
    pub contract: String,
    pub case: CaseId,
    pub sentence: String,
}

/// A case that takes longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slower {
    pub case: CaseId,
    pub before: f64,
    pub now: f64,
}

impl Since {
    /// The lists of faults, each with its label.
    pub fn lists(&self) -> [(&'static str, &[Fault]); 4] {
        [
            ("new", &self.new),
            ("mended", &self.mended),
            ("still there", &self.still_there),
            ("not tried", &self.not_tried),
        ]
    }

    /// `1 new, 2 mended, 1 slower`, without empty lists.
    pub fn tally(&self) -> String {
        let counts = self.lists().map(|(word, list)| (word, list.len()));
        let counts = counts.into_iter().chain([("slower", self.slower.len())]);
        let parts: Vec<String> =
            counts.filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")).collect();
        if parts.is_empty() { "nothing has changed".to_owned() } else { parts.join(", ") }
    }
}
