//! Waiting with a deadline. Nothing in a run waits without one, and what hung is named.

use std::fmt;
use std::future::Future;
use std::thread;
use std::time::{Duration, Instant};

/// A wait that took too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("gave up after {}: {what}", Seconds(*waited))]
pub struct TimedOut {
    /// What did not happen, as a sentence fragment: "loop3 is still attached".
    pub what: String,
    /// How long it was waited for.
    pub waited: Duration,
}

/// A moment after which nobody waits any longer.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    begin: Instant,
    limit: Duration,
}

impl Deadline {
    /// A deadline this far from now.
    pub fn after(limit: Duration) -> Deadline {
        Deadline { begin: Instant::now(), limit }
    }

    /// The time that is left; zero when it has passed.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begin.elapsed())
    }

    /// Whether it has passed.
    pub fn passed(&self) -> bool {
        self.left().is_zero()
    }

    /// The error of whoever waited for `what` until now.
    pub fn timed_out(&self, what: impl fmt::Display) -> TimedOut {
        TimedOut { what: what.to_string(), waited: self.begin.elapsed() }
    }

    /// Looks again and again until `look` finds something, blocking the thread in between.
    ///
    /// For what the kernel does by itself shortly after a call and tells nobody about. The pauses grow from
    /// a tenth of a millisecond, so a thing that is there at once costs nothing.
    pub fn until<T>(
        &self,
        what: impl fmt::Display,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, TimedOut> {
        let mut pause = Duration::from_micros(100);
        loop {
            // Looked at once more after the deadline: the pause may have slept past it.
            let late = self.passed();
            if let Some(found) = look() {
                return Ok(found);
            }
            if late {
                return Err(self.timed_out(what));
            }
            thread::sleep(pause.min(self.left()));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

/// Awaits `future` for at most `limit`.
pub async fn within<T>(
    what: impl fmt::Display,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, TimedOut> {
    let deadline = Deadline::after(limit);
    tokio::time::timeout(limit, future).await.map_err(|_| deadline.timed_out(what))
}

/// A duration as people say it: `250 ms`, `5 s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < Duration::from_secs(1) {
            write!(f, "{} ms", self.0.as_millis())
        } else {
            write!(f, "{} s", self.0.as_secs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_even_with_no_time_left() {
        let none_left = Deadline::after(Duration::ZERO);
        assert_eq!(none_left.until("never", || Some(7)), Ok(7));
    }

    #[test]
    fn what_hung_is_named() {
        let error = Deadline::after(Duration::ZERO).until("loop3 is still attached", || None::<()>);
        assert_eq!(error.unwrap_err().to_string(), "gave up after 0 ms: loop3 is still attached");
    }
}
