//! Calls that were left hanging.

use std::sync::{Mutex, PoisonError};

use fuser::Errno;

type Answer = Box<dyn FnOnce(Errno) + Send>;

/// The answers that were not given yet. Dropped, they fail by themselves.
#[derive(Default)]
pub(super) struct Held(Mutex<Vec<Answer>>);

impl Held {
    /// Keeps an answer back.
    pub(super) fn hold(&self, answer: impl FnOnce(Errno) + Send + 'static) {
        self.lock().push(Box::new(answer));
    }

    /// The number of held calls.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Gives all of them, as an error.
    pub(super) fn release(&self) {
        let held = std::mem::take(&mut *self.lock());
        for answer in held {
            answer(Errno::EIO);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
