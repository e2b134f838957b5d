//! The way from the proxy to the driver. Connects to the driver's sockets.

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use csi_proto::json::JsonError;
use h2::Reason;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Response, Status};
use volume_manager::plugin::csi::socket::SocketDialer;
use volume_manager::{Connection, Dialer as _, Unsent};

use super::codec::Raw;
use super::unreadable::{LARGEST_ANSWER, explained, no_answer, read, unreachable, unreadable};

/// What an answer says, beside its bytes.
#[derive(Debug, Clone)]
struct Read(Value);

/// An answer as JSON; one of an unknown type by its size.
pub(super) fn as_json(path: &str, answer: &Response<Bytes>) -> Value {
    match answer.extensions().get::<Read>() {
        Some(Read(json)) => json.clone(),
        None => json_or_size(csi_proto::json::response(path, answer.get_ref()), answer.get_ref()),
    }
}

/// A message of an unknown type is recorded by its size.
pub(super) fn json_or_size(json: Result<Value, JsonError>, message: &[u8]) -> Value {
    json.unwrap_or_else(|_| json!({ "bytes": message.len() }))
}

/// How often a call is made that the driver does not begin with: a new connection may refuse it, too, before the driver has
/// said how many calls it takes.
const ATTEMPTS: usize = 4;

/// The driver's sockets, each with the connection that is kept to it.
#[derive(Debug)]
pub(super) struct Upstreams {
    node: Upstream,
    controller: Option<Upstream>,
}

#[derive(Debug)]
struct Upstream {
    socket: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl Upstreams {
    pub(super) fn new(node: PathBuf, controller: Option<PathBuf>) -> Self {
        Self { node: Upstream::new(node), controller: controller.map(Upstream::new) }
    }

    pub(super) fn forget(&self) {
        for upstream in [Some(&self.node), self.controller.as_ref()].into_iter().flatten() {
            *upstream.connection() = None;
        }
    }

    /// Passes a call on and returns the driver's answer, if that comes within the time.
    pub(super) async fn call(
        &self,
        path: &PathAndQuery,
        metadata: MetadataMap,
        message: Bytes,
    ) -> Result<Response<Bytes>, Status> {
        let service = path.path().trim_start_matches('/').split('/').next().unwrap_or_default();
        let controls = ["csi.v1.Controller", "csi.v1.GroupController"].contains(&service);
        let upstream = self.controller.as_ref().filter(|_| controls).unwrap_or(&self.node);
        upstream.call(path, metadata, message).await
    }
}

impl Upstream {
    fn new(socket: PathBuf) -> Self {
        Self { socket, connection: Mutex::new(None) }
    }

    async fn call(
        &self,
        path: &PathAndQuery,
        metadata: MetadataMap,
        message: Bytes,
    ) -> Result<Response<Bytes>, Status> {
        let limit = deadline(&metadata);
        let asked = async {
            let request = || Request::from_parts(metadata.clone(), Extensions::default(), message.clone());
            let mut answer = self.once(path, request()).await;
            for _ in 1..ATTEMPTS {
                if !answer.as_ref().is_err_and(is_unseen) {
                    break;
                }
                answer = self.once(path, request()).await;
            }
            answer
        };
        let began = Instant::now();
        let answer = match limit {
            Some(limit) => tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Err(no_answer())),
            None => asked.await,
        };
        let mut answer = answer.map_err(|status| match cause(&status).and_then(h2::Error::reason) {
            // The driver's clock for the caller's deadline may be a little faster.
            Some(Reason::CANCEL) if limit.is_some_and(|limit| began.elapsed() >= limit) => no_answer(),
            _ => self.explain(status),
        })?;
        if let Some(json) = read(path.path(), answer.get_ref())? {
            answer.extensions_mut().insert(Read(json));
        }
        Ok(answer)
    }

    async fn once(&self, path: &PathAndQuery, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let mut grpc = Grpc::new(self.connected().await?)
            .max_decoding_message_size(LARGEST_ANSWER)
            .max_encoding_message_size(usize::MAX);
        grpc.unary(request, path.clone(), Raw).await
    }

    /// Replaces a status that the client library made up by one that says what happened.
    fn explain(&self, status: Status) -> Status {
        let status = explained(status);
        let is_of_the_call = cause(&status).is_some_and(h2::Error::is_reset);
        let Some(cause) = status.source() else {
            // Garbage may have been the last of the connection.
            if unreadable(&status).is_some() {
                *self.connection() = None;
            }
            return status;
        };
        if !is_of_the_call {
            *self.connection() = None;
        }
        unreachable(&self.socket, cause)
    }

    async fn connected(&self) -> Result<Connection, Status> {
        let kept = self.connection().clone();
        if let Some(kept) = kept.filter(|kept| !kept.is_closed()) {
            return Ok(kept);
        }
        let made = SocketDialer.dial(&self.socket).await;
        let made = made.map_err(|error| unreachable(&self.socket, &error))?;
        Ok(self.connection().insert(made).clone())
    }

    fn connection(&self) -> MutexGuard<'_, Option<Connection>> {
        // One value is replaced by another.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the driver has not begun with a call that failed, as when it takes no more calls over this connection. As gRPC
/// clients do, the proxy makes such a call again.
fn is_unseen(status: &Status) -> bool {
    let error = cause(status);
    let is_refused = |error: &h2::Error| error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_some_and(|error| error.is_go_away() && error.is_remote() || is_refused(error))
        || status.source().is_some_and(<dyn Error>::is::<Unsent>)
}

/// The error of HTTP/2 that a call failed by.
fn cause(status: &Status) -> Option<&h2::Error> {
    std::iter::successors(status.source(), |error| (*error).source()).find_map(<dyn Error>::downcast_ref)
}

/// The caller's deadline: `grpc-timeout` is at most eight digits and a unit.
pub(super) fn deadline(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}
