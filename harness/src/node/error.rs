//! What can go wrong between a node and its handle.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use api::ApiError;

use crate::driver::Exit;

/// Why a node did not do what it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// One of its sockets or its log cannot be made.
    #[error("cannot prepare `{path}` for the node")]
    Prepare {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Its process cannot be started.
    #[error("cannot start the node's process")]
    Start(#[source] io::Error),
    /// It did not say that it is ready.
    #[error("cannot use the node: it was not ready within {} s", within.as_secs())]
    NotReady {
        /// How long it was given.
        within: Duration,
    },
    /// It has ended.
    #[error("the node has exited ({exit})")]
    Exited {
        /// How.
        exit: Exit,
    },
    /// It is not running: it was killed and not started again.
    #[error("the node is not running")]
    Down,
    /// It does not answer, though it runs: something in it hangs.
    #[error("the node does not answer, asked to {what}")]
    Silent {
        /// What it was asked for.
        what: String,
    },
    /// It says that what was asked for did not happen.
    #[error("{0}")]
    Refused(String),
    /// An object could not be written.
    #[error("cannot write the pod `{pod}`")]
    Api {
        pod: String,
        /// The cluster's answer.
        #[source]
        source: ApiError,
    },
}
