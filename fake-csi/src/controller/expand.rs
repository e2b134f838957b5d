//! ControllerExpandVolume and ControllerModifyVolume.

use std::collections::BTreeMap;
use std::fs::File;

use csi_proto::v1;
use tonic::Status;

use crate::ability::Ability;
use crate::books::{Access, Backing, Volume};
use crate::driver::Driver;
use crate::journal::Entry;
use crate::kernel::{KernelError, copy};
use crate::sabotage::Sabotage;
use crate::size::{range, signed};
use crate::validate;

type IsValid = fn(&str) -> bool;

/// Mutable parameters with the check of their values.
const MUTABLE: [(&str, IsValid); 2] = [
    ("tier", |value| ["bronze", "silver", "gold"].contains(&value)),
    ("iops", |value| value.parse::<u32>().is_ok()),
];

impl Driver {
    pub(crate) fn expand(
        &self,
        request: &v1::ControllerExpandVolumeRequest,
    ) -> Result<v1::ControllerExpandVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        validate::map("secrets", &request.secrets)?;
        if request.capacity_range.is_none() {
            return Err(Status::invalid_argument("capacity_range is missing"));
        }
        let (required, limit) = self.expansion_range(request)?;
        let capability = request
            .volume_capability
            .as_ref()
            .map(|wanted| validate::capability(Some(wanted)))
            .transpose()?;

