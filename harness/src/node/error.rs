//! Errors between a node and its handle.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use api::ApiError;

use crate::driver::Exit;

/// Why a node did not carry out an order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A socket or the log cannot be created.
    #[error("cannot prepare `{path}` for the node")]
    Prepare {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The process cannot be started.
    #[error("cannot start the node's process")]
    Start(#[source] io::Error),
    /// The process did not become ready.
    #[error("cannot use the node: it was not ready within {} s", within.as_secs())]
    NotReady { within: Duration },
    /// The process has ended.
    #[error("the node has exited ({exit})")]
    Exited { exit: Exit },
    /// The node was killed and not started again.
    #[error("the node is not running")]
    Down,
    /// The node runs but does not answer.
    #[error("the node does not answer, asked to {what}")]
    Silent {
        /// The order that failed.
        what: String,
    },
    /// The node reports that the order failed.
    #[error("{0}")]
    Refused(String),
    /// An object could not be written.
    #[error("cannot write the pod `{pod}`")]
    Api {
        pod: String,
        #[source]
        source: ApiError,
    },
}
