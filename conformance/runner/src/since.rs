//! What has changed since an earlier run: findings that are new, mended or still there, and cases that take longer.
//!
//! It tells, and decides nothing: a run exits as it would without it. [`difference`](crate::difference) finds it.

use serde::{Deserialize, Serialize};
use testbed::case::CaseId;

/// The difference between two runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Since {
    /// The earlier run, as the user has named it.
    pub run: String,
    pub new: Vec<Fault>,
    pub mended: Vec<Fault>,
    pub still_there: Vec<Fault>,
    /// Of the earlier run, and none of their cases came to a verdict in this one.
    pub not_tried: Vec<Fault>,
    /// Passed in both, and took much longer in this one.
    pub slower: Vec<Slower>,
}

/// Something that was found, and the case that shows it best.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The promise; the case itself where no promise says it.
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
    /// The faults by what became of them, each list with its word.
    pub fn lists(&self) -> [(&'static str, &[Fault]); 4] {
        [
            ("new", &self.new),
            ("mended", &self.mended),
            ("still there", &self.still_there),
            ("not tried", &self.not_tried),
        ]
    }

    /// `1 new, 2 mended, 1 slower`; what is not there is not said.
    pub fn tally(&self) -> String {
        let counts = self.lists().map(|(word, list)| (word, list.len()));
        let counts = counts.into_iter().chain([("slower", self.slower.len())]);
        let told: Vec<String> =
            counts.filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")).collect();
        if told.is_empty() { "nothing has changed".to_owned() } else { told.join(", ") }
    }
}
