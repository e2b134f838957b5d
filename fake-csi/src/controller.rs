//! The controller service.
//!
//! A call decides in one transaction of the books, which records its intent, and acts after it.

use std::sync::Arc;

use csi_proto::v1::{self, controller_server::Controller};
use tonic::{Request, Response, Status};

use crate::ability::Ability;
use crate::driver::Driver;
use crate::sabotage::Sabotage;

pub(crate) mod attach;
pub(crate) mod create;
mod delete;
mod expand;
mod list;
pub(crate) mod snapshot;
mod source;

#[derive(Debug, Clone)]
pub(crate) struct ControllerService {
    pub(crate) driver: Arc<Driver>,
}

/// The caller of CreateVolume, who may give up.
struct Caller {
    driver: Arc<Driver>,
    name: String,
    waits: bool,
}

impl Caller {
    fn got_its_answer(mut self) {
        self.waits = false;
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.waits {
            self.driver.remember(&gave_up(&self.name));
        }
    }
}

/// The driver's note, for a sabotage, that the caller of CreateVolume has given this name up.
fn gave_up(name: &str) -> String {
    format!("{name} was given up")
}

impl ControllerService {
    async fn run<T: Send + 'static>(
        &self,
        needed: Ability,
        work: impl FnOnce(&Driver) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        self.driver.must_be_able(needed)?;
        let driver = Arc::clone(&self.driver);
        crate::run(move || work(&driver)).await
    }
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<v1::CreateVolumeRequest>,
    ) -> Result<Response<v1::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        // The sabotage acts in the copy.
        let caller = Caller { driver: Arc::clone(&self.driver), name: request.name.clone(), waits: true };
        let created =
            self.run(Ability::CreateDeleteVolume, move |driver| driver.create_volume(&request)).await;
        caller.got_its_answer();
        created
    }

    async fn delete_volume(
        &self,
        request: Request<v1::DeleteVolumeRequest>,
    ) -> Result<Response<v1::DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::CreateDeleteVolume, move |driver| driver.delete_volume(&request)).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<v1::ControllerPublishVolumeRequest>,
    ) -> Result<Response<v1::ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::PublishUnpublish, move |driver| driver.attach(&request)).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<v1::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<v1::ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::PublishUnpublish, move |driver| driver.detach(&request)).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<v1::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<v1::ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let driver = Arc::clone(&self.driver);
        crate::run(move || driver.validate(&request)).await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<v1::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<v1::ControllerGetCapabilitiesResponse>, Status> {
        use v1::controller_service_capability::{Rpc, Type, rpc};
        let types = self.driver.options.abilities.iter().filter_map(|ability| ability.of_controller());
        let hides = self.driver.breaks(Sabotage::ExpansionWithoutCall);
        let has_volumes = self.driver.journal.read(|books| !books.volumes.is_empty())?;
        let hides = hides || has_volumes && self.driver.breaks(Sabotage::CapabilityAfterCreate);
        let types = types.filter(|kind| !hides || *kind != rpc::Type::ExpandVolume);
        let capabilities = types
            .map(|kind| v1::ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
            })
            .collect();
        Ok(Response::new(v1::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn list_volumes(
        &self,
        request: Request<v1::ListVolumesRequest>,
    ) -> Result<Response<v1::ListVolumesResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::ListVolumes, move |driver| driver.list_volumes(&request)).await
    }

    async fn get_capacity(
        &self,
        request: Request<v1::GetCapacityRequest>,
    ) -> Result<Response<v1::GetCapacityResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::GetCapacity, move |driver| driver.get_capacity(&request)).await
    }

    async fn create_snapshot(
        &self,
        request: Request<v1::CreateSnapshotRequest>,
    ) -> Result<Response<v1::CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::CreateDeleteSnapshot, move |driver| driver.create_snapshot(&request)).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<v1::DeleteSnapshotRequest>,
    ) -> Result<Response<v1::DeleteSnapshotResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::CreateDeleteSnapshot, move |driver| driver.delete_snapshot(&request)).await
    }

    async fn list_snapshots(
        &self,
        request: Request<v1::ListSnapshotsRequest>,
    ) -> Result<Response<v1::ListSnapshotsResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::ListSnapshots, move |driver| driver.list_snapshots(&request)).await
    }

    async fn get_snapshot(
        &self,
        request: Request<v1::GetSnapshotRequest>,
    ) -> Result<Response<v1::GetSnapshotResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::GetSnapshot, move |driver| driver.get_snapshot(&request)).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<v1::ControllerExpandVolumeRequest>,
    ) -> Result<Response<v1::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::ControllerExpand, move |driver| driver.expand(&request)).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<v1::ControllerGetVolumeRequest>,
    ) -> Result<Response<v1::ControllerGetVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::GetVolume, move |driver| driver.get_volume(&request)).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<v1::ControllerModifyVolumeRequest>,
    ) -> Result<Response<v1::ControllerModifyVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(Ability::ModifyVolume, move |driver| driver.modify(&request)).await
    }
}
