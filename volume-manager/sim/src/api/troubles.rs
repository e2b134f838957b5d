//! Controllers' requests to the API server that fail: the request or its answer is lost.

use fastrand::Rng;

/// The fault of a request without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The request is lost, and takes no effect.
    Before,
    /// The answer is lost: the request takes effect, but its client gets an error.
    After,
}

/// Decides at random which requests fail.
#[derive(Debug)]
pub(super) struct Troubles {
    random: Rng,
    per_mille: u32,
}

impl Troubles {
    pub(super) fn new(seed: u64, per_mille: u32) -> Self {
        Self { random: Rng::with_seed(seed ^ 0x10_57), per_mille }
    }

    /// Lets every later request succeed.
    pub(super) fn heal(&mut self) {
        self.per_mille = 0;
    }

    /// The fault of the next request, if it fails.
    pub(super) fn next(&mut self) -> Option<Unanswered> {
        let fails = self.per_mille > 0 && self.random.u32(..1000) < self.per_mille;
        fails.then(|| if self.random.bool() { Unanswered::Before } else { Unanswered::After })
    }
}
