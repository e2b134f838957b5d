//! The clock that the kernel's messages have as well: time since boot, which no program can set. Reads nothing but that.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Milliseconds since boot.
pub fn milliseconds() -> f64 {
    // Every kernel has this clock.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_secs_f64() * 1e3
}
