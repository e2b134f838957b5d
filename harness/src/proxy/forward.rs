//! The way from the proxy to the driver. Connects to the driver's sockets.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use csi_proto::json::JsonError;
use serde_json::{Value, json};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Extensions, Request, Response, Status};

use super::codec::Raw;
use super::connect;
use super::unreadable::{LARGEST_ANSWER, explained, read, unreachable, unreadable};

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

/// The driver's sockets, each with the connection that is kept to it.
#[derive(Debug)]
pub(super) struct Upstreams {
    node: Upstream,
    controller: Option<Upstream>,
}

#[derive(Debug)]
struct Upstream {
    socket: PathBuf,
    channel: Mutex<Option<Channel>>,
}

impl Upstreams {
    pub(super) fn new(node: PathBuf, controller: Option<PathBuf>) -> Self {
        Self { node: Upstream::new(node), controller: controller.map(Upstream::new) }
    }

    pub(super) fn forget(&self) {
        for upstream in [Some(&self.node), self.controller.as_ref()].into_iter().flatten() {
            *upstream.channel() = None;
        }
    }

    /// Passes a call on and returns the driver's answer.
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
        Self { socket, channel: Mutex::new(None) }
    }

    async fn call(
        &self,
        path: &PathAndQuery,
        metadata: MetadataMap,
        message: Bytes,
    ) -> Result<Response<Bytes>, Status> {
        let mut grpc = Grpc::new(self.connected()?)
            .max_decoding_message_size(LARGEST_ANSWER)
            .max_encoding_message_size(usize::MAX);
        if let Err(error) = grpc.ready().await {
            *self.channel() = None;
            return Err(unreachable(&self.socket, &error));
        }
        let request = Request::from_parts(metadata, Extensions::default(), message);
        let mut answer =
            grpc.unary(request, path.clone(), Raw).await.map_err(|status| self.explain(status))?;
        if let Some(json) = read(path.path(), answer.get_ref())? {
            answer.extensions_mut().insert(Read(json));
        }
        Ok(answer)
    }

    /// Replaces a status that the client library made up by one that says what happened.
    fn explain(&self, status: Status) -> Status {
        let status = explained(status);
        let Some(cause) = status.source() else {
            // Garbage may have been the last of the connection.
            if unreadable(&status).is_some() {
                *self.channel() = None;
            }
            return status;
        };
        *self.channel() = None;
        unreachable(&self.socket, cause)
    }

    fn connected(&self) -> Result<Channel, Status> {
        let mut kept = self.channel();
        if let Some(channel) = &*kept {
            return Ok(channel.clone());
        }
        let channel = connect(&self.socket).map_err(|error| unreachable(&self.socket, &error))?;
        Ok(kept.insert(channel).clone())
    }

    fn channel(&self) -> MutexGuard<'_, Option<Channel>> {
        // One value is replaced by another.
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
