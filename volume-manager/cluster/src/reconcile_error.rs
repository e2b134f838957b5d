//! The error of a reconciliation, which the controller tries again after a pause.

use api::storage::AttachmentError;
use api::{ApiError, Key, Kind};
use tonic::{Code, Status};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("rpc error: code = {} desc = {}", code_name(code_of(.0)), message_of(.0))]
    Driver(Status),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("PersistentVolume {volume:?} is marked for deletion")]
    Leaving { volume: String },
    #[error("PersistentVolume {volume:?} is not a volume of this driver")]
    Foreign { volume: String },
    #[error("CSINode {node} does not contain driver {driver}")]
    Unregistered { node: String, driver: String },
    /// Something is not as it has to be, and may change with another object.
    #[error("{reason}")]
    Unfit { reason: String, missed: Option<Key> },
    /// No repetition is expected to mend it, so the next one is after the longest pause.
    #[error("{reason}")]
    Infeasible { reason: String },
}

impl ReconcileError {
    /// Something is not as it has to be.
    pub(crate) fn unfit(reason: impl Into<String>) -> Self {
        Self::Unfit { reason: reason.into(), missed: None }
    }

    /// Something is not as it has to be before another object appears or changes.
    pub(crate) fn until(missed: Key, reason: impl Into<String>) -> Self {
        Self::Unfit { reason: reason.into(), missed: Some(missed) }
    }

    /// The object whose appearance or change may mend it.
    pub(crate) fn missed(&self) -> Option<Key> {
        match self {
            Self::Api(ApiError::NotFound { key }) => Some(key.clone()),
            Self::Unregistered { node, .. } => Some(Key::cluster(Kind::CsiNode, node)),
            Self::Unfit { missed, .. } => missed.clone(),
            _ => None,
        }
    }

    /// Whether it is tried again after the longest pause only.
    pub(crate) fn is_infeasible(&self) -> bool {
        matches!(self, Self::Infeasible { .. })
    }

    /// The driver's code, where it was the driver that refused.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Driver(status) => Some(code_of(status)),
            _ => None,
        }
    }

    pub(crate) fn as_error(&self) -> AttachmentError {
        AttachmentError { message: self.to_string(), code: self.code().map(i32::from) }
    }
}

/// Whether a driver may do what it was asked for, or have done it, although its call failed.
pub(crate) fn is_unknown(code: Code) -> bool {
    use Code::{Aborted, Cancelled, DeadlineExceeded, Unavailable};
    matches!(code, Aborted | Cancelled | DeadlineExceeded | Unavailable)
}

/// Whether a driver may take a snapshot, or have taken it, although its call failed: it may also have run out of
/// something in the middle.
pub(crate) fn may_exist(code: Code) -> bool {
    is_unknown(code) || code == Code::ResourceExhausted
}

/// The code as the client of a controller in a cluster has it.
fn code_of(status: &Status) -> Code {
    if csi_proto::is_timeout(status) { Code::DeadlineExceeded } else { status.code() }
}

fn message_of(status: &Status) -> &str {
    if csi_proto::is_timeout(status) { "context deadline exceeded" } else { status.message() }
}

/// The name of a code as Kubernetes' events write it.
fn code_name(code: Code) -> String {
    match code {
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}
