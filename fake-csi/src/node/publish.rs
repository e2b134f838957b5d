//! NodePublishVolume and NodeUnpublishVolume.

use std::path::{Path, PathBuf};

use csi_proto::json::TOKENS_KEY;
use csi_proto::v1;
use tonic::Status;

use super::NodeService;
use super::backing;
use super::stage::without_tokens;
use crate::ability::Ability;
use crate::books::{Access, Backing, Capability, Mode, Sensitive, Staging, Target, Volume};
use crate::controller::attach::attached_read_only;
use crate::driver::exists;
use crate::kernel::mount;
use crate::sabotage::Sabotage;
use crate::validate;

/// The key of the volume context by which a kubelet marks an inline volume.
const EPHEMERAL_KEY: &str = "csi.storage.k8s.io/ephemeral";

/// The driver's note, for a sabotage, that a call to publish a volume was repeated.
pub(super) fn published_again(volume: &str) -> String {
    format!("{volume} is published again")
}

impl NodeService {
    pub(super) fn publish(
        &self,
        request: &v1::NodePublishVolumeRequest,
    ) -> Result<v1::NodePublishVolumeResponse, Status> {
        let (path, capability) = self.check_publish(request)?;
        let is_inline = request.volume_context.get(EPHEMERAL_KEY).is_some_and(|value| value == "true");
        let staging_path = self.staging_path(request, is_inline)?;

        let claim = self.claim_target(&request.volume_id, &path)?;
        let volume = match is_inline {
            true => self.driver.inline_volume(request, &capability, &self.zone)?,
            false => self.driver.volume(&request.volume_id)?,
        };
        let is_private = staging_path.is_none();
        let fails_for_ever = is_inline && self.driver.breaks(Sabotage::InlineFailsForEver);
        if fails_for_ever && self.driver.has_seen(&volume.id) {
            return Err(Status::internal("the contents of the volume are gone"));
        }
        let is_device = capability.access == Access::Block;
        let published = self.publish_volume(request, &volume, (&path, capability), staging_path);
        let is_unstaged = |status: &Status| status.message().starts_with("the volume is not staged at");
        if self.driver.breaks(Sabotage::UnstagedPublishKeepsClaim)
            && published.as_ref().is_err_and(is_unstaged)
        {
            std::mem::forget(claim);
        }
        if published.is_err() && fails_for_ever {
            self.driver.remember(&volume.id);
        }
        if published.is_err() && is_device && self.driver.breaks(Sabotage::RefusedPublishLeavesTarget) {
            // The bug: it was made before anything was looked at.
            drop(std::fs::File::create_new(&path));
        }
        if published.is_err() && is_private {
            // After a final error the caller need not unpublish.
            self.release_private_staging(&volume.id)?;
        }
        published.map(|()| v1::NodePublishVolumeResponse {})
    }

    fn check_publish(&self, request: &v1::NodePublishVolumeRequest) -> Result<(PathBuf, Capability), Status> {
        validate::required("volume_id", &request.volume_id)?;
        let path = validate::path("target_path", &request.target_path)?;
        let capability = validate::capability(request.volume_capability.as_ref())?;
        validate::map("publish_context", &request.publish_context)?;
        self.driver.check_context(&request.volume_context)?;
        validate::map("secrets", &request.secrets)?;
        if !self.driver.breaks(Sabotage::PublishFollowsLink) {
            validate::not_a_link("target_path", &path)?;
        }
        self.driver.stumble_over(&request.volume_id);
        self.driver.stumble_over(&request.target_path);
        self.replace_record(&path);
        if self.driver.breaks(Sabotage::SecretsInLog) {
            tracing::info!(secrets = ?request.secrets, context = ?request.volume_context, "publishing");
        }
        self.driver.leak_secrets(&request.secrets)?;
        Ok((path, capability))
    }

    /// The bug: the node's record beside the target becomes a link.
    fn replace_record(&self, target: &Path) {
        let record = target.with_file_name("vol_data.json");
        if self.driver.breaks(Sabotage::PublishReplacesRecord) && std::fs::remove_file(&record).is_ok() {
            drop(std::os::unix::fs::symlink("/etc/hostname", &record));
        }
    }

