//! ControllerPublishVolume and ControllerUnpublishVolume.

use std::collections::BTreeMap;

use csi_proto::v1;
use tonic::Status;

use crate::ability::Ability;
use crate::books::{Attachment, Books, Capability, GENERATION_KEY, Volume};
use crate::driver::Driver;
use crate::journal::Entry;
use crate::sabotage::Sabotage;
use crate::validate;

impl Driver {
    pub(crate) fn attach(
        &self,
        request: &v1::ControllerPublishVolumeRequest,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        node_id(&request.node_id)?;
        let capability = validate::capability(request.volume_capability.as_ref())?;
        self.check_context(&request.volume_context)?;
        if request.readonly && !self.can(Ability::PublishReadonly) {
            return Err(Status::invalid_argument("this driver cannot publish to a node for reading only"));
        }
        validate::map("secrets", &request.secrets)?;

        let _claim = self.in_flight.claim(&[&request.volume_id, "attachment"])?;
        let generation = self.journal.transact(|books| {
            let volume = books.volumes.get(&request.volume_id).filter(|volume| volume.created);
            let volume = volume
                .ok_or_else(|| Status::not_found(format!("there is no volume `{}`", request.volume_id)))?;
            let node = &request.node_id;
            if !books.nodes.contains_key(node) && !self.breaks(Sabotage::AttachToUnknownNode) {
                return Err(Status::not_found(format!("there is no node `{node}`")));
            }
            self.supports(volume.backing, &capability).map_err(Status::invalid_argument)?;
            if self.breaks(Sabotage::AttachAgainNeedsPlace) {
                self.must_have_place(books, node)?;
            }
            let same = volume.attached.get(node);
            if let Some(attachment) = same.filter(|_| !self.breaks(Sabotage::AttachForgetsIdempotence)) {
                if !self.breaks(Sabotage::AttachIgnoresConflict) {
                    is_compatible(attachment, &capability, request.readonly)?;
                }
                let was_read_only = self.has_seen(&attached_read_only(&volume.id));
                if !request.readonly && was_read_only && self.breaks(Sabotage::ReadOnlyAttachmentIsCompared) {
                    return Err(Status::already_exists("the volume is published for reading only"));
                }
                // The sabotage acts elsewhere.
                self.remember(&attached_again(&volume.id));
                return Ok((Vec::new(), attachment.generation));
            }
            let was_detached = || self.has_seen(&detached_from_all(&volume.id));
            if request.readonly && self.breaks(Sabotage::DetachFromAllKeepsMode) && was_detached() {
                return Err(Status::already_exists("the volume is published for writing"));
            }
            self.may_attach(books, volume, node, &capability)?;
            if request.readonly {
                self.remember(&attached_read_only(&volume.id));
            }
            let attachment = Attachment { generation: books.next, readonly: request.readonly, capability };
            let mut volume = volume.clone();
            volume.attached.insert(node.clone(), attachment);
            let entries = vec![Entry::Next(books.next + 1), Entry::Volume(Box::new(volume))];
            Ok::<_, Status>((entries, books.next))
        })?;
        let generation = generation.saturating_sub(self.breaks(Sabotage::StalePublishContext).into());
        let publish_context = BTreeMap::from([(GENERATION_KEY.to_owned(), generation.to_string())]);
        Ok(v1::ControllerPublishVolumeResponse { publish_context })
    }

