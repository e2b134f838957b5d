//! Node service of the hostpath driver. Makes and removes targets and mounts.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use csi_proto::v1::volume_capability::AccessType;
use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::{self, node_server::Node};
use nix::mount::MsFlags;
use tonic::{Request, Response, Status};

use super::books::{Pages, Volume};
use super::{Hostpath, failed, required};
use crate::kernel::loop_device::LoopDevice;
use crate::kernel::mount;

/// The context key with which a kubelet marks an inline volume.
const EPHEMERAL_KEY: &str = "csi.storage.k8s.io/ephemeral";

/// Bytes of an inline volume in the books.
const EPHEMERAL_BYTES: u64 = 100 << 20;

impl Hostpath {
    fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<v1::NodeStageVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        required("staging_target_path", &request.staging_target_path)?;
        capability(request.volume_capability.as_ref())?;
        let path = PathBuf::from(&request.staging_target_path);
        self.books.transact(|pages| {
            let volume = pages.volume(&request.volume_id)?;
            if let Some(other) = volume.staged.iter().find(|other| **other != path) {
                let message = format!("the volume is staged at `{}` already", other.display());
                return Err(Status::failed_precondition(message));
            }
            // Staging mounts nothing: there is only the record.
            volume.staged.insert(path);
            Ok(v1::NodeStageVolumeResponse {})
        })
    }

    fn unstage(
        &self,
        request: &v1::NodeUnstageVolumeRequest,
    ) -> Result<v1::NodeUnstageVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        required("staging_target_path", &request.staging_target_path)?;
        let path = Path::new(&request.staging_target_path);
        self.books.transact(|pages| {
            let volume = pages.volume(&request.volume_id)?;
            if volume.staged.contains(path) && !volume.published.is_empty() {
                let left: Vec<_> = volume.published.iter().map(|path| path.display().to_string()).collect();
                return Err(Status::internal(format!(
                    "the volume is still published at {}",
                    left.join(", ")
                )));
            }
            volume.staged.remove(path);
            Ok(v1::NodeUnstageVolumeResponse {})
        })
    }

    fn publish(
        &self,
        request: &v1::NodePublishVolumeRequest,
    ) -> Result<v1::NodePublishVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        required("target_path", &request.target_path)?;
        let (block, mode) = capability(request.volume_capability.as_ref())?;
        let target = PathBuf::from(&request.target_path);
        let ephemeral = request.volume_context.get(EPHEMERAL_KEY).is_some_and(|value| value == "true");
        self.books.transact(|pages| {
            if ephemeral && !pages.volumes.contains_key(&request.volume_id) {
                self.make_ephemeral(pages, &request.volume_id)?;
            }
            let volume = pages.volume(&request.volume_id)?;
            if mode == Mode::SingleNodeSingleWriter && volume.published.iter().any(|other| *other != target) {
                return Err(Status::failed_precondition(
                    "the volume is published to its only writer elsewhere",
                ));
            }
            self.check_staged(volume, request, ephemeral)?;
            if volume.block != block {
                return Err(Status::invalid_argument("the volume is of the other access type"));
            }
            let contents = self.books.contents(&request.volume_id);
            match block {
                true => show_device(&contents, &target)?,
                false => show_directory(&contents, &target, request.readonly)?,
            }
            volume.published.insert(target);
            Ok(v1::NodePublishVolumeResponse {})
        })
    }

    /// Refuses a volume that is staged elsewhere or not at all.
    ///
    /// A request without a staging path is accepted: in some recordings STAGE_UNSTAGE_VOLUME was hidden from the
    /// node, and the driver ran with the check switched off.
    fn check_staged(
        &self,
        volume: &Volume,
        request: &v1::NodePublishVolumeRequest,
        ephemeral: bool,
    ) -> Result<(), Status> {
        let path = Path::new(&request.staging_target_path);
        if ephemeral || request.staging_target_path.is_empty() || volume.staged.contains(path) {
            return Ok(());
        }
        match volume.staged.is_empty() {
            true => Err(Status::failed_precondition("the volume must be staged before it is published")),
            false => Err(Status::invalid_argument("the volume is staged elsewhere")),
        }
    }

    fn make_ephemeral(&self, pages: &mut Pages, id: &str) -> Result<(), Status> {
        let contents = self.books.contents(id);
        fs::create_dir_all(&contents).map_err(failed("make", &contents))?;
        let name = format!("ephemeral-{id}");
        let volume = Volume { name, ephemeral: true, capacity: EPHEMERAL_BYTES, ..Volume::default() };
        pages.volumes.insert(id.to_owned(), volume);
        Ok(())
    }

    fn unpublish(
        &self,
        request: &v1::NodeUnpublishVolumeRequest,
    ) -> Result<v1::NodeUnpublishVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        required("target_path", &request.target_path)?;
        let target = Path::new(&request.target_path);
        self.books.transact(|pages| {
            let volume = pages.volume(&request.volume_id)?;
            if !volume.published.contains(target) {
                return Ok(v1::NodeUnpublishVolumeResponse {});
            }
            mount::unmount_all(target)?;
            remove_target(target)?;
            volume.published.remove(target);
            if volume.ephemeral {
                let contents = self.books.contents(&request.volume_id);
                fs::remove_dir_all(&contents).map_err(failed("remove", &contents))?;
                pages.volumes.remove(&request.volume_id);
            }
            Ok(v1::NodeUnpublishVolumeResponse {})
        })
    }

    fn expand(&self, request: &v1::NodeExpandVolumeRequest) -> Result<v1::NodeExpandVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        required("volume_path", &request.volume_path)?;
        let range = request.capacity_range.as_ref();
        let range = range.ok_or_else(|| Status::invalid_argument("capacity_range is missing"))?;
        self.books.transact(|pages| {
            let volume = pages.volume(&request.volume_id)?;
            if u64::try_from(range.required_bytes).unwrap_or_default() > volume.capacity.max(LARGEST) {
                return Err(Status::out_of_range("the volume cannot be so large"));
            }
            let path = Path::new(&request.volume_path);
            let found = fs::metadata(path).map_err(|error| {
                Status::invalid_argument(format!("cannot look at `{}`: {error}", path.display()))
            })?;
            if found.is_dir() == volume.block {
                return Err(Status::invalid_argument("the volume is of the other access type"));
            }
            if volume.block
                && let Some(device) = LoopDevice::find(&self.books.contents(&request.volume_id), false)?
            {
                device.grow()?;
            }
            // An empty answer, as in the driver of the recordings.
            Ok(v1::NodeExpandVolumeResponse::default())
        })
    }

    fn stats(
        &self,
        request: &v1::NodeGetVolumeStatsRequest,
    ) -> Result<v1::NodeGetVolumeStatsResponse, Status> {
        required("volume_id", &request.volume_id)?;
        required("volume_path", &request.volume_path)?;
        self.books.transact(|pages| {
            let volume = pages.volume(&request.volume_id)?;
            let total = i64::try_from(volume.capacity).unwrap_or(i64::MAX);
            let unit = v1::volume_usage::Unit::Bytes.into();
            let usage = v1::VolumeUsage { total, available: total, used: 0, unit };
            let condition = v1::VolumeCondition { abnormal: false, message: "it is there".to_owned() };
            let volume_condition = Some(condition);
            Ok(v1::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition })
        })
    }
}

