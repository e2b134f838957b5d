//! NodeGetVolumeStats: usage and condition of a volume.

use std::path::Path;

use csi_proto::v1;
use csi_proto::v1::volume_usage::Unit;
use tonic::Status;

use super::NodeService;
use crate::ability::Ability;
use crate::books::{Access, Backing, Volume};
use crate::kernel::loop_device::LoopDevice;
use crate::kernel::{KernelError, fuse, mount};
use crate::sabotage::Sabotage;
use crate::size::signed;
use crate::validate;

impl NodeService {
    pub(super) fn stats(
        &self,
        request: &v1::NodeGetVolumeStatsRequest,
    ) -> Result<v1::NodeGetVolumeStatsResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        let path = validate::some_path("volume_path", &request.volume_path)?;
        let volume = self.driver.volume(&request.volume_id)?;
        if self.driver.breaks(Sabotage::StatsAbortedWhenBusy) && !self.driver.in_flight.is_idle() {
            return Err(Status::aborted("another call is in flight"));
        }
        if volume.ephemeral && self.driver.breaks(Sabotage::InlineStatsEndDriver) {
            std::process::abort();
        }
        if self.driver.breaks(Sabotage::StatsLeakDescriptor) {
            std::mem::forget(std::fs::File::open("/dev/null"));
        }
        let is_block = match self.access_at(&volume, &path) {
            Err(_) if self.driver.breaks(Sabotage::StatsOfAnyPath) => false,
            found => found?,
        };
        let waits = self.driver.breaks(Sabotage::StatsWaitForDaemon);
        let is_shown = self.is_visible(&volume, &path)? || self.driver.breaks(Sabotage::AlwaysHealthy);
        let condition = self.driver.condition_of(is_shown, "mounted", "no longer mounted");
        let usage = match (is_block, is_shown) {
            (_, false) => Vec::new(),
            (true, true) if self.driver.breaks(Sabotage::StatsOfTheDeviceNode) => {
                usage_of(path.parent().unwrap_or(&path))?
            }
            (true, true) => vec![v1::VolumeUsage {
                total: signed(volume.capacity),
                unit: Unit::Bytes.into(),
                ..Default::default()
            }],
            (false, true) if self.driver.breaks(Sabotage::StatsOfTheHost) => usage_of(Path::new("/"))?,
            (false, true) if volume.backing == Backing::Fuse && !waits => {
                let found = fuse::measure(&path);
                usage(&found.ok_or_else(|| Status::unavailable("the daemon of the volume does not answer"))?)
            }
            (false, true) => usage_of(&path)?,
        };
        if !is_shown && !self.driver.can(Ability::Condition) {
            return Err(Status::internal("the volume is no longer mounted at volume_path"));
        }
        let usage = match self.driver.breaks(Sabotage::StatsInBlocks) {
            true => usage.into_iter().map(in_blocks).collect(),
            false if self.driver.breaks(Sabotage::StatsSwapInodes) => {
                usage.into_iter().map(with_swapped_inodes).collect()
            }
            false => usage,
        };
        let usage = match self.driver.breaks(Sabotage::StatsCallInodesBytes) {
            true => {
                usage.into_iter().map(|usage| v1::VolumeUsage { unit: Unit::Bytes.into(), ..usage }).collect()
            }
            false => usage,
        };
        let mut usage = self.driver.remembered(&volume.id, usage);
        if self.driver.breaks(Sabotage::StatsTellBytesTwice) {
            usage.extend(usage.first().cloned());
        }
        if !is_block && is_shown && self.driver.breaks(Sabotage::StatsLeaveFile) {
            drop(std::fs::write(path.join(".measured"), ""));
        }
        let has_condition =
            self.driver.can(Ability::Condition) && !self.driver.breaks(Sabotage::StatsWithoutCondition);
        let volume_condition = has_condition.then_some(condition);
        Ok(v1::NodeGetVolumeStatsResponse { usage, volume_condition })
    }

    /// Whether the volume is a block volume at a path. NOT_FOUND if the volume is not at the path.
    ///
    /// For a block volume a kubelet sends the path of its own link, which leads to the target.
    pub(super) fn access_at(&self, volume: &Volume, path: &Path) -> Result<bool, Status> {
        let is_block = |access: &Access| *access == Access::Block;
        let is_overlooked = self.driver.breaks(Sabotage::StatsOfFirstTarget)
            && volume.targets.keys().next().is_some_and(|first| first != path);
        let target = volume.targets.get(path).filter(|target| target.node == *self.name);
        if let Some(target) = target.filter(|_| !is_overlooked) {
            return Ok(is_block(&target.capability.access));
        }
        let here = || volume.targets_on(&self.name).map(|(_, target)| &target.capability);
        let staging = volume.staged.get(&*self.name);
        if staging.is_some_and(|staging| staging.path == path) {
            return Ok(staging.is_some_and(|staging| is_block(&staging.capability.access)));
        }
        if here().any(|capability| is_block(&capability.access)) && self.leads_to_device(volume, path)? {
            return Ok(true);
        }
        Err(Status::not_found(format!("the volume is not at `{}`", path.display())))
    }

    /// Whether a path leads to the device of this volume.
    fn leads_to_device(&self, volume: &Volume, path: &Path) -> Result<bool, Status> {
        let Some(found) = mount::device_at(&std::fs::canonicalize(path).unwrap_or_default())? else {
            return Ok(false);
        };
        for read_only in [false, true] {
            let device = LoopDevice::find(&self.driver.contents_of(volume), read_only)?;
            if let Some(device) = device
                && mount::device_at(device.path())? == Some(found)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_visible(&self, volume: &Volume, path: &Path) -> Result<bool, Status> {
        let waits = self.driver.breaks(Sabotage::StatsWaitForDaemon);
        if let Some(target) = volume.targets.get(path) {
            let is_shown = self.is_shown(volume, path, target)?;
            return Ok(is_shown && (volume.backing != Backing::Fuse || waits || fuse::is_served(path)));
        }
        match volume.staged.get(&*self.name).filter(|staging| staging.path == path) {
            Some(staging) => self.is_prepared(volume, staging),
            None => Ok(true),
        }
    }
}

/// The bug: two results in the wrong order.
fn with_swapped_inodes(mut usage: v1::VolumeUsage) -> v1::VolumeUsage {
    if usage.unit == i32::from(Unit::Inodes) {
        std::mem::swap(&mut usage.available, &mut usage.used);
    }
    usage
}

/// The bug: forgets the size of a block.
fn in_blocks(usage: v1::VolumeUsage) -> v1::VolumeUsage {
    let v1::VolumeUsage { available, total, used, unit } = usage;
    v1::VolumeUsage { available: available / 4096, total: total / 4096, used: used / 4096, unit }
}

fn usage_of(path: &Path) -> Result<Vec<v1::VolumeUsage>, Status> {
    let found = rustix::fs::statvfs(path).map_err(|errno| KernelError::path("measure", path, errno))?;
    Ok(usage(&found))
}

fn usage(found: &rustix::fs::StatVfs) -> Vec<v1::VolumeUsage> {
    let bytes = |blocks: u64| signed(blocks.saturating_mul(found.f_frsize));
    vec![
        v1::VolumeUsage {
            available: bytes(found.f_bavail),
            total: bytes(found.f_blocks),
            used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
            unit: Unit::Bytes.into(),
        },
        v1::VolumeUsage {
            available: signed(found.f_favail),
            total: signed(found.f_files),
            used: signed(found.f_files.saturating_sub(found.f_ffree)),
            unit: Unit::Inodes.into(),
        },
    ]
}
