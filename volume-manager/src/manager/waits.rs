//! Waiting for the state of a pod: who waits for what, until when, and what they are told.

use serde::{Deserialize, Serialize};

use crate::names::OuterName;

/// Why a wait came back without what it waited for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum WaitError {
    /// Not every volume of the pod is there.
    #[error(
        "unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]: {cause}",
        join(unmounted),
        join(unattached),
        join(unprocessed)
    )]
    NotMounted {
        /// The volumes that are not there.
        unmounted: Vec<OuterName>,
        /// Those of them that are not attached, and have to be.
        unattached: Vec<OuterName>,
        /// Those of them that are not even desired.
        unprocessed: Vec<OuterName>,
        /// Why the wait ended.
        cause: WaitCause,
    },
    /// The pod still has volumes, may have some, or something is under way for it.
    #[error("mounted volumes=[{}]: {cause}", join(mounted))]
    StillMounted {
        /// The volumes, by their names in the pod where those are known, else by their inner names.
        mounted: Vec<String>,
        /// Why the wait ended.
        cause: WaitCause,
    },
    /// Something is under way.
    #[error("the manager is not idle: {}: {cause}", busy.join(", "))]
    Busy {
        /// What.
        busy: Vec<String>,
        /// Why the wait ended.
        cause: WaitCause,
    },
    /// The node can attach no more volumes of a driver.
    #[error("Node has reached its volume attachment limit, rejecting pod. {text}")]
    AttachmentLimit {
        /// The driver's message and which volumes it is about.
        text: String,
    },
    /// The manager has ended.
    #[error("the volume manager has ended")]
    Gone,
}

/// Why a wait ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum WaitCause {
    /// Its time was over.
    #[error("context deadline exceeded")]
    Deadline,
    /// The pod went away.
    #[error("context canceled")]
    Canceled,
    /// Something about the pod is wrong, and waiting will not help.
    #[error("{0}")]
    Errors(String),
}

fn join<T: ToString>(names: &[T]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
