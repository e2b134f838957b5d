//! The simulated driver's controller service, for the provisioner, the resizer and the modifier.

use std::time::Duration;

use async_trait::async_trait;
use cluster::{ExpandService, ModifyService, ProvisionService};
use csi_proto::v1;
use csi_proto::v1::volume_content_source::Type as Source;
use tonic::Status;

use super::{SIZE, SimulatedDriver, disk, failed, is_block};

/// Sizes are multiples of this.
const BLOCK: u64 = 4096;

#[async_trait]
impl ProvisionService for SimulatedDriver {
    async fn create(
        &self,
        request: v1::CreateVolumeRequest,
        limit: Duration,
    ) -> Result<v1::CreateVolumeResponse, Status> {
        self.controller_call("CreateVolume", request, limit, Self::make_volume).await
    }

    async fn delete(
        &self,
        request: v1::DeleteVolumeRequest,
        limit: Duration,
    ) -> Result<v1::DeleteVolumeResponse, Status> {
        self.controller_call("DeleteVolume", request, limit, |driver, request| {
            driver.delete_volume(&request.volume_id)?;
            Ok(v1::DeleteVolumeResponse {})
        })
        .await
    }
}

#[async_trait]
impl ExpandService for SimulatedDriver {
    async fn expand(
        &self,
        request: v1::ControllerExpandVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerExpandVolumeResponse, Status> {
        self.controller_call("ControllerExpandVolume", request, limit, |driver, request| {
            driver.known(&request.volume_id)?;
            let mut size = asked(request.capacity_range.as_ref());
            driver.change(&request.volume_id, |volume| {
                size = size.max(volume.granted);
                volume.granted = size;
            });
            let capacity_bytes = size.cast_signed();
            Ok(v1::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: true })
        })
        .await
    }
}

#[async_trait]
impl ModifyService for SimulatedDriver {
    async fn modify(
        &self,
        request: v1::ControllerModifyVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerModifyVolumeResponse, Status> {
        self.controller_call("ControllerModifyVolume", request, limit, |driver, request| {
            driver.known(&request.volume_id)?;
            let attributes = request.mutable_parameters.clone();
            driver.change(&request.volume_id, |volume| volume.attributes.extend(attributes));
            Ok(v1::ControllerModifyVolumeResponse {})
        })
        .await
    }
}

/// The size that a request asks for, as a disk has it.
fn asked(range: Option<&v1::CapacityRange>) -> u64 {
    range.map_or(SIZE, |range| range.required_bytes.cast_unsigned()).next_multiple_of(BLOCK)
}

impl SimulatedDriver {
    /// Makes a volume, once for each name.
    fn make_volume(&self, request: &v1::CreateVolumeRequest) -> Result<v1::CreateVolumeResponse, Status> {
        let source = request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
        match source {
            Some(Source::Volume(source)) => self.known(&source.volume_id)?,
            Some(Source::Snapshot(source)) => self.check_snapshot_exists(&source.snapshot_id)?,
            None => {}
        }
        let size = asked(request.capacity_range.as_ref());
        let known = self.open().ids.get(&request.name).cloned();
        let id = match known {
            Some(id) => id,
            None => {
                let id = self.next_id(&request.name, "vol");
                let block = is_block(request.volume_capabilities.first());
                self.create(&id, block).map_err(failed)?;
                self.change(&id, |volume| {
                    (volume.size, volume.granted) = (size, size);
                    volume.attributes = request.mutable_parameters.clone();
                });
                id
            }
        };
        let capacity_bytes = self.open().volumes[&id].granted.cast_signed();
        let volume = v1::Volume {
            volume_id: id,
            capacity_bytes,
            volume_context: [("tier".to_owned(), "fast".to_owned())].into(),
            content_source: request.volume_content_source.clone(),
            ..v1::Volume::default()
        };
        Ok(v1::CreateVolumeResponse { volume: Some(volume) })
    }

    fn delete_volume(&self, id: &str) -> Result<(), Status> {
        let mut inner = self.open();
        let Some(volume) = inner.volumes.get_mut(id).filter(|volume| !volume.deleted) else { return Ok(()) };
        if let Some(node) = volume.attached.first() {
            return Err(Status::failed_precondition(format!("the volume is attached to {node}")));
        }
        volume.deleted = true;
        inner.ids.retain(|_, known| known != id);
        drop(inner);
        // A lost node may still have the volume mounted: its disk fails from now on.
        self.kernel.remove_disk(&disk(id)).map_err(failed)
    }

    /// The id of something new that was asked for by a name.
    pub(super) fn next_id(&self, name: &str, kind: &str) -> String {
        let mut inner = self.open();
        inner.made += 1;
        let id = format!("{kind}-{}", inner.made);
        inner.ids.insert(name.to_owned(), id.clone());
        id
    }

    /// The volumes that are not deleted, the snapshots and their groups.
    pub(crate) fn possesses(&self) -> Vec<String> {
        let inner = self.open();
        let volumes = inner.volumes.iter().filter(|(id, volume)| !volume.deleted && !super::is_inline(id));
        let copies = inner.snapshots.keys().chain(inner.groups.keys()).cloned();
        volumes.map(|(id, _)| id.clone()).chain(copies).collect()
    }

    /// The attributes of a volume.
    pub(crate) fn attributes(&self, id: &str) -> std::collections::BTreeMap<String, String> {
        self.open().volumes.get(id).map(|volume| volume.attributes.clone()).unwrap_or_default()
    }
}
