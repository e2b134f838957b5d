//! Connections to drivers through their Unix sockets.

use std::path::Path;

use async_trait::async_trait;
use plugin_api::{Connection, DialError, Dialer};
use tokio::net::UnixStream;

/// Connects to Unix sockets.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketDialer;

#[async_trait]
impl Dialer for SocketDialer {
    async fn dial(&self, endpoint: &Path) -> Result<Connection, DialError> {
        let failed = |source| DialError { endpoint: endpoint.to_owned(), source };
        let stream = UnixStream::connect(endpoint).await.map_err(|error| failed(error.into()))?;
        Connection::over(stream).await.map_err(|error| failed(error.into()))
    }
}
