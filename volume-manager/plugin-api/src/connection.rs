//! A connection to a driver, once there is one: HTTP/2 and nothing around it.
//!
//! tonic's own channel dials by itself, dials again, and passes each call on to a task. A volume manager decides when it
//! dials, and as the kubelet it does so for every call. So what a new connection has to say, from its first bytes to the end
//! of its first call, leaves in one piece. Touches the bytes of the connection only.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt as _;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncWrite, BufWriter};
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::codegen::http::header::USER_AGENT;
use tonic::codegen::http::uri::{Authority, PathAndQuery, Scheme};
use tonic::codegen::http::{HeaderValue, Request, Response, Uri};
use tonic::codegen::{BoxFuture, Service, StdError};

/// Clones are the same connection, which ends with the last of them.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<Bytes>,
    served: AbortHandle,
}

/// Room for what a new connection says first, with a call of the usual size.
const FIRST_WORDS: usize = 1 << 10;

/// What an answer may have under way, and all answers together.
const WINDOWS: (u32, u32) = (1 << 21, 5 << 20);

/// The calls under way before the driver has said how many it takes.
const FIRST_CALLS: usize = 100;

impl Connection {
    /// Speaks HTTP/2 over a stream. A task of the runtime serves it.
    ///
    /// # Errors
    /// When the other end has gone already.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, h2::Error> {
        let mut builder = Builder::new();
        builder.enable_push(false);
        builder.initial_window_size(WINDOWS.0).initial_connection_window_size(WINDOWS.1);
        builder.initial_max_send_streams(FIRST_CALLS);
        let stream = BufWriter::with_capacity(FIRST_WORDS, stream);
        let (sender, served) = builder.handshake(stream).await?;
        let served = tokio::spawn(async move {
            if let Err(error) = served.await {
                // Each of its calls has its error.
                tracing::debug!(%error, "a connection to a driver has failed");
            }
        });
        Ok(Self { sender, served: served.abort_handle() })
    }

    /// Whether the other end has gone, or takes no more calls.
    pub fn is_closed(&self) -> bool {
        self.served.is_finished() || matches!(ready_for_a_call(&self.sender).now_or_never(), Some(Err(_)))
    }
}

/// Waits until the driver takes one more call.
async fn ready_for_a_call(sender: &SendRequest<Bytes>) -> Result<SendRequest<Bytes>, h2::Error> {
    sender.clone().ready().await
}

/// Why a call was not sent. It can be made again over another connection.
#[derive(Debug, thiserror::Error)]
#[error("the call was not sent")]
pub struct Unsent(#[from] h2::Error);

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("closed", &self.is_closed()).finish()
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Answer>;
    type Error = StdError;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A connection that is closed is the error of the call: tonic makes one of this a failure for good.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sender = self.sender.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            head.uri = at_localhost(head.uri.path_and_query());
            head.headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
            // CSI asks with one message.
            let message = body.collect().await?.to_bytes();
            let mut sender = ready_for_a_call(&sender).await.map_err(Unsent)?;
            let head = Request::from_parts(head, ());
            let (answer, mut stream) = sender.send_request(head, message.is_empty()).map_err(Unsent)?;
            if !message.is_empty() {
                stream.send_data(message, true)?;
            }
            Ok(answer.await?.map(|stream| Answer { stream, has_data: true }))
        })
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

/// The bytes of an answer as they arrive. The call is cancelled if it is dropped before their end.
#[derive(Debug)]
pub struct Answer {
    stream: RecvStream,
    has_data: bool,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        while self.has_data {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    self.stream.flow_control().release_capacity(data.len())?;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // The answer is complete: the driver only wants to hear no more.
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => self.has_data = false,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.has_data = false,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}
