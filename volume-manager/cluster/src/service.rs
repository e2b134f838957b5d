//! The calls of a driver's controller service that the controllers make.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use csi_proto::v1::group_controller_client::GroupControllerClient;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// The part of a driver's controller service that attaches volumes to nodes. Each call has a time limit, which the
/// driver receives with the call.
#[async_trait]
pub trait AttachService: fmt::Debug + Send + Sync + 'static {
    async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status>;

    async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status>;
}

#[async_trait]
impl AttachService for Channel {
    async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.controller_publish_volume(within(request, limit)).await.map(tonic::Response::into_inner)
    }

    async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.controller_unpublish_volume(within(request, limit)).await.map(tonic::Response::into_inner)
    }
}

/// The part of a driver's controller service that grows volumes.
#[async_trait]
pub trait ExpandService: fmt::Debug + Send + Sync + 'static {
    async fn expand(
        &self,
        request: v1::ControllerExpandVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerExpandVolumeResponse, Status>;
}

#[async_trait]
impl ExpandService for Channel {
    async fn expand(
        &self,
        request: v1::ControllerExpandVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerExpandVolumeResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.controller_expand_volume(within(request, limit)).await.map(tonic::Response::into_inner)
    }
}

/// The part of a driver's controller service that makes and deletes volumes.
#[async_trait]
pub trait ProvisionService: fmt::Debug + Send + Sync + 'static {
    async fn create(
        &self,
        request: v1::CreateVolumeRequest,
        limit: Duration,
    ) -> Result<v1::CreateVolumeResponse, Status>;

    async fn delete(
        &self,
        request: v1::DeleteVolumeRequest,
        limit: Duration,
    ) -> Result<v1::DeleteVolumeResponse, Status>;
}

#[async_trait]
impl ProvisionService for Channel {
    async fn create(
        &self,
        request: v1::CreateVolumeRequest,
        limit: Duration,
    ) -> Result<v1::CreateVolumeResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.create_volume(within(request, limit)).await.map(tonic::Response::into_inner)
    }

    async fn delete(
        &self,
        request: v1::DeleteVolumeRequest,
        limit: Duration,
    ) -> Result<v1::DeleteVolumeResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.delete_volume(within(request, limit)).await.map(tonic::Response::into_inner)
    }
}

/// The part of a driver's controller service that takes and deletes snapshots.
#[async_trait]
pub trait SnapshotService: fmt::Debug + Send + Sync + 'static {
    async fn create(
        &self,
        request: v1::CreateSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::CreateSnapshotResponse, Status>;

    async fn delete(
        &self,
        request: v1::DeleteSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::DeleteSnapshotResponse, Status>;

    async fn list(
        &self,
        request: v1::ListSnapshotsRequest,
        limit: Duration,
    ) -> Result<v1::ListSnapshotsResponse, Status>;
}

#[async_trait]
impl SnapshotService for Channel {
    async fn create(
        &self,
        request: v1::CreateSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::CreateSnapshotResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.create_snapshot(within(request, limit)).await.map(tonic::Response::into_inner)
    }

    async fn delete(
        &self,
        request: v1::DeleteSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::DeleteSnapshotResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.delete_snapshot(within(request, limit)).await.map(tonic::Response::into_inner)
    }

    async fn list(
        &self,
        request: v1::ListSnapshotsRequest,
        limit: Duration,
    ) -> Result<v1::ListSnapshotsResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.list_snapshots(within(request, limit)).await.map(tonic::Response::into_inner)
    }
}

/// A driver's group controller service.
#[async_trait]
pub trait GroupSnapshotService: fmt::Debug + Send + Sync + 'static {
    async fn create(
        &self,
        request: v1::CreateVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::CreateVolumeGroupSnapshotResponse, Status>;

    async fn delete(
        &self,
        request: v1::DeleteVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::DeleteVolumeGroupSnapshotResponse, Status>;

    async fn get(
        &self,
        request: v1::GetVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::GetVolumeGroupSnapshotResponse, Status>;
}

#[async_trait]
impl GroupSnapshotService for Channel {
    async fn create(
        &self,
        request: v1::CreateVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::CreateVolumeGroupSnapshotResponse, Status> {
        let mut client = GroupControllerClient::new(self.clone());
        client.create_volume_group_snapshot(within(request, limit)).await.map(tonic::Response::into_inner)
    }

    async fn delete(
        &self,
        request: v1::DeleteVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::DeleteVolumeGroupSnapshotResponse, Status> {
        let mut client = GroupControllerClient::new(self.clone());
        client.delete_volume_group_snapshot(within(request, limit)).await.map(tonic::Response::into_inner)
    }

    async fn get(
        &self,
        request: v1::GetVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::GetVolumeGroupSnapshotResponse, Status> {
        let mut client = GroupControllerClient::new(self.clone());
        client.get_volume_group_snapshot(within(request, limit)).await.map(tonic::Response::into_inner)
    }
}

/// The part of a driver's controller service that changes the attributes of volumes.
#[async_trait]
pub trait ModifyService: fmt::Debug + Send + Sync + 'static {
    async fn modify(
        &self,
        request: v1::ControllerModifyVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerModifyVolumeResponse, Status>;
}

#[async_trait]
impl ModifyService for Channel {
    async fn modify(
        &self,
        request: v1::ControllerModifyVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerModifyVolumeResponse, Status> {
        let mut client = ControllerClient::new(self.clone());
        client.controller_modify_volume(within(request, limit)).await.map(tonic::Response::into_inner)
    }
}

fn within<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}
