//! The time of a played world: real while something is under way, and skipped while nothing is.
//!
//! Back-offs, sleeps, the delays of calls and the deadlines of hanging ones are all waited for in steps. Before each
//! step the world is asked whether anything is being done; if not, its clocks skip, and if so, real time passes.

use std::time::{Duration, Instant};

use super::world::World;

/// The skip of the clocks while something may happen soon: shorter than the first step of any back-off.
const STRIDE: Duration = Duration::from_millis(100);

/// The longest skip, when nothing has happened for a while. No known end of a back-off is ever skipped.
const LONGEST: Duration = Duration::from_secs(1);

/// The time without events after which skips become longer.
const WHILE: Duration = Duration::from_secs(3);

/// The real time between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// The real time for an operation to start that is about to.
const SETTLE: Duration = Duration::from_millis(3);

/// The least real time of a wait: work in real time must not lose against skipped time.
const GRACE: Duration = Duration::from_secs(3);

/// The time of a world.
#[derive(Debug)]
pub(super) struct Time {
    started: Instant,
    skipped: Duration,
    /// Whether it may be skipped at all.
    skips: bool,
    /// When something last happened.
    latest: Duration,
}

impl Time {
    /// A clock that skips while nothing is under way, if `skips`. A play that a user watches does not skip.
    pub(super) fn new(skips: bool) -> Self {
        Self { started: Instant::now(), skipped: Duration::ZERO, skips, latest: Duration::ZERO }
    }

    /// The age of the world by its own clock.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed() + self.skipped
    }
}

impl World {
    /// Lets time pass until something has happened, or until `limit` is over. Returns whether it has.
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
            } else if self.time.skips && self.is_quiet().await {
                let stride = self.stride().await;
                self.skip(left.min(stride)).await;
            } else {
                tokio::time::sleep(PAUSE.min(left)).await;
            }
        }
    }

    /// Lets so much time pass.
    pub(super) async fn sleep(&mut self, time: Duration) {
        let end = self.time.now() + time;
        loop {
            self.tick().await;
            let left = end.saturating_sub(self.time.now());
            if left.is_zero() {
                return;
            }
            if self.time.skips && self.is_quiet().await {
                let stride = self.stride().await;
                self.skip(left.min(stride)).await;
            } else {
                tokio::time::sleep(PAUSE.min(left)).await;
            }
        }
    }

    async fn stride(&mut self) -> Duration {
        if self.time.now() - self.time.latest < WHILE {
            return STRIDE;
        }
        let waiting = self.node.dump().await.map(|dump| dump.waiting).unwrap_or_default();
        // An operation that is overdue is no longer wanted.
        let due = waiting.iter().map(|waiting| waiting.due_in_ms).filter(|due| *due > 0).min();
        due.map_or(LONGEST, |due| Duration::from_millis(due + 1).min(LONGEST))
    }

    async fn skip(&mut self, by: Duration) {
        let before = self.journal.position().0;
        self.time.skipped += by;
        if let Some(proxy) = self.try_proxy() {
            proxy.advance(by);
        }
        // A node that is down has no clock. The skip itself is a line of the journal.
        let own_lines = usize::from(self.node.advance(by).await.is_ok());
        tokio::time::sleep(SETTLE).await;
        if self.journal.position().0 > before + own_lines {
            self.time.latest = self.time.now();
        }
    }
}
