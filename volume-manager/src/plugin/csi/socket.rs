//! Connections to drivers through their Unix sockets.

use std::path::Path;

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use plugin_api::{DialError, Dialer};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Connects to Unix sockets.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketDialer;

#[async_trait]
impl Dialer for SocketDialer {
    async fn dial(&self, endpoint: &Path) -> Result<Channel, DialError> {
        let socket = endpoint.to_owned();
        // The authority that drivers see; the connector ignores it.
        let address = Endpoint::from_static("http://localhost");
        let connector = service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let connected = address.connect_with_connector(connector).await;
        connected.map_err(|error| DialError { endpoint: endpoint.to_owned(), source: Box::new(error) })
    }
}
