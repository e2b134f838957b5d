//! The errors of putting up a testbed, and of starting a part of it again.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use api::ApiError;

use super::FixtureError;
use crate::api_server::{HttpApiError, ServeError};
use crate::driver::{DriverError, PreparationError, RegistrarError};
use crate::filesystem::MountError;
use crate::node::NodeError;
use crate::proxy::ProxyError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    #[error("cannot prepare the driver's case")]
    Preparation(#[from] PreparationError),
    #[error("cannot prepare the driver's case")]
    Fixture(#[from] FixtureError),
    #[error("cannot give the driver the API of a cluster")]
    Http(#[from] HttpApiError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Registrar(#[from] RegistrarError),
    #[error("cannot write the objects of the node and its driver")]
    Api(#[from] ApiError),
    #[error("cannot make `{path}`")]
    Prepare {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot make the root of another node")]
    Root(#[from] MountError),
    #[error("cannot watch the mounts of another node")]
    Watch(#[source] io::Error),
    /// The node's own words.
    #[error("{0}")]
    Refused(String),
    #[error("the node did not look at the driver within {} s", within.as_secs())]
    NotRegistered { within: Duration },
}
