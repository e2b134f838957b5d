//! How fast the API answers: at once, or after a while that differs from request to request, so that answers
//! overtake each other.

use std::time::Duration;

use fastrand::Rng;

/// Decides about requests, and about what watchers are told.
#[derive(Debug)]
pub(super) struct Pace {
    random: Rng,
    most: Duration,
}

impl Pace {
    /// One at which each way takes up to `most`.
    pub(super) fn new(seed: u64, most: Duration) -> Self {
        Self { random: Rng::with_seed(seed ^ 0xa91), most }
    }

    /// Everything is answered at once from now on.
    pub(super) fn heal(&mut self) {
        self.most = Duration::ZERO;
    }

    /// How long the next way takes. Every second one takes no time, however slow the API is.
    pub(super) fn next(&mut self) -> Duration {
        if self.most.is_zero() || self.random.bool() {
            return Duration::ZERO;
        }
        self.most.mul_f64(self.random.f64())
    }
}
