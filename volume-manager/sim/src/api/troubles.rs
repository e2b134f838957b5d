//! Requests of controllers that fail: the server is not reached, or its answer is lost.

use fastrand::Rng;

/// A request without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The request takes no effect.
    Before,
    /// It takes effect, and its client does not hear of it.
    After,
}

/// Decides which requests fail.
#[derive(Debug)]
pub(super) struct Troubles {
    random: Rng,
    per_mille: u32,
}

impl Troubles {
    pub(super) fn new(seed: u64, per_mille: u32) -> Self {
        Self { random: Rng::with_seed(seed ^ 0x10_57), per_mille }
    }

    /// Ends all of them.
    pub(super) fn heal(&mut self) {
        self.per_mille = 0;
    }

    /// The fate of the next request.
    pub(super) fn next(&mut self) -> Option<Unanswered> {
        let fails = self.per_mille > 0 && self.random.u32(..1000) < self.per_mille;
        fails.then(|| if self.random.bool() { Unanswered::Before } else { Unanswered::After })
    }
}
