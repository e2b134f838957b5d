//! A driver that does nothing but what a pod's volume cannot do without: one bind mount in, and its unmount out. What is
//! measured with it is the manager.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use csi_proto::v1;
use csi_proto::v1::identity_server::{Identity, IdentityServer};
use csi_proto::v1::node_server::{Node, NodeServer};
use csi_proto::v1::node_service_capability::{Rpc, Type, rpc::Type as Capability};
use harness::manifest::{ExistingVolume, Manifest};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// The hidden subcommand of this program that is the driver.
pub(crate) const SUBCOMMAND: &str = "__null-csi";

/// The driver with so many volumes.
pub(crate) fn manifest(volumes: usize) -> Manifest {
    let command = format!("/proc/self/exe {SUBCOMMAND} {{socket}}");
    let mut manifest = Manifest::from_command(&command).expect("it has no quotation marks");
    manifest.volume.existing =
        (0..volumes).map(|number| ExistingVolume::new(format!("null-{number}"))).collect();
    manifest
}

pub(crate) fn main(socket: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(serve(socket)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(socket: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket)?;
    let server = Server::builder().add_service(IdentityServer::new(Null)).add_service(NodeServer::new(Null));
    Ok(server.serve_with_incoming(UnixListenerStream::new(listener)).await?)
}

#[derive(Debug)]
struct Null;

type Answer<T> = Result<Response<T>, Status>;

fn answer<T: Default>(done: std::io::Result<()>) -> Answer<T> {
    done.map(|()| Response::new(T::default())).map_err(|error| Status::internal(error.to_string()))
}

#[tonic::async_trait]
impl Identity for Null {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Answer<v1::GetPluginInfoResponse> {
        let (name, vendor_version) = ("null.csi.volproof.dev".to_owned(), "1".to_owned());
        Ok(Response::new(v1::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Answer<v1::GetPluginCapabilitiesResponse> {
        answer(Ok(()))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Answer<v1::ProbeResponse> {
        answer(Ok(()))
    }
}

#[tonic::async_trait]
impl Node for Null {
    async fn node_stage_volume(
        &self,
        _: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        answer(Ok(()))
    }

    async fn node_unstage_volume(
        &self,
        _: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        answer(Ok(()))
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let (from, at) = (request.staging_target_path.as_str(), request.target_path.as_str());
        let bind = || Ok(mount(Some(from), at, None::<&str>, MsFlags::MS_BIND, None::<&str>)?);
        answer(fs::create_dir(at).and_then(|()| bind()))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        let at = request.into_inner().target_path;
        let unmounted = umount2(at.as_str(), MntFlags::empty());
        answer(unmounted.map_err(Into::into).and_then(|()| fs::remove_dir(at)))
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        Err(Status::unimplemented("not reported"))
    }

    async fn node_expand_volume(
        &self,
        _: Request<v1::NodeExpandVolumeRequest>,
    ) -> Answer<v1::NodeExpandVolumeResponse> {
        Err(Status::unimplemented("not reported"))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        let stages = Rpc { r#type: Capability::StageUnstageVolume as i32 };
        let capabilities = vec![v1::NodeServiceCapability { r#type: Some(Type::Rpc(stages)) }];
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<v1::NodeGetInfoRequest>) -> Answer<v1::NodeGetInfoResponse> {
        Ok(Response::new(v1::NodeGetInfoResponse { node_id: "node-1".to_owned(), ..Default::default() }))
    }
}
