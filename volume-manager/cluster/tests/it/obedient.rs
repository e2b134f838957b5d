//! A driver that does at once what it is asked.

use std::time::Duration;

use async_trait::async_trait;
use cluster::{
    AttachService, ExpandService, GroupSnapshotService, ModifyService, ProvisionService, SnapshotService,
};
use csi_proto::v1;
use tonic::Status;

#[derive(Debug)]
pub(crate) struct Obedient;

#[async_trait]
impl AttachService for Obedient {
    async fn publish(
        &self,
        _: v1::ControllerPublishVolumeRequest,
        _: Duration,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        Ok(v1::ControllerPublishVolumeResponse::default())
    }

    async fn unpublish(
        &self,
        _: v1::ControllerUnpublishVolumeRequest,
        _: Duration,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        Ok(v1::ControllerUnpublishVolumeResponse {})
    }
}

#[async_trait]
impl ProvisionService for Obedient {
    async fn create(
        &self,
        request: v1::CreateVolumeRequest,
        _: Duration,
    ) -> Result<v1::CreateVolumeResponse, Status> {
        let volume = v1::Volume {
            volume_id: format!("handle-of-{}", request.name),
            capacity_bytes: 1,
            content_source: request.volume_content_source,
            ..v1::Volume::default()
        };
        Ok(v1::CreateVolumeResponse { volume: Some(volume) })
    }

    async fn delete(
        &self,
        _: v1::DeleteVolumeRequest,
        _: Duration,
    ) -> Result<v1::DeleteVolumeResponse, Status> {
        Ok(v1::DeleteVolumeResponse {})
    }
}

#[async_trait]
impl ExpandService for Obedient {
    async fn expand(
        &self,
        request: v1::ControllerExpandVolumeRequest,
        _: Duration,
    ) -> Result<v1::ControllerExpandVolumeResponse, Status> {
        let capacity_bytes = request.capacity_range.map(|range| range.required_bytes).unwrap_or_default();
        Ok(v1::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false })
    }
}

#[async_trait]
impl ModifyService for Obedient {
    async fn modify(
        &self,
        _: v1::ControllerModifyVolumeRequest,
        _: Duration,
    ) -> Result<v1::ControllerModifyVolumeResponse, Status> {
        Ok(v1::ControllerModifyVolumeResponse {})
    }
}

#[async_trait]
impl SnapshotService for Obedient {
    async fn create(
        &self,
        request: v1::CreateSnapshotRequest,
        _: Duration,
    ) -> Result<v1::CreateSnapshotResponse, Status> {
        let snapshot = v1::Snapshot {
            snapshot_id: format!("cut-of-{}", request.name),
            source_volume_id: request.source_volume_id,
            ready_to_use: true,
            ..v1::Snapshot::default()
        };
        Ok(v1::CreateSnapshotResponse { snapshot: Some(snapshot) })
    }

    async fn delete(
        &self,
        _: v1::DeleteSnapshotRequest,
        _: Duration,
    ) -> Result<v1::DeleteSnapshotResponse, Status> {
        Ok(v1::DeleteSnapshotResponse {})
    }

    async fn list(
        &self,
        _: v1::ListSnapshotsRequest,
        _: Duration,
    ) -> Result<v1::ListSnapshotsResponse, Status> {
        Ok(v1::ListSnapshotsResponse::default())
    }
}

#[async_trait]
impl GroupSnapshotService for Obedient {
    async fn create(
        &self,
        request: v1::CreateVolumeGroupSnapshotRequest,
        _: Duration,
    ) -> Result<v1::CreateVolumeGroupSnapshotResponse, Status> {
        let snapshot = |volume: &String| v1::Snapshot {
            snapshot_id: format!("cut-of-{volume}"),
            source_volume_id: volume.clone(),
            ready_to_use: true,
            ..v1::Snapshot::default()
        };
        let group = v1::VolumeGroupSnapshot {
            group_snapshot_id: format!("group-of-{}", request.name),
            snapshots: request.source_volume_ids.iter().map(snapshot).collect(),
            ready_to_use: true,
            ..v1::VolumeGroupSnapshot::default()
        };
        Ok(v1::CreateVolumeGroupSnapshotResponse { group_snapshot: Some(group) })
    }

    async fn delete(
        &self,
        _: v1::DeleteVolumeGroupSnapshotRequest,
        _: Duration,
    ) -> Result<v1::DeleteVolumeGroupSnapshotResponse, Status> {
        Ok(v1::DeleteVolumeGroupSnapshotResponse {})
    }

    async fn get(
        &self,
        _: v1::GetVolumeGroupSnapshotRequest,
        _: Duration,
    ) -> Result<v1::GetVolumeGroupSnapshotResponse, Status> {
        Ok(v1::GetVolumeGroupSnapshotResponse::default())
    }
}
