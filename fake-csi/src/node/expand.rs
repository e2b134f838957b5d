//! NodeExpandVolume: grows the device, then the file system on it.

use csi_proto::v1;
use nix::mount::MsFlags;
use tonic::Status;

use super::NodeService;
use crate::ability::Ability;
use crate::books::{Access, Backing, Volume};
use crate::kernel::loop_device::LoopDevice;
use crate::kernel::{filesystem, mount};
use crate::sabotage::Sabotage;
use crate::size::signed;
use crate::validate;

impl NodeService {
    pub(super) fn expand(
        &self,
        request: &v1::NodeExpandVolumeRequest,
    ) -> Result<v1::NodeExpandVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        let path = validate::some_path("volume_path", &request.volume_path)?;
        validate::map("secrets", &request.secrets)?;
        if request.volume_capability.is_some() {
            validate::capability(request.volume_capability.as_ref())?;
        }
        if request.capacity_range.is_none() && self.driver.breaks(Sabotage::NodeGrowthNeedsRange) {
            return Err(Status::invalid_argument("capacity_range is missing"));
        }
        let (required, limit) = crate::size::range(request.capacity_range.as_ref())?;

        let _claim = self.claim_alone(&request.volume_id)?;
        let mut volume = self.driver.volume(&request.volume_id)?;
        let is_block = match self.access_at(&volume, &path) {
            Err(_) if self.driver.breaks(Sabotage::SecretsInRefusals) => {
                let message = format!("cannot expand `{}` with {:?}", path.display(), request.secrets);
                return Err(Status::not_found(message));
            }
            found => found?,
        };
        if !volume.targets.contains_key(&path) && self.driver.breaks(Sabotage::ExpandNeedsTarget) {
            return Err(Status::not_found("the volume is not published there"));
        }
        if !is_block && self.driver.breaks(Sabotage::ExpandOpensReadOnly) {
            drop(mount::remount(&path, MsFlags::empty()));
        }
        if required > volume.capacity && !self.driver.can(Ability::ControllerExpand) {
            // Without ControllerExpandVolume the node also grows the image.
            volume = self.driver.grow_contents(&volume, required.next_multiple_of(4096))?;
        }
        if required > 0 && required < volume.capacity && self.driver.breaks(Sabotage::NodeGrowthShrinksRecord)
        {
            self.driver.update_volume(&volume.id, |volume| volume.capacity = required)?;
        }
        if required > volume.capacity || limit.is_some_and(|limit| limit < volume.capacity) {
            let message = format!("the volume has {} bytes; the controller expands it", volume.capacity);
            return Err(Status::out_of_range(message));
        }
        if self.driver.breaks(Sabotage::ExpandAnswersEarly) {
            let (node, capacity_bytes) = (self.clone(), signed(volume.capacity));
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(300));
                drop(node.grow_device(&volume));
            });
            return Ok(v1::NodeExpandVolumeResponse { capacity_bytes });
        }
        if !self.driver.breaks(Sabotage::ExpandForgetsDevice) {
            self.grow_device(&volume)?;
        }
        if !is_block && !self.driver.breaks(Sabotage::ExpandForgetsFileSystem) {
            self.grow_mounted(&volume)?;
        }
        if !is_block && self.driver.breaks(Sabotage::ExpandEmptiesFiles) {
            let files = std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
            files.filter(|file| file.is_file()).for_each(|file| drop(std::fs::File::create(file)));
        }
        Ok(v1::NodeExpandVolumeResponse { capacity_bytes: signed(volume.capacity) })
    }

    fn grow_device(&self, volume: &Volume) -> Result<(), Status> {
        let contents = self.driver.contents_of(volume);
        for read_only in [false, true] {
            if let Some(device) = LoopDevice::find(&contents, read_only)? {
                device.grow()?;
            }
        }
        Ok(())
    }

    fn grow_mounted(&self, volume: &Volume) -> Result<(), Status> {
        match (volume.backing, &volume.format, volume.staged.get(&*self.name)) {
            (Backing::Loop, Some(format), Some(staging)) if staging.capability.access != Access::Block => {
                if format.bytes == volume.capacity {
                    return Ok(());
                }
                filesystem::grow(&staging.path, &format.fs_type, volume.capacity).map_err(|error| {
                    if error.errno() == Some(nix::libc::EPERM) {
                        let message =
                            "growing a mounted ext4 needs CAP_SYS_RESOURCE; it grows when staged next";
                        return Status::failed_precondition(message);
                    }
                    error.into()
                })?;
                self.record_size(volume)
            }
            (Backing::Tmpfs, _, _) => self.driver.mount_tmpfs(volume),
            _ => Ok(()),
        }
    }
}
