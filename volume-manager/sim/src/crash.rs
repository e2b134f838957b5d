//! When the manager crashes in the middle of something: at a step of the kernel, at a call to the driver, or
//! at a request to the API.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::script::Place;

/// Decides when the manager crashes. Clones are the same decision.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crash(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    ordered: Option<Ordered>,
    /// The manager has crashed: nothing of it happens any more.
    dead: bool,
    crashed: Arc<Notify>,
}

#[derive(Debug)]
struct Ordered {
    place: Place,
    /// How many of them there are until then.
    left: u32,
    /// Whether the last of them takes effect.
    after: bool,
}

/// What becomes of something that the manager has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It happens.
    GoesOn,
    /// It does not happen: the manager is no more.
    Ended,
    /// It happens, and then the manager crashes, before it hears of it.
    EndsAfter,
}

impl Crash {
    /// The manager is to crash at the so-manieth of what happens at `place`, counted from now.
    pub(crate) fn order(&self, place: Place, left: u32, after: bool) {
        self.open().ordered = Some(Ordered { place, left, after });
    }

    /// Nothing is ordered any more.
    pub(crate) fn countermand(&self) {
        self.open().ordered = None;
    }

    /// The manager has started again.
    pub(crate) fn revive(&self) {
        let mut inner = self.open();
        inner.dead = false;
        inner.ordered = None;
    }

    /// Is notified when a crash that was ordered has happened.
    pub(crate) fn crashed(&self) -> Arc<Notify> {
        Arc::clone(&self.open().crashed)
    }

    /// The manager begins something.
    pub(crate) fn reach(&self, place: Place) -> Life {
        let mut inner = self.open();
        if inner.dead {
            return Life::Ended;
        }
        let Some(ordered) = inner.ordered.as_mut().filter(|ordered| ordered.place == place) else {
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

    /// What the manager was to end after has happened.
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
