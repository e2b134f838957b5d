//! A connection to a driver, once there is one: HTTP/2 and nothing around it.
//!
//! tonic's own channel dials by itself, dials again, and passes each call on to a task. A volume manager decides when it
//! dials, and as the kubelet it does so for every call. Touches the bytes of the connection only.

use std::fmt;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic::codegen::http::header::USER_AGENT;
use tonic::codegen::http::uri::{Authority, PathAndQuery, Scheme};
use tonic::codegen::http::{HeaderValue, Request, Response, Uri};
use tonic::codegen::{BoxFuture, Service};

/// Clones are the same connection, which ends with the last of them.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<Body>,
}

impl Connection {
    /// Speaks HTTP/2 over a stream. A task of the runtime serves it.
    ///
    /// # Errors
    /// When the other end has gone already.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, hyper::Error> {
        let (sender, served) = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = served.await {
                // Each of its calls has its error.
                tracing::debug!(%error, "a connection to a driver has failed");
            }
        });
        Ok(Self { sender })
    }

    /// Whether the other end has gone: no call can be made any more.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("closed", &self.is_closed()).finish()
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A connection that is closed is the error of the call: tonic makes one of this a failure for good.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        *request.uri_mut() = at_localhost(request.uri().path_and_query());
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        Box::pin(self.sender.send_request(request))
    }
}

const AGENT: &str = concat!("volproof/", env!("CARGO_PKG_VERSION"));

/// The address that drivers see: a socket has none, and gRPC wants one.
fn at_localhost(path: Option<&PathAndQuery>) -> Uri {
    let mut parts = tonic::codegen::http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(Authority::from_static("localhost"));
    parts.path_and_query = Some(path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    Uri::from_parts(parts).expect("it has all three parts")
}