pub(super) const LARGEST: u64 = 1 << 40;

#[tonic::async_trait]
impl Node for Hostpath {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(move |driver| driver.stage(&request)).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(move |driver| driver.unstage(&request)).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(move |driver| driver.publish(&request)).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(move |driver| driver.unpublish(&request)).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        self.run(move |driver| driver.stats(&request)).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(move |driver| driver.expand(&request)).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        use v1::node_service_capability::{Rpc, Type, rpc};
        let kinds = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::VolumeCondition,
            rpc::Type::GetVolumeStats,
            rpc::Type::SingleNodeMultiWriter,
            rpc::Type::ExpandVolume,
        ];
        let one = |kind: rpc::Type| v1::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = kinds.map(one).into();
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: self.node.to_string(),
            max_volumes_per_node: 0,
            accessible_topology: Some(self.here()),
        }))
    }
}

/// Whether the capability is for a block volume, and its access mode.
fn capability(capability: Option<&v1::VolumeCapability>) -> Result<(bool, Mode), Status> {
    let capability = capability.ok_or_else(|| Status::invalid_argument("volume_capability is missing"))?;
    let mode = capability.access_mode.map_or(Mode::Unknown, |access| access.mode());
    match &capability.access_type {
        Some(AccessType::Block(_)) => Ok((true, mode)),
        Some(AccessType::Mount(_)) => Ok((false, mode)),
        None => Err(Status::invalid_argument("access_type is missing")),
    }
}

fn show_directory(contents: &Path, target: &Path, read_only: bool) -> Result<(), Status> {
    match DirBuilder::new().mode(0o750).create(target) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("make", target)(error));
        }
        _ => {}
    }
    if mount::is_mount_point(target)? {
        return Ok(());
    }
    let flags = if read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
    Ok(mount::bind(contents, target, flags)?)
}

fn show_device(contents: &Path, target: &Path) -> Result<(), Status> {
    let device = LoopDevice::find(contents, false)?;
    let device = device.ok_or_else(|| Status::unknown("the volume has no device"))?;
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o750).open(target);
    if mount::is_mount_point(target)? {
        return Ok(());
    }
    made.map_err(failed("make", target))?;
    Ok(mount::bind(device.path(), target, MsFlags::empty())?)
}

fn remove_target(target: &Path) -> Result<(), Status> {
    let removed = match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() => fs::remove_dir(target),
        Ok(_) => fs::remove_file(target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(failed("remove", target))
}
