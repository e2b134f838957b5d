//! Guards: resources of the harness that are undone exactly once, with an error if that fails.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::wait::TimedOut;

/// A resource that exists until it is closed.
///
/// Dropping a guard undoes the resource too, never panics, and leaves a note for the census if that failed
/// ([`take_notes`]).
pub trait Guard {
    /// Undoes the resource and reports an error.
    fn close(self) -> Result<(), CloseError>;
}

/// A resource that could not be undone.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// A mount is in use.
    #[error("cannot unmount `{target}`: held by {holders}")]
    Busy {
        target: PathBuf,
        /// Processes that use it.
        holders: String,
    },
    /// A mount could not be unmounted for another reason.
    #[error("cannot unmount `{target}`")]
    Unmount {
        target: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A loop device is still attached.
    #[error("cannot detach `loop{number}`: held by {holders}")]
    Attached {
        number: u32,
        /// Processes that use it.
        holders: String,
        #[source]
        source: TimedOut,
    },
    /// Another system call failed.
    #[error("cannot {what}")]
    Os {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot wait any longer")]
    Hung(#[from] TimedOut),
}

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Closes a guard for its `Drop`, and leaves a note if that fails.
pub(crate) fn undo(what: impl fmt::Display, close: impl FnOnce() -> Result<(), CloseError>) {
    if let Err(error) = close() {
        let cause = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(format!("{what}: {error}{cause}"));
    }
}

/// Notes of dropped guards of this process that could not be undone, since the last call.
pub fn take_notes() -> Vec<String> {
    std::mem::take(&mut *NOTES.lock().unwrap_or_else(PoisonError::into_inner))
}
