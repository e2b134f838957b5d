//! A second, much smaller driver, which behaves like the driver of the recordings.
//!
//! A trace that is compared with a recording must differ only by the node, so this driver also repeats the other
//! one's sloppiness. A volume is a directory, or a file behind a loop device, below `data/`. Staging mounts nothing;
//! publishing binds the directory or the device; one lock is held during every call. The books are in one file.
//! This driver has no sabotages.

mod books;
mod controller;
mod node;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use csi_proto::v1::controller_server::ControllerServer;
use csi_proto::v1::identity_server::{Identity, IdentityServer};
use csi_proto::v1::node_server::NodeServer;
use csi_proto::v1::{self, plugin_capability};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use books::Books;

/// The default name.
pub(crate) const NAME: &str = "hostpath.csi.k8s.io";

/// The topology key of a node: a volume is reachable only on its own.
const NODE_KEY: &str = "topology.hostpath.csi/node";

/// The driver. Clones share its books.
#[derive(Debug, Clone)]
struct Hostpath {
    name: Arc<str>,
    node: Arc<str>,
    books: Arc<Books>,
}

/// Serves a node until `SIGTERM` or `SIGINT`. Volumes stay mounted.
pub(crate) async fn serve(name: String, state: &Path, node: &str, endpoint: &Path) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FAKE_CSI_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // The embedding program may have set a subscriber already.
    drop(log.with_ansi(io::stderr().is_terminal()).try_init());

    let books = Books::open(state).with_context(|| format!("cannot open `{}`", state.display()))?;
    let driver = Hostpath { name: name.into(), node: node.into(), books: Arc::new(books) };
    let listener = listen(endpoint).with_context(|| format!("cannot listen at `{}`", endpoint.display()))?;
    let served = tonic::transport::Server::builder()
        .add_service(IdentityServer::new(driver.clone()))
        .add_service(ControllerServer::new(driver.clone()))
        .add_service(NodeServer::new(driver))
        .serve_with_incoming(UnixListenerStream::new(listener));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = served => ended.context("serving has ended")?,
    }
    Ok(())
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

impl Hostpath {
    /// Runs `work` on a blocking thread.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let driver = self.clone();
        crate::run(move || work(&driver)).await
    }

    fn here(&self) -> v1::Topology {
        v1::Topology { segments: [(NODE_KEY.to_owned(), self.node.to_string())].into() }
    }
}

#[tonic::async_trait]
impl Identity for Hostpath {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        Ok(Response::new(v1::GetPluginInfoResponse {
            name: self.name.to_string(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        use plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
        let kinds = [
            Type::Service(Service { r#type: service::Type::ControllerService.into() }),
            Type::Service(Service { r#type: service::Type::VolumeAccessibilityConstraints.into() }),
            Type::VolumeExpansion(VolumeExpansion { r#type: volume_expansion::Type::Online.into() }),
        ];
        let capabilities = kinds.into_iter().map(|kind| v1::PluginCapability { r#type: Some(kind) });
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        Ok(Response::new(v1::ProbeResponse { ready: Some(true) }))
    }
}

/// INVALID_ARGUMENT if a field is empty.
fn required(name: &str, value: &str) -> Result<(), Status> {
    match value {
        "" => Err(Status::invalid_argument(format!("{name} is missing"))),
        _ => Ok(()),
    }
}

/// The error of a failed step: UNKNOWN, as in the driver of the recordings.
fn failed(what: &str, path: &Path) -> impl Fn(io::Error) -> Status {
    let (what, path): (String, PathBuf) = (what.to_owned(), path.to_owned());
    move |error| Status::unknown(format!("cannot {what} `{}`: {error}", path.display()))
}