        let claim = self.in_flight.claim(&[&request.volume_id, "expansion"])?;
        let volume = self.volume(&request.volume_id)?;
        if let Some(capability) = capability {
            self.supports(volume.backing, &capability).map_err(Status::invalid_argument)?;
        }
        let wanted = required.next_multiple_of(4096).max(volume.capacity);
        let is_possible = limit.is_none_or(|limit| limit >= wanted) && wanted <= self.options.capacity;
        if !is_possible && self.breaks(Sabotage::ExpandAcceptsAnySize) {
            let capacity_bytes = signed(wanted);
            return Ok(v1::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false });
        }
        if wanted > self.options.capacity {
            if self.breaks(Sabotage::RefusedGrowthIsRecorded) {
                self.update_volume(&volume.id, |volume| volume.capacity = wanted)?;
            }
            if self.breaks(Sabotage::RefusedGrowthKeepsClaim) {
                std::mem::forget(claim);
            }
            return Err(Status::out_of_range(format!("{wanted} bytes are more than there are")));
        }
        if limit.is_some_and(|limit| limit < wanted) {
            return Err(Status::out_of_range(format!(
                "the volume would have {wanted} bytes, more than the limit"
            )));
        }
        if wanted == volume.capacity && self.breaks(Sabotage::ExpandForgetsIdempotence) {
            return Err(Status::internal("the volume has this size already"));
        }
        self.refuse_online(&volume, wanted)?;
        if wanted > volume.capacity {
            self.grow_contents(&volume, wanted)?;
            if self.breaks(Sabotage::ExpandForgotten) {
                self.update_volume(&volume.id, |grown| grown.capacity = volume.capacity)?;
            }
        }
        Ok(v1::ControllerExpandVolumeResponse {
            capacity_bytes: signed(match self.breaks(Sabotage::ExpandReportsOldSize) {
                true => volume.capacity,
                false if self.breaks(Sabotage::ExpandShrinks) => required,
                false if self.breaks(Sabotage::ExpandExceedsLimit) => {
                    limit.map_or(wanted, |limit| limit + 4096)
                }
                false if self.breaks(Sabotage::ExpandAnswersLimit) => limit.unwrap_or(wanted),
                false => wanted,
            }),
            node_expansion_required: needs_node(&volume)
                && self.can(Ability::NodeExpand)
                && !(wanted == volume.capacity && self.breaks(Sabotage::ExpandAgainNeedsNoNode)),
        })
    }

    fn expansion_range(
        &self,
        request: &v1::ControllerExpandVolumeRequest,
    ) -> Result<(u64, Option<u64>), Status> {
        match (range(request.capacity_range.as_ref()), request.capacity_range) {
            (Err(_), Some(asked)) if self.breaks(Sabotage::ExpandAcceptsAnySize) => {
                Ok((asked.required_bytes.unsigned_abs(), None))
            }
            (range, _) => range,
        }
    }

    pub(crate) fn modify(
        &self,
        request: &v1::ControllerModifyVolumeRequest,
    ) -> Result<v1::ControllerModifyVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        validate::map("secrets", &request.secrets)?;
        validate::map("mutable_parameters", &request.mutable_parameters)?;
        if request.mutable_parameters.is_empty() {
            return Err(Status::invalid_argument("mutable_parameters is missing"));
        }
        let _claim = self.in_flight.claim(&[&request.volume_id, "modification"])?;
        if self.breaks(Sabotage::ModifyTakesUnknownVolume) && self.volume(&request.volume_id).is_err() {
            return Ok(v1::ControllerModifyVolumeResponse {});
        }
        let volume = self.volume(&request.volume_id)?;
        let is_set = |(key, value): (&String, &String)| volume.mutable_parameters.get(key) == Some(value);
        if self.breaks(Sabotage::ModifyForgetsIdempotence) && request.mutable_parameters.iter().all(is_set) {
            return Err(Status::internal("the volume has these parameters already"));
        }
        if self.breaks(Sabotage::ModifyAppliesHalf) {
            self.use_volume(&request.volume_id, |volume| {
                volume.mutable_parameters.extend(request.mutable_parameters.clone());
            })?;
        }
        if !(self.breaks(Sabotage::ModifyFindsPieces) && are_pieces(&request.mutable_parameters)) {
            check_mutable(&request.mutable_parameters)?;
        }
        self.forget_targets(Sabotage::ModifyForgetsTargets, &request.volume_id)?;
        self.use_volume(&request.volume_id, |volume| {
            volume.mutable_parameters.extend(request.mutable_parameters.clone());
        })?;
        Ok(v1::ControllerModifyVolumeResponse {})
    }

    fn refuse_online(&self, volume: &Volume, wanted: u64) -> Result<(), Status> {
        let in_use = !volume.targets.is_empty() || !volume.attached.is_empty();
        if wanted > volume.capacity && in_use && !self.can(Ability::OnlineExpansion) {
            return Err(Status::failed_precondition("the volume is in use, and grows only when it is not"));
        }
        Ok(())
    }

    /// Grows the image and then the record, which must not promise bytes that do not exist.
    pub(crate) fn grow_contents(&self, volume: &Volume, wanted: u64) -> Result<Volume, Status> {
        let path = self.contents_of(volume);
        if volume.backing == Backing::Loop {
            File::options()
                .write(true)
                .open(&path)
                .and_then(|file| file.set_len(wanted))
                .map_err(|source| KernelError::path("grow", &path, source))?;
            if self.breaks(Sabotage::ExpandLosesAStripe) && volume.is_raw() {
                copy::lose_stripes(&path)?;
            }
        }
        self.lose(Sabotage::CapacityKeepsGrowth, wanted - volume.capacity);
        self.journal.transact(|books| {
            let grown = wanted - volume.capacity;
            self.must_fit(books, grown)?;
            let current = books.volumes.get(&volume.id).filter(|volume| volume.created);
            let current = current.ok_or_else(|| Status::not_found("the volume was just deleted"))?;
            let volume = Volume { capacity: wanted, ..current.clone() };
            Ok::<_, Status>((vec![Entry::Volume(Box::new(volume.clone()))], volume))
        })
    }
}

/// The bug: a piece of the name of a mutable parameter is taken for the name.
fn are_pieces(parameters: &BTreeMap<String, String>) -> bool {
    parameters.keys().all(|key| MUTABLE.iter().any(|(name, _)| name.contains(key.as_str())))
}

/// Refuses immutable parameters before any is applied.
pub(super) fn check_mutable(parameters: &BTreeMap<String, String>) -> Result<(), Status> {
    for (key, value) in parameters {
        let Some((_, is_valid)) = MUTABLE.iter().find(|(name, _)| name == key) else {
            return Err(Status::invalid_argument(format!("the parameter `{key}` cannot be modified")));
        };
        if !is_valid(value) {
            return Err(Status::invalid_argument(format!("the parameter {key} cannot be `{value}`")));
        }
    }
    Ok(())
}

/// Whether NodeExpandVolume must follow.
fn needs_node(volume: &Volume) -> bool {
    let is_block = |access: &Access| *access == Access::Block;
    match volume.backing {
        Backing::Loop | Backing::Tmpfs => true,
        Backing::Directory | Backing::Shared | Backing::Fuse => {
            volume.capabilities.iter().any(|capability| is_block(&capability.access))
        }
    }
}
