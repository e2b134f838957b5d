//! Waits with a deadline. Every wait of a run has one, and its error names the awaited event.

use std::fmt;
use std::future::Future;
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A wait that took too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("gave up after {}: {what}", Seconds(*waited))]
pub struct TimedOut {
    /// The state at the end, as a sentence fragment: "loop3 is still attached".
    pub what: String,
    pub waited: Duration,
}

/// The end of a wait.
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

    /// Zero after the deadline.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begin.elapsed())
    }

    pub fn passed(&self) -> bool {
        self.left().is_zero()
    }

    /// The error of a wait for `what` that ends now.
    pub fn timed_out(&self, what: impl fmt::Display) -> TimedOut {
        TimedOut { what: what.to_string(), waited: self.begin.elapsed() }
    }

    /// Polls `look` until it returns something. Blocks the thread.
    ///
    /// For changes that the kernel makes shortly after a call without an event. The pauses grow from a tenth of a
    /// millisecond, so a change that comes at once costs no time.
    pub fn until<T>(
        &self,
        what: impl fmt::Display,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, TimedOut> {
        let mut pause = Duration::from_micros(100);
        loop {
            // A last look after the deadline, since the pause may have slept past it.
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

    /// Waits until a child has ended. Blocks the thread, and no longer than the child takes.
    pub fn until_ended(&self, what: impl fmt::Display, child: &mut Child) -> Result<ExitStatus, TimedOut> {
        // Readable when it has ended. Where there is no such descriptor, the looks below see it.
        if let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
            let left = PollTimeout::try_from(self.left()).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], left);
        }
        self.until(what, || child.try_wait().ok().flatten())
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

/// Displays a duration as `250 ms` or `5 s`.
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
    fn passed_deadline_still_looks_once() {
        let none_left = Deadline::after(Duration::ZERO);
        assert_eq!(none_left.until("never", || Some(7)), Ok(7));
    }

    #[test]
    fn child_is_waited_for_until_it_has_ended_or_the_deadline_passes() {
        let sleep = |seconds: &str| std::process::Command::new("sleep").arg(seconds).spawn().unwrap();
        let ended = Deadline::after(Duration::from_secs(60)).until_ended("never", &mut sleep("0.01"));
        assert!(ended.unwrap().success());
        let mut long = sleep("600");
        let late = Deadline::after(Duration::from_millis(1)).until_ended("it still sleeps", &mut long);
        assert_eq!(late.unwrap_err().what, "it still sleeps");
        long.kill().unwrap();
        long.wait().unwrap();
    }

    #[test]
    fn timeout_names_what_it_waited_for() {
        let error = Deadline::after(Duration::ZERO).until("loop3 is still attached", || None::<()>);
        assert_eq!(error.unwrap_err().to_string(), "gave up after 0 ms: loop3 is still attached");
    }
}
