//! Connections of clients: so many at once, requests of so many bytes, and so many in a second. What is beyond that is
//! answered as an API server under load does, with 429 and a time to wait.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

use super::Shared;
use super::answering::{Answer, Request, answer};
use super::refusal::Refused;
use super::tls::Tls;
use super::watching::Watching;

/// Clients open a connection for each of their parts, at most.
const CONNECTIONS: usize = 128;

/// The most bytes of a request: etcd's limit.
const BODY: usize = 3 << 19;

/// Requests in a second, in the long run, and at once.
const RATE: f64 = 200.0;
const BURST: f64 = 1000.0;

/// The time for a client to send its request.
const PATIENCE: Duration = Duration::from_secs(30);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves until `ended` resolves.
pub(super) fn serve(listener: TcpListener, shared: &Shared, tls: &Tls, ended: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) =
        runtime.inspect_err(|error| tracing::error!("cannot serve the API to the driver: {error}"))
    else {
        return;
    };
    runtime.block_on(async {
        tokio::select! {
            () = accept(listener, shared, tls) => {}
            _ = ended => {}
        }
    });
    // Connections under way end with their tasks.
    runtime.shutdown_background();
}

async fn accept(listener: TcpListener, shared: &Shared, tls: &Tls) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let (room, budget) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(Budget::new()));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (shared, budget, tls) = (shared.clone(), Arc::clone(&budget), tls.clone());
        tokio::spawn(async move {
            let _permit = permit;
            // A client that connects and sends nothing must not hold a connection for ever.
            match tokio::time::timeout(PATIENCE, is_tls(&stream)).await {
                Ok(true) => match tokio::time::timeout(PATIENCE, tls.acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, shared, budget).await,
                    Ok(Err(error)) => tracing::info!("a client of the API has ended its handshake: {error}"),
                    Err(_) => {}
                },
                Ok(false) => converse(stream, shared, budget).await,
                Err(_) => {}
            }
        });
    }
}

/// Whether a client begins with a TLS handshake: the port serves both HTTP and HTTPS.
async fn is_tls(stream: &TcpStream) -> bool {
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1) if first[0] == HANDSHAKE)
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    shared: Shared,
    budget: Arc<Budget>,
) {
    let service = hyper::service::service_fn(move |request| {
        let (shared, budget) = (shared.clone(), Arc::clone(&budget));
        async move { Ok::<_, Infallible>(respond(&shared, &budget, request).await) }
    });
    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    // An error of the connection is the client's.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(
    shared: &Shared,
    budget: &Budget,
    request: hyper::Request<Incoming>,
) -> hyper::Response<Body> {
    let (parts, body) = request.into_parts();
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // client-go sends no token where there is no TLS: there it is in the server's address.
    let in_path = parts.uri.path().strip_prefix('/').and_then(|path| path.strip_prefix(&*shared.token));
    let path = in_path.unwrap_or(parts.uri.path()).to_owned();
    let is_open = matches!(path.as_str(), "/version" | "/healthz" | "/livez" | "/readyz");
    let answered = async {
        if !is_open && in_path.is_none() && header(AUTHORIZATION) != format!("Bearer {}", shared.token) {
            return Err(Refused::unauthorized());
        }
        if !budget.take() {
            return Err(Refused::too_many_requests());
        }
        let body = tokio::time::timeout(PATIENCE, Limited::new(body, BODY).collect()).await;
        let body = body.map_err(|_| Refused::bad_request("the request did not come to its end"))?;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => Refused::too_large(),
            None => Refused::bad_request(error.to_string()),
        })?;
        let media_type = header(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_owned();
        let request = Request {
            method: parts.method.to_string(),
            path,
            query: query(parts.uri.query().unwrap_or_default()),
            media_type,
            body: body.to_bytes().to_vec(),
        };
        answer(shared, &request)
    };
    match answered.await {
        Ok(Answer::Document(code, document)) => response(code, &document),
        Ok(Answer::Watch(watching)) => stream(*watching),
        Err(refused) => response(refused.code, &refused.status()),
    }
}

fn response(code: u16, document: &Value) -> hyper::Response<Body> {
    let text = match document {
        Value::String(text) => text.clone(),
        document => document.to_string(),
    };
    let mut response = hyper::Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() =
        hyper::StatusCode::from_u16(code).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    if code == 429 {
        headers.insert(RETRY_AFTER, hyper::header::HeaderValue::from_static("1"));
    }
    response
}

fn stream(watching: Watching) -> hyper::Response<Body> {
    let lines: Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>> =
        Box::pin(futures::stream::unfold(watching, async |mut watching| {
            let line = watching.next().await?;
            Some((Ok(Frame::data(Bytes::from(format!("{line}\n")))), watching))
        }));
    let mut response = hyper::Response::new(StreamBody::new(lines).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    response
}

fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key), decoded(value))
    };
    pairs.map(pair).collect()
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

/// Requests that may still be made.
#[derive(Debug)]
struct Budget(Mutex<(f64, Instant)>);

impl Budget {
    fn new() -> Self {
        Self(Mutex::new((BURST, Instant::now())))
    }

    fn take(&self) -> bool {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let tokens = (left.0 + now.duration_since(left.1).as_secs_f64() * RATE).min(BURST);
        *left = (if tokens >= 1.0 { tokens - 1.0 } else { tokens }, now);
        tokens >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_floods_gets_retry_after() {
        let budget = Budget::new();
        let granted = (0..10 * BURST as usize).filter(|_| budget.take()).count();
        assert!(granted >= BURST as usize && granted < 10 * BURST as usize, "{granted}");
        let refused = response(429, &Refused::too_many_requests().status());
        assert_eq!(refused.headers()[RETRY_AFTER], "1");
    }
}
