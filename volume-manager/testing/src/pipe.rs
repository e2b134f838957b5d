//! A connection in memory between a node and a driver.

use std::convert::Infallible;
use std::path::Path;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use plugin_api::{Connection, DialError};
use tokio::io::DuplexStream;
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::codegen::{Service, http};

/// The bytes that are under way in one direction: a few calls.
const ROOM: usize = 1 << 13;

/// The node's end of a connection.
#[derive(Debug)]
pub struct Pipe(DuplexStream);

/// Serves one connection, and returns its other end and the task that serves it. A call is broken off when the task ends.
pub fn serve<S>(service: S) -> (Pipe, AbortHandle)
where
    S: Service<http::Request<Incoming>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let (ours, theirs) = tokio::io::duplex(ROOM);
    let serving = tokio::spawn(async move {
        let server = http2::Builder::new(TokioExecutor::new());
        // The end of a connection does not matter: its calls are recorded one by one.
        let _ = server.serve_connection(TokioIo::new(theirs), TowerToHyperService::new(service)).await;
    });
    (Pipe(ours), serving.abort_handle())
}

impl Pipe {
    /// The connection, as if `endpoint` had been dialled.
    ///
    /// # Errors
    /// When the server has gone.
    pub async fn connection(self, endpoint: &Path) -> Result<Connection, DialError> {
        let connected = Connection::over(self.0).await;
        connected.map_err(|error| DialError { endpoint: endpoint.to_owned(), source: Box::new(error) })
    }
}

/// The failure of a dial to a driver that is down.
pub fn refused(endpoint: &Path) -> DialError {
    DialError { endpoint: endpoint.to_owned(), source: no_listener().into() }
}

fn no_listener() -> std::io::Error {
    std::io::ErrorKind::ConnectionRefused.into()
}
