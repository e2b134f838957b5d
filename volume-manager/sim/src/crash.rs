//! Crashes of the manager in the middle of its work: at a step of the kernel, at a call to the driver, or at a
//! request to the API.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::script::CrashPoint;

/// Decides when the manager crashes. Clones share the decision.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crash(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    ordered: Option<Ordered>,
    /// Whether the manager has crashed: none of its actions takes effect any more.
    dead: bool,
    crashed: Arc<Notify>,
}

#[derive(Debug)]
struct Ordered {
    point: CrashPoint,
    /// The number of actions until the crash.
    left: u32,
    /// Whether the last of them takes effect.
    after: bool,
}

/// The effect of a crash on an action of the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// The action takes effect.
    GoesOn,
    /// It does not take effect: the manager has crashed.
    Ended,
    /// It takes effect, and the manager crashes before it gets the answer.
    EndsAfter,
}

impl Crash {
    /// Orders a crash at the `left`-th action at `point`, counted from now.
    pub(crate) fn order(&self, point: CrashPoint, left: u32, after: bool) {
        self.open().ordered = Some(Ordered { point, left, after });
    }

    /// Cancels the ordered crash.
    pub(crate) fn countermand(&self) {
        self.open().ordered = None;
    }

    /// The manager has started again.
    pub(crate) fn revive(&self) {
        let mut inner = self.open();
        inner.dead = false;
        inner.ordered = None;
    }

    /// Notified when the ordered crash has happened.
    pub(crate) fn crashed(&self) -> Arc<Notify> {
        Arc::clone(&self.open().crashed)
    }

    /// Counts an action of the manager and decides about it.
    pub(crate) fn reach(&self, point: CrashPoint) -> Life {
        let mut inner = self.open();
        if inner.dead {
            return Life::Ended;
        }
        let Some(ordered) = inner.ordered.as_mut().filter(|ordered| ordered.point == point) else {
            return Life::GoesOn;
        };
        ordered.left -= 1;
        if ordered.left > 0 {
            return Life::GoesOn;
        }
        let after = ordered.after;
        inner.ordered = None;
        if after {
            return Life::EndsAfter;
        }
        inner.die();
        Life::Ended
    }

    /// Crashes the manager if it was to crash after this action.
    pub(crate) fn happens(&self) {
        self.open().die();
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn die(&mut self) {
        self.dead = true;
        self.crashed.notify_one();
    }
}
