//! What every resource of the harness has in common: it is undone once, and whoever undoes it is told how
//! that went.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::wait::TimedOut;

/// A resource that exists until it is closed.
///
/// Dropping one undoes it as well as it can, never panics, and leaves a note for the census where that
/// failed ([`take_notes`]).
pub trait Guard {
    /// Undoes the resource and says what stood in the way.
    fn close(self) -> Result<(), CloseError>;
}

/// Why a resource could not be undone.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// A mount is in use.
    #[error("cannot unmount `{target}`: held by {holders}")]
    Busy {
        /// Where it is mounted.
        target: PathBuf,
        /// Who uses it.
        holders: String,
    },
    /// A mount could not be undone for another reason.
    #[error("cannot unmount `{target}`")]
    Unmount {
        /// Where it is mounted.
        target: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A loop device is still attached.
    #[error("cannot detach `loop{number}`: held by {holders}")]
    Attached {
        /// Its number.
        number: u32,
        /// Who uses it.
        holders: String,
        /// How long it was waited for.
        #[source]
        source: TimedOut,
    },
    /// A call to the kernel was refused.
    #[error("cannot {what}")]
    Os {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Something did not end in time.
    #[error("cannot wait any longer")]
    Hung(#[from] TimedOut),
}

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Closes a guard on behalf of its `Drop`, leaving a note where that fails.
pub(crate) fn undo(what: impl fmt::Display, close: impl FnOnce() -> Result<(), CloseError>) {
    if let Err(error) = close() {
        let cause = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(format!("{what}: {error}{cause}"));
    }
}

/// What dropped guards of this process could not undo since the last call.
pub fn take_notes() -> Vec<String> {
    std::mem::take(&mut *NOTES.lock().unwrap_or_else(PoisonError::into_inner))
}
