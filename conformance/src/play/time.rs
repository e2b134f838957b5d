//! The clock of a played world: real time passes while an operation is under way; else the clock skips ahead.
//!
//! Back-offs, sleeps, delays of calls and deadlines of hanging calls are waited for in steps. If nothing is under way
//! before a step, all clocks of the world skip ahead; else a step of real time passes.

use std::time::{Duration, Instant};

use super::world::World;

/// The skip of the clocks while something may happen soon: shorter than the first step of any back-off.
const STRIDE: Duration = Duration::from_millis(100);

/// The longest skip, after a time without events. A skip ends earlier at the next known end of a back-off.
const LONGEST: Duration = Duration::from_secs(1);

/// The time without events after which skips become longer.
const QUIET: Duration = Duration::from_secs(3);

/// The real time between two checks for the awaited event.
const PAUSE: Duration = Duration::from_millis(2);

/// The real time that a due operation gets to start after a skip.
const SETTLE: Duration = Duration::from_millis(3);

/// The least real time before a wait gives up: a driver works in real time, however far the clocks have skipped.
const GRACE: Duration = Duration::from_secs(3);

/// The time of a world.
#[derive(Debug)]
pub(super) struct Time {
    started: Instant,
    skipped: Duration,
    /// False for a play that a user watches.
    may_skip: bool,
    /// The end of the last skip that an event followed.
    last_event: Duration,
}

impl Time {
    /// A clock that starts now. It skips while nothing is under way, if `may_skip`.
    pub(super) fn new(may_skip: bool) -> Self {
        Self { started: Instant::now(), skipped: Duration::ZERO, may_skip, last_event: Duration::ZERO }
    }

    /// The age of the world by its own clock.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed() + self.skipped
    }
}

impl World {
    /// Lets time pass until `happened` returns a value, and returns it; `None` after `limit` or if the node is dead.
    pub(super) async fn pass<F, T>(&mut self, limit: Duration, mut happened: F) -> Option<T>
    where
        F: AsyncFnMut(&mut Self) -> Option<T>,
    {
        let (begin, real) = (self.time.now(), Instant::now());
        loop {
            self.tick().await;
            if let Some(found) = happened(self).await {
                return Some(found);
            }
            if !self.node.is_running() {
                // The node is dead, so nothing can become due.
                return None;
            }
            let left = limit.saturating_sub(self.time.now() - begin);
            if left.is_zero() {
                if real.elapsed() >= GRACE.min(limit) {
                    return None;
                }
                tokio::time::sleep(PAUSE).await;
            } else if self.time.may_skip && self.is_quiet().await {
                let stride = self.stride().await;
                self.skip(left.min(stride)).await;
            } else {
                tokio::time::sleep(PAUSE.min(left)).await;
            }
        }
    }

    /// Lets `time` pass on the world's clock.
    pub(super) async fn sleep(&mut self, time: Duration) {
        let end = self.time.now() + time;
        loop {
            self.tick().await;
            let left = end.saturating_sub(self.time.now());
            if left.is_zero() {
                return;
            }
            if self.time.may_skip && self.is_quiet().await {
                let stride = self.stride().await;
                self.skip(left.min(stride)).await;
            } else {
                tokio::time::sleep(PAUSE.min(left)).await;
            }
        }
    }

    /// The length of the next skip.
    async fn stride(&mut self) -> Duration {
        if self.time.now() - self.time.last_event < QUIET {
            return STRIDE;
        }
        let waiting = self.node.dump().await.map(|dump| dump.waiting).unwrap_or_default();
        // An overdue operation (0 ms) is not wanted any more, so it does not limit the skip.
        let due = waiting.iter().map(|waiting| waiting.due_in_ms).filter(|due| *due > 0).min();
        due.map_or(LONGEST, |due| Duration::from_millis(due + 1).min(LONGEST))
    }

    async fn skip(&mut self, by: Duration) {
        let before = self.journal.position().0;
        self.time.skipped += by;
        if let Some(proxy) = self.try_proxy() {
            proxy.advance(by);
        }
        // The skip is a line of the journal itself, unless the node is down and has no clock.
        let own_lines = usize::from(self.node.advance(by).await.is_ok());
        tokio::time::sleep(SETTLE).await;
        if self.journal.position().0 > before + own_lines {
            self.time.last_event = self.time.now();
        }
    }
}
