//! The API's delays: none, or one that differs from request to request, so that answers overtake each other.

use std::time::Duration;

use fastrand::Rng;

/// Decides the delays of requests and of watched changes.
#[derive(Debug)]
pub(super) struct Pace {
    random: Rng,
    most: Duration,
}

impl Pace {
    /// Delays of up to `most` in each direction.
    pub(super) fn new(seed: u64, most: Duration) -> Self {
        Self { random: Rng::with_seed(seed ^ 0xa91), most }
    }

    pub(super) fn heal(&mut self) {
        self.most = Duration::ZERO;
    }

    /// The next delay. Every second one is zero, however slow the API is.
    pub(super) fn next(&mut self) -> Duration {
        if self.most.is_zero() || self.random.bool() {
            return Duration::ZERO;
        }
        self.most.mul_f64(self.random.f64())
    }
}
