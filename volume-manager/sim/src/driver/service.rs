//! The node service of the simulated driver, as the manager reaches it: through a connection in memory.

use std::path::Path;

use async_trait::async_trait;
use csi_proto::v1;
use csi_proto::v1::NodeServiceCapability;
use csi_proto::v1::node_server::{Node, NodeServer};
use csi_proto::v1::node_service_capability::{Rpc, Type, rpc::Type as Capability};
use testing::pipe;
use tonic::{Code, Request, Response, Status};
use volume_manager::{Connection, DialError, Dialer};

use super::SimulatedDriver;
use crate::objects::NODE;

#[async_trait]
impl Node for SimulatedDriver {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        self.node_call("NodeStageVolume", request.into_inner(), |driver, request| {
            driver.stage(request).map(|()| v1::NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        self.node_call("NodeUnstageVolume", request.into_inner(), |driver, request| {
            driver.unstage(request).map(|()| v1::NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        self.node_call("NodePublishVolume", request.into_inner(), |driver, request| {
            driver.publish(request).map(|()| v1::NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        self.node_call("NodeUnpublishVolume", request.into_inner(), |driver, request| {
            driver.unpublish(request).map(|()| v1::NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        Err(Status::unimplemented("this driver measures nothing"))
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume = request.volume_id.clone();
        let answer = self.node_call("NodeExpandVolume", request, |driver, request| {
            driver.expand(request).map(|()| v1::NodeExpandVolumeResponse::default())
        });
        let answer = answer.await;
        if matches!(&answer, Err(status) if status.code() == Code::FailedPrecondition) {
            self.change(&volume, |volume| volume.refused = true);
        }
        answer
    }

    async fn node_get_capabilities(
        &self,
        request: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        self.node_call("NodeGetCapabilities", request.into_inner(), |driver, _| {
            let claim = |capability: &Capability| NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: *capability as i32 })),
            };
            let capabilities = driver.capabilities.iter().map(claim).collect();
            Ok(v1::NodeGetCapabilitiesResponse { capabilities })
        })
        .await
    }

    async fn node_get_info(
        &self,
        request: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        self.node_call("NodeGetInfo", request.into_inner(), |_, _| {
            Ok(v1::NodeGetInfoResponse { node_id: NODE.to_owned(), ..Default::default() })
        })
        .await
    }
}

#[async_trait]
impl Dialer for SimulatedDriver {
    async fn dial(&self, endpoint: &Path) -> Result<Connection, DialError> {
        if !self.open().up {
            return Err(pipe::refused(endpoint));
        }
        let (pipe, serving) = pipe::serve(NodeServer::new(self.clone()));
        {
            let mut inner = self.open();
            inner.tasks.retain(|task| !task.is_finished());
            inner.tasks.push(serving);
        }
        pipe.connection(endpoint).await
    }
}
