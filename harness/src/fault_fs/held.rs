//! Calls that hang until the file system releases them.

use std::sync::{Mutex, PoisonError};

use fuser::Errno;

type Answer = Box<dyn FnOnce(Errno) + Send>;

/// The answers that are held back. An answer that is dropped fails its call.
#[derive(Default)]
pub(super) struct Held(Mutex<Vec<Answer>>);

impl Held {
    /// Holds an answer back.
    pub(super) fn hold(&self, answer: impl FnOnce(Errno) + Send + 'static) {
        self.lock().push(Box::new(answer));
    }

    /// The number of held calls.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Answers all held calls with EIO.
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
