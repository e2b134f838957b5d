//! A CSI driver that does what it is asked at once, in the simulated kernel, over a pipe in memory: what is
//! measured beside it is the manager.

use std::path::Path;

use async_trait::async_trait;
use csi_proto::v1::node_server::{Node, NodeServer};
use csi_proto::v1::node_service_capability::{Rpc, Type, rpc::Type as Capability};
use csi_proto::v1::{self, NodeServiceCapability};
use host::errno::Errno;
use host::fake::FakeKernel;
use testing::pipe;
use tonic::{Request, Response, Status};
use volume_manager::{Connection, DialError, Dialer};

pub(crate) const NAME: &str = "bench.csi.volproof.dev";

/// The driver. Clones are the same driver.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    pub(crate) kernel: FakeKernel,
}

type Answer<T> = Result<Response<T>, Status>;

fn answer<T: Default>(done: Result<(), Errno>) -> Answer<T> {
    done.map(|()| Response::new(T::default())).map_err(|error| Status::internal(format!("{error:?}")))
}

#[async_trait]
impl Node for Driver {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        let at = request.into_inner().staging_target_path;
        let at = Path::new(&at);
        if self.kernel.is_mount_point(at) {
            return answer(Ok(()));
        }
        answer(self.kernel.mount("tmpfs", at, "tmpfs", &[]))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        answer(self.kernel.unmount(Path::new(&request.into_inner().staging_target_path), false))
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let (from, at) = (Path::new(&request.staging_target_path), Path::new(&request.target_path));
        if self.kernel.is_mount_point(at) {
            return answer(Ok(()));
        }
        answer(self.kernel.make_dir_all(at, 0o755).and_then(|()| self.kernel.bind(from, at, false)))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        let at = request.into_inner().target_path;
        let at = Path::new(&at);
        answer(self.kernel.unmount(at, false).and_then(|()| self.kernel.remove_dir(at)))
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        Err(Status::unimplemented("not measured"))
    }

    async fn node_expand_volume(
        &self,
        _: Request<v1::NodeExpandVolumeRequest>,
    ) -> Answer<v1::NodeExpandVolumeResponse> {
        Err(Status::unimplemented("not measured"))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        let stages = Rpc { r#type: Capability::StageUnstageVolume as i32 };
        let capabilities = vec![NodeServiceCapability { r#type: Some(Type::Rpc(stages)) }];
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<v1::NodeGetInfoRequest>) -> Answer<v1::NodeGetInfoResponse> {
        Ok(Response::new(v1::NodeGetInfoResponse { node_id: "node".to_owned(), ..Default::default() }))
    }
}

#[async_trait]
impl Dialer for Driver {
    async fn dial(&self, endpoint: &Path) -> Result<Connection, DialError> {
        let (pipe, _) = pipe::serve(NodeServer::new(self.clone()));
        pipe.connection(endpoint).await
    }
}
