//! Controller service of the hostpath driver: creates, expands and deletes. It does not attach or list.

use std::fs::{self, File};

use csi_proto::v1::volume_capability::AccessType;
use csi_proto::v1::{self, controller_server::Controller};
use tonic::{Request, Response, Status};

use super::books::Volume;
use super::node::LARGEST;
use super::{Hostpath, failed, required};
use crate::kernel::loop_device::{self, Lifetime, LoopDevice};

/// Bytes of a volume without a capacity range.
const DEFAULT_BYTES: u64 = 1 << 30;

impl Hostpath {
    fn create(&self, request: &v1::CreateVolumeRequest) -> Result<v1::CreateVolumeResponse, Status> {
        required("name", &request.name)?;
        let is_block =
            |wanted: &v1::VolumeCapability| matches!(wanted.access_type, Some(AccessType::Block(_)));
        let block = request.volume_capabilities.iter().any(is_block);
        let capacity = match bytes(request.capacity_range.as_ref()) {
            0 => DEFAULT_BYTES,
            wanted if wanted > LARGEST => return Err(Status::out_of_range("no volume can be so large")),
            wanted => wanted,
        };
        self.books.transact(|pages| {
            if let Some((id, known)) = pages.volumes.iter().find(|(_, volume)| volume.name == request.name) {
                if known.capacity < capacity || known.block != block {
                    return Err(Status::already_exists("there is another volume of this name"));
                }
                return Ok(self.describe(id, known));
            }
            pages.last += 1;
            // With the form of a UUID, so that a trace can be searched for it, and the same in each run.
            let id = format!("{:08x}-0000-4000-8000-{:012x}", pages.last, pages.last);
            let volume = Volume { name: request.name.clone(), block, capacity, ..Volume::default() };
            self.make(&id, &volume)?;
            let described = self.describe(&id, &volume);
            pages.volumes.insert(id, volume);
            Ok(described)
        })
    }

    fn make(&self, id: &str, volume: &Volume) -> Result<(), Status> {
        let contents = self.books.contents(id);
        if !volume.block {
            return fs::create_dir_all(&contents).map_err(failed("make", &contents));
        }
        let made = File::create(&contents).and_then(|file| file.set_len(volume.capacity));
        made.map_err(failed("make", &contents))?;
        // The loop device stays attached until the volume is deleted.
        LoopDevice::find_or_attach(&contents, false, Lifetime::UntilDetached).map(drop).map_err(|error| {
            drop(fs::remove_file(&contents));
            error.into()
        })
    }

    fn describe(&self, id: &str, volume: &Volume) -> v1::CreateVolumeResponse {
        let volume = v1::Volume {
            capacity_bytes: volume.capacity.cast_signed(),
            volume_id: id.to_owned(),
            accessible_topology: vec![self.here()],
            ..v1::Volume::default()
        };
        v1::CreateVolumeResponse { volume: Some(volume) }
    }

    fn delete(&self, request: &v1::DeleteVolumeRequest) -> Result<v1::DeleteVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        self.books.transact(|pages| {
            let Some(volume) = pages.volumes.get(&request.volume_id) else {
                return Ok(v1::DeleteVolumeResponse {});
            };
            if !volume.staged.is_empty() || !volume.published.is_empty() {
                return Err(Status::internal("the volume is still used"));
            }
            let contents = self.books.contents(&request.volume_id);
            match volume.block {
                true => {
                    loop_device::detach_all(&contents)?;
                    fs::remove_file(&contents).map_err(failed("remove", &contents))?;
                }
                false => fs::remove_dir_all(&contents).map_err(failed("remove", &contents))?,
            }
            pages.volumes.remove(&request.volume_id);
            Ok(v1::DeleteVolumeResponse {})
        })
    }

    fn grow(
        &self,
        request: &v1::ControllerExpandVolumeRequest,
    ) -> Result<v1::ControllerExpandVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        let wanted = bytes(request.capacity_range.as_ref());
        if wanted > LARGEST {
            return Err(Status::out_of_range("no volume can be so large"));
        }
        self.books.transact(|pages| {
            let volume = pages.volume(&request.volume_id)?;
            if volume.capacity < wanted {
                let contents = self.books.contents(&request.volume_id);
                if volume.block {
                    let grown = File::options().write(true).open(&contents);
                    grown.and_then(|file| file.set_len(wanted)).map_err(failed("grow", &contents))?;
                }
                volume.capacity = wanted;
            }
            let capacity_bytes = volume.capacity.cast_signed();
            Ok(v1::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: true })
        })
    }
}

/// The required bytes; 0 without a range.
fn bytes(range: Option<&v1::CapacityRange>) -> u64 {
    range.and_then(|range| u64::try_from(range.required_bytes).ok()).unwrap_or_default()
}

/// Implements the methods that the driver does not report as UNIMPLEMENTED.
macro_rules! absent {
    ($($method:ident: $request:ident -> $response:ident),* $(,)?) => {
        #[tonic::async_trait]
        impl Controller for Hostpath {
            async fn create_volume(
                &self,
                request: Request<v1::CreateVolumeRequest>,
            ) -> Result<Response<v1::CreateVolumeResponse>, Status> {
                let request = request.into_inner();
                self.run(move |driver| driver.create(&request)).await
            }

            async fn delete_volume(
                &self,
                request: Request<v1::DeleteVolumeRequest>,
            ) -> Result<Response<v1::DeleteVolumeResponse>, Status> {
                let request = request.into_inner();
                self.run(move |driver| driver.delete(&request)).await
            }

            async fn controller_expand_volume(
                &self,
                request: Request<v1::ControllerExpandVolumeRequest>,
            ) -> Result<Response<v1::ControllerExpandVolumeResponse>, Status> {
                let request = request.into_inner();
                self.run(move |driver| driver.grow(&request)).await
            }

            async fn controller_get_capabilities(
                &self,
                _: Request<v1::ControllerGetCapabilitiesRequest>,
            ) -> Result<Response<v1::ControllerGetCapabilitiesResponse>, Status> {
                Ok(Response::new(capabilities()))
            }

            $(async fn $method(
                &self,
                _: Request<v1::$request>,
            ) -> Result<Response<v1::$response>, Status> {
                Err(Status::unimplemented(concat!("no ", stringify!($method))))
            })*
        }
    };
}

absent! {
    controller_publish_volume: ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse,
    controller_unpublish_volume: ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse,
    validate_volume_capabilities: ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse,
    list_volumes: ListVolumesRequest -> ListVolumesResponse,
    get_capacity: GetCapacityRequest -> GetCapacityResponse,
    create_snapshot: CreateSnapshotRequest -> CreateSnapshotResponse,
    delete_snapshot: DeleteSnapshotRequest -> DeleteSnapshotResponse,
    list_snapshots: ListSnapshotsRequest -> ListSnapshotsResponse,
    get_snapshot: GetSnapshotRequest -> GetSnapshotResponse,
    controller_get_volume: ControllerGetVolumeRequest -> ControllerGetVolumeResponse,
    controller_modify_volume: ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse,
}

fn capabilities() -> v1::ControllerGetCapabilitiesResponse {
    use v1::controller_service_capability::{Rpc, Type, rpc};
    let kinds = [rpc::Type::CreateDeleteVolume, rpc::Type::ExpandVolume, rpc::Type::SingleNodeMultiWriter];
    let one = |kind: rpc::Type| v1::ControllerServiceCapability {
        r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
    };
    v1::ControllerGetCapabilitiesResponse { capabilities: kinds.map(one).into() }
}