    pub(crate) fn detach(
        &self,
        request: &v1::ControllerUnpublishVolumeRequest,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        validate::at_most("node_id", &request.node_id, validate::NODE_ID_LIMIT)?;
        validate::map("secrets", &request.secrets)?;
        if self.breaks(Sabotage::DetachNeedsNode) {
            validate::required("node_id", &request.node_id)?;
        }
        let from_all = request.node_id.is_empty() && self.breaks(Sabotage::DetachFromAllKeepsPlace);
        if request.node_id.is_empty() {
            // The sabotage acts elsewhere.
            self.remember(&detached_from_all(&request.volume_id));
        }
        if from_all || self.breaks(Sabotage::DetachKeepsPlace) {
            // The sabotages act elsewhere.
            self.remember("a detached volume");
        }

        let _claim = self.in_flight.claim(&[&request.volume_id, "attachment"])?;
        self.journal.transact(|books| {
            // A volume or a node that does not exist is not published: success.
            let Some(volume) = books.volumes.get(&request.volume_id) else {
                return match self.breaks(Sabotage::DetachNeedsVolume) {
                    true => Err(Status::not_found("there is no such volume")),
                    false => Ok((Vec::new(), ())),
                };
            };
            let mut volume = volume.clone();
            let before = volume.attached.len();
            let from_all = request.node_id.is_empty() && !self.breaks(Sabotage::DetachFromNone);
            volume.attached.retain(|node, _| !from_all && *node != request.node_id);
            let changed = volume.attached.len() != before;
            if changed && self.breaks(Sabotage::DetachForgetsTargets) {
                volume.targets.clear();
            }
            if !changed && self.breaks(Sabotage::DetachForgetsIdempotence) {
                return Err(Status::not_found("the volume is not published to this node"));
            }
            let entries = if changed { vec![Entry::Volume(Box::new(volume))] } else { Vec::new() };
            Ok::<_, Status>((entries, ()))
        })?;
        Ok(v1::ControllerUnpublishVolumeResponse {})
    }

    fn may_attach(
        &self,
        books: &Books,
        volume: &Volume,
        node: &str,
        capability: &Capability,
    ) -> Result<(), Status> {
        if !capability.mode.is_multi_node()
            && !self.breaks(Sabotage::AttachToManyNodes)
            && let Some(other) = volume.attached.keys().find(|other| *other != node)
        {
            let message = format!("the volume is published to node `{other}`, and this mode allows one");
            return Err(Status::failed_precondition(message));
        }
        let zone = books.nodes.get(node).map(|node| &node.zone);
        if self.can(Ability::Topology) && zone.is_some_and(|zone| *zone != volume.zone) {
            let message = format!("the volume can be reached from zone `{}` only", volume.zone);
            return Err(Status::failed_precondition(message));
        }
        self.must_have_place(books, node)
    }

    /// RESOURCE_EXHAUSTED if the node carries no more volumes.
    fn must_have_place(&self, books: &Books, node: &str) -> Result<(), Status> {
        let mut count = books.volumes.values().filter(|volume| volume.attached.contains_key(node)).count();
        let keeps = [Sabotage::DetachKeepsPlace, Sabotage::DetachFromAllKeepsPlace];
        if keeps.into_iter().any(|sabotage| self.breaks(sabotage)) && self.has_detached() {
            count += 1;
        }
        if self.breaks(Sabotage::AttachAgainTakesPlace) {
            let again = |volume: &&Volume| self.has_seen(&attached_again(&volume.id));
            count += books.volumes.values().filter(again).count();
        }
        let is_limited = self.options.max_volumes > 0 && !self.breaks(Sabotage::AttachBeyondLimit);
        if is_limited && count as i64 >= self.options.max_volumes {
            return Err(Status::resource_exhausted(format!("node `{node}` has {count} volumes, its limit")));
        }
        Ok(())
    }
}

/// The driver's note, for a sabotage, that a call to attach a volume was repeated.
fn attached_again(volume: &str) -> String {
    format!("{volume} is attached again")
}

/// The driver's note, for a sabotage, that a volume was attached read-only.
pub(crate) fn attached_read_only(volume: &str) -> String {
    format!("{volume} is attached read-only")
}

/// The driver's note, for a sabotage, that a volume was detached without a node.
fn detached_from_all(volume: &str) -> String {
    format!("{volume} is detached from all nodes")
}

fn node_id(value: &str) -> Result<(), Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument("node_id is missing"));
    }
    validate::at_most("node_id", value, validate::NODE_ID_LIMIT)
}

fn is_compatible(attachment: &Attachment, capability: &Capability, readonly: bool) -> Result<(), Status> {
    if attachment.readonly == readonly && attachment.capability == *capability {
        return Ok(());
    }
    Err(Status::already_exists("the volume is published to this node in another way"))
}
