//! DeleteVolume and ValidateVolumeCapabilities.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use csi_proto::v1;
use csi_proto::v1::validate_volume_capabilities_response::Confirmed;
use nix::mount::MsFlags;
use tonic::Status;

use crate::books::{Backing, Capability, Mode, Source, Volume};
use crate::driver::Driver;
use crate::journal::Entry;
use crate::kernel::{copy, loop_device, mount};
use crate::sabotage::Sabotage;
use crate::validate;

impl Driver {
    pub(crate) fn delete_volume(
        &self,
        request: &v1::DeleteVolumeRequest,
    ) -> Result<v1::DeleteVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        validate::map("secrets", &request.secrets)?;
        if self.breaks(Sabotage::DeleteTrustsIds) && request.volume_id.contains('/') {
            // The bug: the caller's id becomes part of a path.
            drop(fs::remove_dir_all(self.options.state.join("volumes").join(&request.volume_id)));
        }
        let _claim = self.in_flight.claim(&[&request.volume_id])?;
        self.delete_longer_names(&request.volume_id)?;
        self.keep_blocks(&request.volume_id)?;
        let doomed = self.journal.transact(|books| {
            let Some(volume) = books.volumes.get(&request.volume_id) else {
                let times = |number: u32| format!("{} is gone, time {number}", request.volume_id);
                let tires = self.breaks(Sabotage::DeleteTires);
                if tires && !self.is_first(&times(1)) && !self.is_first(&times(2)) {
                    return Err(Status::internal("the volume was deleted too often"));
                }
                if self.breaks(Sabotage::DeleteForgetsIdempotence) {
                    return Err(Status::not_found("there is no such volume"));
                }
                return Ok((Vec::new(), None));
            };
            if self.breaks(Sabotage::DeleteRemembersNames) && !self.is_first(&volume.name) {
                return Ok((Vec::new(), None));
            }
            if !self.breaks(Sabotage::DeleteWhileInUse) {
                refuse_while_used(volume)?;
            }
            // Hidden first: from here on no call finds it by id or name.
            let doomed = Volume { created: false, name: String::new(), ..volume.clone() };
            Ok::<_, Status>((vec![Entry::Volume(Box::new(doomed.clone()))], Some(doomed)))
        })?;
        let Some(volume) = doomed else { return Ok(v1::DeleteVolumeResponse {}) };
        // The sabotages act elsewhere, and on what was seen in the volume.
        self.remember(&format!("deleted: {}", volume.id));
        for linked in self.remembered_after(&format!("link in {}: ", volume.id)) {
            drop(match self.breaks(Sabotage::DeleteFollowsLinks) {
                true => fs::remove_dir_all(linked),
                false => fs::set_permissions(linked, fs::Permissions::from_mode(0o777)),
            });
        }
        if self.breaks(Sabotage::SnapshotDiesWithSource) {
            let snapshots = self.journal.read(|books| books.snapshots.clone())?;
            let taken = snapshots.values().filter(|snapshot| snapshot.source == volume.id);
            taken.cloned().try_for_each(|snapshot| self.drop_snapshot(&snapshot))?;
        }
        if self.breaks(Sabotage::CloneDiesWithSource) || self.breaks(Sabotage::DeleteEmptiesOthers) {
            self.empty_others(&volume)?;
        }
        self.lose(Sabotage::CapacityKeepsDeleted, volume.capacity);
        if volume.is_raw() {
            self.lose(Sabotage::CapacityKeepsDevices, volume.capacity);
        }
        if !self.breaks(Sabotage::DeleteLeavesImage) {
            self.remove_contents(&volume)?;
        }
        if self.breaks(Sabotage::DeleteLeavesMount) {
            let left = self.options.state.join("mounts").join(format!("left-{}", volume.number));
            let made = fs::create_dir_all(&left).map_err(|error| Status::internal(error.to_string()));
            made.and_then(|()| Ok(mount::bind(&left, &left, MsFlags::empty())?))?;
        }
        self.journal.transact(|_| Ok::<_, Status>((vec![Entry::VolumeGone(volume.id.clone())], ())))?;
        Ok(v1::DeleteVolumeResponse {})
    }

    /// The bug: the next device of the same name gets the blocks of a deleted one.
    fn keep_blocks(&self, id: &str) -> Result<(), Status> {
        let volume = self.journal.read(|books| books.volumes.get(id).cloned())?;
        if let Some(volume) = volume.filter(|volume| volume.is_raw() && !volume.name.is_empty())
            && self.breaks(Sabotage::DeviceFindsOldBlocks)
        {
            copy::image(&self.contents_of(&volume), &self.old_blocks(&volume.name))?;
        }
        Ok(())
    }

    /// Where a sabotage keeps the blocks of a deleted device.
    pub(super) fn old_blocks(&self, name: &str) -> PathBuf {
        self.options.state.join(format!("old-{}", name.replace('/', "-")))
    }

    /// The bugs: a name, or its part before a slash, is taken for the beginning of a name, of a volume or of the volume of a
    /// snapshot.
    fn delete_longer_names(&self, id: &str) -> Result<(), Status> {
        let takes_directory = self.breaks(Sabotage::DeleteTakesDirectory);
        let takes_volumes = takes_directory || self.breaks(Sabotage::DeleteTakesLongerNames);
        if !takes_volumes && !self.breaks(Sabotage::DeleteTakesLongerSnapshots) {
            return Ok(());
        }
        let volumes = self.journal.read(|books| books.volumes.clone())?;
        let name = volumes.get(id).map(|volume| volume.name.clone()).filter(|name| !name.is_empty());
        // With its slash: a name without one is in no directory.
        let part = |name: &str| match takes_directory {
            true => name.rfind('/').map_or(String::new(), |slash| name[..=slash].to_owned()),
            false => name.to_owned(),
        };
        let part = name.map(|name| part(&name)).filter(|part| !part.is_empty());
        let longer = |other: &&Volume| {
            other.id != id && part.as_ref().is_some_and(|part| other.name.starts_with(part.as_str()))
        };
        for other in volumes.values().filter(longer) {
            if takes_volumes {
                self.remove_contents(other)?;
            }
            self.journal.transact(|books| {
                let gone = match takes_volumes {
                    true => vec![Entry::VolumeGone(other.id.clone())],
                    false => {
                        let taken = books.snapshots.values().filter(|snapshot| snapshot.source == other.id);
                        taken.map(|snapshot| Entry::SnapshotGone(snapshot.id.clone())).collect()
                    }
                };
                Ok::<_, Status>((gone, ()))
            })?;
        }
        Ok(())
    }

    /// The bug: takes copies of the volume for the volume itself.
    fn empty_others(&self, volume: &Volume) -> Result<(), Status> {
        let volumes = self.journal.read(|books| books.volumes.clone())?;
        let source = Some(Source::Volume(volume.id.clone()));
        let all = self.breaks(Sabotage::DeleteEmptiesOthers);
        for other in volumes.values().filter(|other| all || other.source == source) {
            let image =
                fs::File::create(self.contents_of(other)).and_then(|file| file.set_len(other.capacity));
            image.map_err(|error| Status::internal(error.to_string()))?;
        }
        Ok(())
    }

    /// Removes the file or directory of a volume. The caller removes the record afterwards: a file without a record
    /// would be lost.
    pub(crate) fn remove_contents(&self, volume: &Volume) -> Result<(), Status> {
        let path = self.contents_of(volume);
        match volume.backing {
            Backing::Tmpfs => mount::unmount_all(&path)?,
            Backing::Loop => drop(loop_device::detach_all(&path)?),
            Backing::Directory | Backing::Shared | Backing::Fuse => {}
        }
        Ok(copy::remove(&path)?)
    }

    pub(crate) fn validate(
        &self,
        request: &v1::ValidateVolumeCapabilitiesRequest,
    ) -> Result<v1::ValidateVolumeCapabilitiesResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        let capabilities = validate::capabilities(&request.volume_capabilities)?;
        self.check_context(&request.volume_context)?;
        validate::map("parameters", &request.parameters)?;
        validate::map("secrets", &request.secrets)?;
        let volume = self.volume(&request.volume_id)?;
        if self.breaks(Sabotage::ValidateChangesUse) {
            self.update_volume(&volume.id, |volume| volume.capabilities = capabilities.clone())?;
        }
        let looked_at = match self.breaks(Sabotage::ValidateLooksAtFirst) {
            true => &capabilities[..1],
            false => &capabilities[..],
        };
        let forgets_use = self.breaks(Sabotage::ValidateForgetsUse);
        let refused = |capability: &Capability| match volume.is_made_for(&capability.access) || forgets_use {
            true => self.supports(volume.backing, capability).err(),
            false => Some("the volume was created for the other use".to_owned()),
        };
        let refusal = looked_at.iter().find_map(refused);
        let refusal = refusal.filter(|_| !self.breaks(Sabotage::ValidateConfirmsAnything));
        let is_old = |one: &Capability| one.mode == Mode::SingleNodeWriter;
        let unknown = capabilities.iter().any(is_old) && self.breaks(Sabotage::RefusesSingleNodeWriter);
        let refusal = refusal.or_else(|| unknown.then(|| "the access mode is unknown".to_owned()));
        let nothing = || "it was not looked at".to_owned();
        let refusal = refusal.or_else(|| self.breaks(Sabotage::ValidateConfirmsNothing).then(nothing));
        Ok(match refusal {
            Some(message) => v1::ValidateVolumeCapabilitiesResponse { confirmed: None, message },
            None => v1::ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context.clone(),
                    volume_capabilities: match self.options.sabotage {
                        Some(Sabotage::ConfirmsNoCapabilities) => Vec::new(),
                        Some(Sabotage::ValidateConfirmsOthers) => {
                            vec![request.volume_capabilities[0].clone(); request.volume_capabilities.len()]
                        }
                        Some(Sabotage::ConfirmsFirstUse) => request.volume_capabilities[..1].to_vec(),
                        _ => request.volume_capabilities.clone(),
                    },
                    parameters: request.parameters.clone(),
                    mutable_parameters: request.mutable_parameters.clone(),
                }),
                message: String::new(),
            },
        })
    }
}

fn refuse_while_used(volume: &Volume) -> Result<(), Status> {
    let used = if !volume.targets.is_empty() {
        "published"
    } else if !volume.staged.is_empty() {
        "staged"
    } else if !volume.attached.is_empty() {
        "attached"
    } else {
        return Ok(());
    };
    Err(Status::failed_precondition(format!("the volume is still {used}")))
}
