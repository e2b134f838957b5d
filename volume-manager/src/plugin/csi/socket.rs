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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::clock::{Clock as _, TokioClock};
    use csi_proto::v1::NodeGetInfoRequest;
    use csi_proto::v1::node_client::NodeClient;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;
    use tonic::Status;
    use tonic::transport::Endpoint;

    use super::*;
    use crate::plugin::csi::status::CallError;

    /// What a server sends before it closes the connection: nothing, an empty SETTINGS frame, or no HTTP/2.
    const SENT: [&[u8]; 3] = [b"", b"\0\0\0\x04\0\0\0\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n"];

    #[tokio::test]
    async fn lost_call_is_what_it_is_to_tonics_own_channel() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("csi.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            for sent in SENT.iter().flat_map(|sent| [sent, sent]) {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(sent).await.unwrap();
                // The preface, the settings and the call, in one piece or in several.
                let _ = stream.read(&mut [0; 1000]).await.unwrap();
                TokioClock.sleep(Duration::from_millis(20)).await;
                let _ = stream.try_read(&mut [0; 1000]);
            }
        });
        let told = |status: Status| CallError::new("NodeGetInfo", &status, []);
        for sent in SENT {
            let connection = SocketDialer.dial(&path).await.unwrap();
            let ours = NodeClient::new(connection).node_get_info(NodeGetInfoRequest {}).await.unwrap_err();
            let channel = Endpoint::try_from(format!("unix:{}", path.display())).unwrap().connect().await;
            let theirs = NodeClient::new(channel.unwrap()).node_get_info(NodeGetInfoRequest {}).await;
            assert_eq!(told(ours), told(theirs.unwrap_err()), "{:?}", sent.escape_ascii().to_string());
        }
        server.await.unwrap();
    }
}
