//! The time of a played world: real while something is under way, and skipped while nothing is.
//!
//! Back-offs, sleeps, the delays of calls and the deadlines of hanging ones are all waited for in steps. Before each
//! step the world is asked whether anything is being done; if not, its clocks skip, and if so, real time passes.

use std::time::{Duration, Instant};

use super::world::World;

/// How far the clocks skip at once while anything may happen soon: less than the first rung of any ladder.
const STRIDE: Duration = Duration::from_millis(100);

/// How far at most, when nothing has happened for a while. No known end of a back-off is ever jumped over.
const LONGEST: Duration = Duration::from_secs(1);

/// How long a while is.
const WHILE: Duration = Duration::from_secs(3);

/// How long real time passes before it is looked again.
const PAUSE: Duration = Duration::from_millis(2);

/// How long something that is about to begin may take to do so.
const SETTLE: Duration = Duration::from_millis(3);

/// Real time that a wait lasts at least: what is done in real time must not lose against skipped time.
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
    /// Time that is skipped where nothing is under way, or not: whoever looks on has a clock of his own.
    pub(super) fn new(skips: bool) -> Self {
        Self { started: Instant::now(), skipped: Duration::ZERO, skips, latest: Duration::ZERO }
    }

    /// How long the world exists, by its own clock.
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
                // Nobody is left who could do anything.
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
        // What could have been tried again already is what nobody wants any more.
        let due = waiting.iter().map(|waiting| waiting.due_in_ms).filter(|due| *due > 0).min();
        due.map_or(LONGEST, |due| Duration::from_millis(due + 1).min(LONGEST))
    }

    async fn skip(&mut self, by: Duration) {
        let before = self.journal.position().0;
        self.time.skipped += by;
        if let Some(proxy) = self.try_proxy() {
            proxy.advance(by);
        }
        // A node that is down has no clock. That it was told to skip is a line of its own.
        let told = usize::from(self.node.advance(by).await.is_ok());
        tokio::time::sleep(SETTLE).await;
        if self.journal.position().0 > before + told {
            self.time.latest = self.time.now();
        }
    }
}
