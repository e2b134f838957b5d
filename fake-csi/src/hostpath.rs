//! A second, much smaller driver: one that behaves as the driver of the recordings does.
//!
//! Traces that are compared with a recording must differ by the node alone, so this one does what that driver
//! does, also where it is sloppy. A volume is a directory, or a file behind a loop device, below `data/`. Staging
//! mounts nothing; publishing binds the directory or the device; one lock is held during every call. It keeps its
//! books in one file, and breaks no promise on request: for that there is the other driver.

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

/// What it is called unless somebody wants otherwise.
pub(crate) const NAME: &str = "hostpath.csi.k8s.io";

/// The key of a node among topology segments: a volume is where its node is.
const NODE_KEY: &str = "topology.hostpath.csi/node";

/// The driver. Clones are the same one.
#[derive(Debug, Clone)]
struct Hostpath {
    name: Arc<str>,
    node: Arc<str>,
    books: Arc<Books>,
}

/// Serves one node until `SIGTERM` or `SIGINT`. Volumes stay as they are.
pub(crate) async fn serve(name: String, state: &Path, node: &str, endpoint: &Path) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FAKE_CSI_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // Somebody may embed us who has a subscriber already.
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
    /// Does something with the books on a thread that may block, alone.
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

/// What a call must say and does not.
fn required(name: &str, value: &str) -> Result<(), Status> {
    match value {
        "" => Err(Status::invalid_argument(format!("{name} is missing"))),
        _ => Ok(()),
    }
}

/// What went wrong on the way, as that driver tells it: without a class.
fn failed(what: &str, path: &Path) -> impl Fn(io::Error) -> Status {
    let (what, path): (String, PathBuf) = (what.to_owned(), path.to_owned());
    move |error| Status::unknown(format!("cannot {what} `{}`: {error}", path.display()))
}