    fn publish_volume(
        &self,
        request: &v1::NodePublishVolumeRequest,
        volume: &Volume,
        (path, capability): (&Path, Capability),
        staging_path: Option<PathBuf>,
    ) -> Result<(), Status> {
        self.may_use(volume, &capability, &request.publish_context)?;
        let was_refused = || self.driver.has_seen(&super::stage::refused_unstage(&volume.id));
        if self.driver.breaks(Sabotage::RefusedUnstageForgets) && was_refused() {
            return Err(Status::failed_precondition("the volume is not staged"));
        }
        // A volume that is attached read-only is published read-only.
        let is_attached_readonly =
            volume.attached.get(&*self.name).is_some_and(|attachment| attachment.readonly)
                || self.driver.breaks(Sabotage::ReadOnlyAttachmentStays)
                    && self.driver.has_seen(&attached_read_only(&volume.id));
        let target = Target {
            node: self.name.to_string(),
            readonly: (request.readonly || is_attached_readonly || capability.mode.is_read_only())
                && !(volume.ephemeral && self.driver.breaks(Sabotage::InlineIgnoresReadOnly)),
            selinux_context: backing::selinux_context(&capability.access),
            capability,
            finished: false,
            volume_context: without_tokens(&request.volume_context),
            tokens: tokens(request),
            calls: 1,
        };
        self.refuse_conflicts(volume, path, &target)?;
        let staging = match staging_path {
            Some(staging_path) => self.staging_at(volume, &staging_path, &target.capability)?,
            None => self.private_staging(volume, &target.capability)?,
        };
        if self.finds_longer_path(volume, path) {
            return Ok(());
        }
        if self.is_already_published(volume, path, &target)? {
            if self.driver.breaks(Sabotage::UnstageCountsCalls) {
                self.driver.is_first(&published_again(&volume.id));
            }
            return Ok(());
        }
        self.leak_resources();
        self.make_target(volume, &staging, path, target)
    }

    /// The bug: a target is found in the table of mounts by the beginning of its path.
    fn finds_longer_path(&self, volume: &Volume, path: &Path) -> bool {
        let begins = |other: &Path| other.to_string_lossy().starts_with(&*path.to_string_lossy());
        self.driver.breaks(Sabotage::PublishFindsLongerPaths)
            && volume.targets_on(&self.name).any(|(other, _)| other != path && begins(other))
    }

    /// The bugs: each call leaves a descriptor, memory or a zombie.
    fn leak_resources(&self) {
        if self.driver.breaks(Sabotage::PublishLeaksDescriptor) {
            std::mem::forget(std::fs::File::open("/dev/null"));
        }
        if self.driver.breaks(Sabotage::PublishLeaksMemory) {
            keep_memory(4 << 20);
        }
        if self.driver.breaks(Sabotage::PublishKeepsMemory) {
            keep_memory(256 << 10);
        }
        self.driver.leave_zombie();
        self.driver.leave_temporary_file(Sabotage::PublishLeavesTemporaryFile);
    }

    pub(super) fn unpublish(
        &self,
        request: &v1::NodeUnpublishVolumeRequest,
    ) -> Result<v1::NodeUnpublishVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        let path = validate::path("target_path", &request.target_path)?;

