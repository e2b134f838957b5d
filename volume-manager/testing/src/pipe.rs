//! A connection in memory between a node and a driver.

use std::path::Path;

use hyper_util::rt::TokioIo;
use plugin_api::DialError;
use tokio::io::DuplexStream;
use tokio::task::AbortHandle;
use tonic::transport::server::Router;
use tonic::transport::{Channel, Endpoint};

/// The node's end of a connection.
#[derive(Debug)]
pub struct Pipe(DuplexStream);

/// Serves one connection, and returns its other end and the task that serves it.
pub fn serve(server: Router) -> (Pipe, AbortHandle) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let incoming = futures::stream::iter([Ok::<_, std::io::Error>(theirs)]);
    let serving = tokio::spawn(server.serve_with_incoming(incoming));
    (Pipe(ours), serving.abort_handle())
}

impl Pipe {
    /// A channel through this connection, as if `endpoint` had been dialled. It is not dialled again.
    ///
    /// # Errors
    /// When the server has gone.
    pub async fn channel(self, endpoint: &Path) -> Result<Channel, DialError> {
        let mut ours = Some(self.0);
        let connector = tower::service_fn(move |_| {
            let ours = ours.take().map(TokioIo::new);
            async move { ours.ok_or_else(no_listener) }
        });
        let connected = Endpoint::from_static("http://localhost").connect_with_connector(connector).await;
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
