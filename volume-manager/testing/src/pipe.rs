//! A connection in memory between a node and a driver.

use std::convert::Infallible;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use h2::RecvStream;
use h2::server::{self, SendResponse};
use http_body_util::{BodyExt as _, Full};
use plugin_api::{Connection, DialError};
use prost::bytes::{Bytes, BytesMut};
use tokio::io::DuplexStream;
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::codegen::{Service, http};

/// The bytes that are under way in one direction: a few calls.
const ROOM: usize = 1 << 13;

/// The node's end of a connection.
#[derive(Debug)]
pub struct Pipe(DuplexStream);

/// Serves one connection, and returns its other end and the task that serves it. Its calls are broken off when the task
/// ends.
pub fn serve<S>(service: S) -> (Pipe, AbortHandle)
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let (ours, theirs) = tokio::io::duplex(ROOM);
    // Its error does not matter: the calls are recorded one by one.
    let serving = tokio::spawn(async move { serve_all(theirs, service).await.ok() });
    (Pipe(ours), serving.abort_handle())
}

async fn serve_all<S>(stream: DuplexStream, service: S) -> Result<(), h2::Error>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone,
{
    let mut connection = server::handshake(stream).await?;
    let mut calls = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = calls.next() => {}
            call = connection.accept() => match call {
                Some(call) => {
                    let (request, answer) = call?;
                    calls.push(serve_call(service.clone(), request, answer));
                }
                None => return Ok(()),
            },
        }
    }
}

/// Serves one call, until its caller gives it up.
async fn serve_call<S>(
    mut service: S,
    request: http::Request<RecvStream>,
    mut answer: SendResponse<Bytes>,
) -> Result<(), h2::Error>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    let (head, body) = request.into_parts();
    let body = Body::new(Full::new(received(body).await?));
    let response = {
        let mut work = pin!(service.call(http::Request::from_parts(head, body)));
        tokio::select! {
            biased;
            Ok(response) = &mut work => response,
            _ = poll_fn(|cx| answer.poll_reset(cx)) => return Ok(()),
        }
    };
    let (head, body) = response.into_parts();
    // The driver's answers are one message, or an error that is in the head already.
    let body = body.collect().await;
    let Ok(body) = body else { return Ok(()) };
    let trailers = body.trailers().cloned();
    let bytes = body.to_bytes();
    let is_over = bytes.is_empty() && trailers.is_none();
    let mut stream = answer.send_response(http::Response::from_parts(head, ()), is_over)?;
    if !bytes.is_empty() {
        stream.send_data(bytes, trailers.is_none())?;
    }
    trailers.map_or(Ok(()), |trailers| stream.send_trailers(trailers))
}

/// All bytes of a call.
async fn received(mut body: RecvStream) -> Result<Bytes, h2::Error> {
    let mut all = BytesMut::new();
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        body.flow_control().release_capacity(bytes.len())?;
        all.extend_from_slice(&bytes);
    }
    Ok(all.freeze())
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
