//! Answers that no client of gRPC can read, as a test orders them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Response};
use tonic::transport::server::Connected;

/// The bytes that replace an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Garbage {
    /// A message with a tag that protobuf does not have.
    NoProtobuf,
    /// A message whose first field is a number, whatever it is to be.
    WrongType,
    /// A page of HTML.
    Html,
    /// A message without a status after it.
    NoStatus,
    /// Bytes that are no HTTP/2, from then on, in each connection.
    Noise,
    /// A message of 32 MiB.
    Huge,
}

impl Garbage {
    pub(crate) fn answer(self, noise: &Noise) -> Response<Body> {
        match self {
            Garbage::NoProtobuf => grpc(&[0xff; 3], true),
            Garbage::WrongType => grpc(&[0x08, 0x01], true),
            Garbage::NoStatus => grpc(&[], false),
            Garbage::Huge => grpc(&vec![0; 32 << 20], true),
            Garbage::Html => {
                let page = Full::new(Bytes::from_static(b"<html><body>It works!</body></html>"));
                let mut answer = Response::new(Body::new(page));
                answer.headers_mut().insert("content-type", HeaderValue::from_static("text/html"));
                answer
            }
            Garbage::Noise => {
                noise.0.store(true, Ordering::Relaxed);
                grpc(&[], true)
            }
        }
    }
}

/// These bytes as a message of gRPC, and after it the status OK.
fn grpc(message: &[u8], has_status: bool) -> Response<Body> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let framed = [&[0][..], &length.to_be_bytes(), message].concat();
    let body = Full::new(Bytes::from(framed)).with_trailers(async move {
        let mut trailers = HeaderMap::new();
        if has_status {
            trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        }
        Some(Ok(trailers))
    });
    let mut answer = Response::new(Body::new(body));
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    answer
}

/// Whether connections carry noise by now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Noise(Arc<AtomicBool>);

impl Noise {
    /// A connection that carries noise as soon as that is ordered.
    pub(crate) fn over(&self, stream: UnixStream) -> Noisy {
        Noisy { stream, noise: self.clone() }
    }
}

/// A connection whose answers are garbage.
#[derive(Debug)]
pub(crate) struct Noisy {
    stream: UnixStream,
    noise: Noise,
}

impl Connected for Noisy {
    type ConnectInfo = <UnixStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Noisy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Noisy {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.noise.0.load(Ordering::Relaxed) {
            true => Pin::new(&mut self.stream).poll_write(context, &vec![b'\xfe'; bytes.len()]),
            false => Pin::new(&mut self.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