        let _claim = self.claim_target(&request.volume_id, &path)?;
        let departed = self.driver.journal.read(|books| books.departed.contains(&request.volume_id))?;
        let departed = departed && !self.driver.breaks(Sabotage::InlineUnpublishNotFound);
        // A repeated call for an inline volume, which is deleted with its only target.
        if departed && !exists(&path) {
            return Ok(v1::NodeUnpublishVolumeResponse {});
        }
        let volume = self.driver.volume(&request.volume_id)?;
        let is_escaped = request.target_path.contains(' ') && self.driver.is_first(&request.target_path);
        if is_escaped && self.driver.breaks(Sabotage::UnpublishReadsEscapes) {
            super::stage::files_in(&path).iter().for_each(|file| drop(std::fs::remove_file(file)));
            return Err(Status::internal("the target is busy"));
        }
        let target = volume.targets.get(&path).filter(|target| target.node == *self.name);
        self.refuse_unpublish(target, &path)?;
        if self.driver.breaks(Sabotage::UnpublishTakesAllTargets) {
            volume.targets_on(&self.name).try_for_each(|(path, _)| mount::unmount_all(path))?;
        }
        if self.driver.breaks(Sabotage::UnpublishTakesLongerPaths) {
            let begins = |other: &Path| other.to_string_lossy().starts_with(&request.target_path);
            let longer = volume.targets_on(&self.name).filter(|(other, _)| *other != &path && begins(other));
            longer.into_iter().try_for_each(|(other, _)| mount::unmount_all(other))?;
        }
        match target {
            Some(target) => self.undo_target(&volume, &path, &target.clone())?,
            None if self.driver.breaks(Sabotage::UnpublishForgetsNeighbour) => {
                self.driver.update_volume(&volume.id, |volume| drop(volume.targets.pop_first()))?;
            }
            None => {}
        }
        if self.driver.breaks(Sabotage::UnpublishForgetsLongerPaths) {
            self.driver.update_volume(&volume.id, |volume| {
                volume.targets.retain(|other, _| !other.to_string_lossy().starts_with(&request.target_path));
            })?;
        }
        self.release_private_staging(&volume.id)?;
        Ok(v1::NodeUnpublishVolumeResponse {})
    }

    /// The bugs: an error for a target that is not published, not mounted, not there or read-only.
    fn refuse_unpublish(&self, target: Option<&Target>, path: &Path) -> Result<(), Status> {
        let Some(target) = target else {
            return match self.driver.breaks(Sabotage::UnpublishForgetsIdempotence) {
                true => Err(Status::internal("the volume is not published here")),
                false => Ok(()),
            };
        };
        if self.driver.breaks(Sabotage::UnpublishNeedsMount) && !mount::is_mount_point(path)? {
            return Err(Status::internal("the target is not mounted"));
        }
        if self.driver.breaks(Sabotage::UnpublishNeedsTarget) && !exists(path) {
            return Err(Status::internal("the target is not there"));
        }
        if target.readonly && self.driver.breaks(Sabotage::UnpublishRefusesReadOnly) {
            return Err(Status::internal("cannot remount the target for writing"));
        }
        Ok(())
    }

    fn claim_target(&self, volume: &str, path: &Path) -> Result<crate::in_flight::Claim, Status> {
        self.driver.in_flight.claim(&[volume, &self.name, &path.to_string_lossy()])
    }

    /// The staging path of the request; `None` if the driver stages the volume itself, at a private path.
    fn staging_path(
        &self,
        request: &v1::NodePublishVolumeRequest,
        is_inline: bool,
    ) -> Result<Option<PathBuf>, Status> {
        // A kubelet sends a staging path for a block volume even to a driver without STAGE_UNSTAGE_VOLUME.
        if is_inline || !self.driver.can(Ability::StageUnstage) {
            return Ok(None);
        }
        if request.staging_target_path.is_empty() && self.driver.breaks(Sabotage::PublishFindsStaging) {
            let volume = self.driver.volume(&request.volume_id)?;
            return Ok(volume.staged.get(&*self.name).map(|staging| staging.path.clone()));
        }
        if request.staging_target_path.is_empty() {
            return Err(Status::failed_precondition("staging_target_path is missing"));
        }
        validate::path("staging_target_path", &request.staging_target_path).map(Some)
    }

    /// The staging at the path of the request, after a check that the kernel still shows it.
    fn staging_at(&self, volume: &Volume, path: &Path, capability: &Capability) -> Result<Staging, Status> {
        if self.driver.breaks(Sabotage::PublishWithoutStaging) {
            return Ok(staging_of(path, capability));
        }
        let staging =
            volume.staged.get(&*self.name).filter(|staging| staging.finished && staging.path == path);
        let staging = staging.ok_or_else(|| {
            Status::failed_precondition(format!("the volume is not staged at `{}`", path.display()))
        })?;
        // If the mount is gone, the pod would write into the empty staging directory.
        if !self.driver.breaks(Sabotage::PublishTrustsItsRecord) && !self.is_prepared(volume, staging)? {
            let message = format!("the volume is no longer staged at `{}`", path.display());
            return Err(Status::failed_precondition(message));
        }
        // The device has failed since the volume was staged. After an unstage and a stage it may work again.
        let is_dead = volume.backing == Backing::Loop && mount::has_gone_read_only(path)?;
        if is_dead && !self.driver.breaks(Sabotage::PublishIgnoresDeadFileSystem) {
            return Err(Status::failed_precondition("the file system of the volume has gone read-only"));
        }
        let is_block = |access: &Access| *access == Access::Block;
        if is_block(&staging.capability.access) != is_block(&capability.access) {
            return Err(Status::failed_precondition("the volume is staged for another access type"));
        }
        Ok(staging.clone())
    }

    /// The driver's private staging of a volume, which all its targets share; makes it for the first one.
    fn private_staging(&self, volume: &Volume, capability: &Capability) -> Result<Staging, Status> {
        let _guard = self.driver.private_staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Read again under the lock: another target may have made the staging.
        let volume = self.driver.volume(&volume.id)?;
        if let Some(staging) = volume.staged.get(&*self.name) {
            if staging.finished && self.is_prepared(&volume, staging)? {
                return Ok(staging.clone());
            }
            self.undo_staging(&volume, staging)?;
        }
        let path = self.driver.private_path(&self.name, &volume);
        std::fs::create_dir_all(&path)
            .map_err(|error| Status::internal(format!("cannot create a private directory: {error}")))?;
        let staging = Staging { private: true, finished: false, ..staging_of(&path, capability) };
        self.make_staging(&volume, staging.clone())?;
        Ok(staging)
    }

    /// If a volume has no target here any more, undoes its private staging and, if it is inline, deletes it.
    pub(super) fn release_private_staging(&self, id: &str) -> Result<(), Status> {
        let _guard = self.driver.private_staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let volume = self.driver.volume(id)?;
        if volume.targets_on(&self.name).next().is_some() {
            return Ok(());
        }
        if let Some(staging) = volume.staged.get(&*self.name).filter(|staging| staging.private) {
            self.undo_staging(&volume, &staging.clone())?;
        }
        if volume.ephemeral && !self.driver.breaks(Sabotage::InlineVolumeStays) {
            self.driver.forget_inline(&volume)?;
        }
        Ok(())
    }

    fn refuse_conflicts(&self, volume: &Volume, path: &Path, target: &Target) -> Result<(), Status> {
        let taken = self.driver.journal.read(|books| {
            books.volumes.values().any(|other| other.id != volume.id && other.targets.contains_key(path))
        })?;
        if taken {
            return Err(Status::already_exists("another volume is published at target_path"));
        }
        let mode = target.capability.mode;
        let has_one_target = match mode {
            Mode::SingleNodeSingleWriter => !self.driver.breaks(Sabotage::PublishIgnoresSingleWriter),
            Mode::SingleNodeMultiWriter => self.driver.breaks(Sabotage::MultiWriterHasOneTarget),
            _ => false,
        };
        let is_refused_again = self.driver.breaks(Sabotage::SingleWriterPublishedOnce);
        let has_target = volume.targets.keys().any(|other| other != path || is_refused_again);
        if has_one_target && has_target && self.driver.breaks(Sabotage::SingleWriterCheckedLate) {
            drop(std::fs::create_dir_all(path));
            let first = volume.targets_on(&self.name).map(|(other, _)| other).find(|other| *other != path);
            first.map_or(Ok(()), |first| mount::bind(first, path, nix::mount::MsFlags::empty()))?;
        }
        if has_one_target && has_target {
            return Err(Status::failed_precondition("the volume is published to its only writer elsewhere"));
        }
        Ok(())
    }

    /// Whether the volume is already published at the path as requested. If so, records the call's tokens and context.
    fn is_already_published(&self, volume: &Volume, path: &Path, wanted: &Target) -> Result<bool, Status> {
        let Some(target) = volume.targets.get(path) else {
            if mount::is_mount_point(path)? {
                let message = format!("something else is mounted at `{}`", path.display());
                return Err(Status::failed_precondition(message));
            }
            return Ok(false);
        };
        if !target.finished
            && self.driver.breaks(Sabotage::PublishAdoptsMounts)
            && mount::is_mount_point(path)?
        {
            self.driver.update_volume(&volume.id, |volume| drop(volume.targets.remove(path)))?;
            return Ok(true);
        }
        if !target.finished || !self.is_shown(volume, path, target)? {
            self.undo_target(volume, path, target)?;
            return Ok(false);
        }
        if self.driver.breaks(Sabotage::PublishStacksMounts) {
            return Ok(false);
        }
        let differs = target.capability != wanted.capability || target.readonly != wanted.readonly;
        if differs && !self.driver.breaks(Sabotage::PublishIgnoresConflict) {
            return Err(Status::already_exists("the volume is published here in another way"));
        }
        if self.driver.breaks(Sabotage::PublishForgetsIdempotence) {
            return Err(Status::internal("the target exists already"));
        }
        self.driver.update_volume(&volume.id, |volume| {
            if let Some(target) = volume.targets.get_mut(path) {
                target.calls += 1;
                target.tokens.clone_from(&wanted.tokens);
                target.volume_context.clone_from(&wanted.volume_context);
            }
        })?;
        Ok(true)
    }
}

/// Keeps that much memory for ever. A compiler that sees that nothing reads it would not even take it.
fn keep_memory(bytes: usize) {
    std::mem::forget(std::hint::black_box(vec![1_u8; bytes]));
}

fn staging_of(path: &Path, capability: &Capability) -> Staging {
    Staging {
        path: path.to_owned(),
        private: false,
        capability: capability.clone(),
        finished: true,
        selinux_context: backing::selinux_context(&capability.access),
        volume_context: Default::default(),
    }
}

fn tokens(request: &v1::NodePublishVolumeRequest) -> Option<Sensitive> {
    let found = request.volume_context.get(TOKENS_KEY).or_else(|| request.secrets.get(TOKENS_KEY))?;
    Some(Sensitive::new(found.clone()))
}
