//! NodeStageVolume and NodeUnstageVolume: once a volume and node, before the first and after the last pod.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use csi_proto::json::TOKENS_KEY;
use csi_proto::v1;
use nix::mount::MntFlags;
use tonic::Status;

use super::publish::published_again;
use super::{NodeService, backing};
use crate::books::{Access, Backing, Capability, Source, Staging, Volume};
use crate::kernel::{copy, mount};
use crate::sabotage::Sabotage;
use crate::validate;

impl NodeService {
    pub(super) fn stage(
        &self,
        request: &v1::NodeStageVolumeRequest,
    ) -> Result<v1::NodeStageVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        let path = validate::path("staging_target_path", &request.staging_target_path)?;
        let capability = validate::capability(request.volume_capability.as_ref())?;
        validate::map("publish_context", &request.publish_context)?;
        self.driver.check_context(&request.volume_context)?;
        validate::map("secrets", &request.secrets)?;
        if !self.driver.breaks(Sabotage::StageFollowsLink) {
            validate::not_a_link("staging_target_path", &path)?;
        }
        self.driver.stumble_over(&request.volume_id);
        self.driver.stumble_over(&request.staging_target_path);
        if self.driver.breaks(Sabotage::SecretsInLog) {
            tracing::info!(secrets = ?request.secrets, "staging");
        }
        self.driver.leak_secrets(&request.secrets)?;
        if self.driver.breaks(Sabotage::StageLeavesProcess) {
            drop(std::process::Command::new("sleep").arg("3600").spawn());
        }

        let holds = self.driver.breaks(Sabotage::StageHoldsAllVolumes);
        let _all = holds.then(|| self.driver.all_volumes.lock().unwrap_or_else(PoisonError::into_inner));
        self.wait_for_every_daemon()?;
        let claim = self.claim_alone(&request.volume_id)?;
        let volume = match self.driver.volume(&request.volume_id) {
            Err(_) if self.driver.breaks(Sabotage::NodeAcceptsUnknownVolume) => {
                return Ok(v1::NodeStageVolumeResponse {});
            }
            found => found?,
        };
        self.driver.refuse_other_path(&volume.id, &path)?;
        self.may_use(&volume, &capability, &request.publish_context)?;
        if self.is_already_staged(&volume, &path, &capability)? {
            return Ok(v1::NodeStageVolumeResponse {});
        }
        if !path.is_dir() {
            let message = format!("staging_target_path `{}` is no directory", path.display());
            return Err(Status::failed_precondition(message));
        }
        let staging = Staging {
            path,
            private: false,
            selinux_context: backing::selinux_context(&capability.access),
            capability,
            finished: false,
            volume_context: without_tokens(&request.volume_context),
        };
        if let Err(failure) = self.make_staging(&volume, staging) {
            let is_killed = failure.message().contains("signal");
            if self.driver.breaks(Sabotage::StageErrorKeepsClaim)
                || is_killed && self.driver.breaks(Sabotage::KilledProgramKeepsLock)
            {
                std::mem::forget(claim);
            }
            return Err(failure);
        }
        self.driver.create_local_file(&format!("v{}", volume.number))?;
        Ok(v1::NodeStageVolumeResponse {})
    }

    /// The bug: looks for mounts of daemons that have died, and asks each daemon.
    fn wait_for_every_daemon(&self) -> Result<(), Status> {
        if !self.driver.breaks(Sabotage::StageWaitsForEveryDaemon) {
            return Ok(());
        }
        let volumes = self.driver.journal.read(|books| books.volumes.clone())?;
        let fuse = volumes.values().filter(|volume| volume.backing == Backing::Fuse);
        fuse.filter_map(|volume| volume.staged.get(&*self.name))
            .for_each(|staging| drop(rustix::fs::statvfs(&staging.path)));
        Ok(())
    }

    pub(super) fn unstage(
        &self,
        request: &v1::NodeUnstageVolumeRequest,
    ) -> Result<v1::NodeUnstageVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        let path = validate::path("staging_target_path", &request.staging_target_path)?;

        let _claim = self.claim_alone(&request.volume_id)?;
        let volume = self.driver.volume(&request.volume_id)?;
        if self.driver.breaks(Sabotage::UnstageWhilePublished) {
            volume.targets_on(&self.name).try_for_each(|(path, _)| mount::unmount_all(path))?;
        } else {
            self.refuse_while_published(&volume)?;
        }
        if self.driver.has_seen(&published_again(&volume.id)) {
            return Err(Status::internal("the volume is in use by 1 target"));
        }
        if !self.driver.has_local_file(&format!("v{}", volume.number)) {
            return Ok(v1::NodeUnstageVolumeResponse {});
        }
        match volume.staged.get(&*self.name) {
            Some(staging)
                if !staging.private
                    && (staging.path == path || self.driver.breaks(Sabotage::UnstageTakesAnyPath)) =>
            {
                let staging = staging.clone();
                self.undo_staging(&volume, &staging)?;
            }
            _ if self.driver.breaks(Sabotage::UnstageForgetsIdempotence) => {
                return Err(Status::internal("the volume is not staged here"));
            }
            _ => {}
        }
        Ok(v1::NodeUnstageVolumeResponse {})
    }

    /// Makes a staging. The intent goes into the books first, so that after a crash the driver knows what to undo.
    pub(super) fn make_staging(&self, volume: &Volume, staging: Staging) -> Result<(), Status> {
        let name = self.name.to_string();
        self.driver.use_volume(&volume.id, |volume| {
            volume.staged.insert(name.clone(), staging.clone());
        })?;
        let skips = self.driver.breaks(Sabotage::StageWithoutMount);
        if let Err(failure) = if skips { Ok(()) } else { self.prepare(volume, &staging) } {
            // A failed call must leave nothing. If undoing it fails too, the intent stays in the books.
            self.unprepare(volume, &staging)?;
            self.driver.update_volume(&volume.id, |volume| drop(volume.staged.remove(&name)))?;
            return Err(failure);
        }
        self.driver.update_volume(&volume.id, |volume| {
            if let Some(staging) = volume.staged.get_mut(&name) {
                staging.finished = true;
            }
        })?;
        self.spoil_contents(volume, &staging.path);
        if self.driver.breaks(Sabotage::StageFailsButMounts) && self.driver.is_first(&volume.id) {
            return Err(Status::internal("the mount was made, and then something else failed"));
        }
        Ok(())
    }

    /// The bugs that change the files of a volume when it is staged.
    fn spoil_contents(&self, volume: &Volume, path: &Path) {
        if self.driver.breaks(Sabotage::NewVolumeHasFile) && volume.source.is_none() {
            drop(std::fs::write(path.join(".driver"), &volume.id));
        }
        if self.driver.breaks(Sabotage::CopyDropsLinks) && volume.source.is_some() {
            let links = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
            links.filter(|path| path.is_symlink()).for_each(|path| drop(std::fs::remove_file(path)));
        }
        if volume.source.is_some() {
            self.spoil_copy(path);
            self.skip_hidden_files(volume, path);
            self.skip_odd_names(volume, path);
            self.share_files(volume, path);
        }
    }

    /// Where a sabotage keeps the files that a volume has in its root.
    fn shared_files(&self, volume: &str) -> PathBuf {
        self.driver.options.state.join("shared").join(volume)
    }

    /// The bug: a volume's files are those of its snapshots.
    fn keep_files(&self, volume: &Volume, path: &Path) {
        // The daemon of a FUSE volume may hang, and its files with it.
        let has_files = volume.source.is_none() && volume.backing != Backing::Fuse;
        if self.driver.breaks(Sabotage::SnapshotSharesFiles) && has_files {
            let kept = self.shared_files(&volume.id);
            drop(std::fs::create_dir_all(&kept));
            for file in files_in(path) {
                drop(std::fs::copy(&file, kept.join(file.file_name().unwrap_or_default())));
            }
        }
    }

    fn share_files(&self, copy: &Volume, path: &Path) {
        let Some(Source::Snapshot(id)) = &copy.source else { return };
        let Ok(snapshot) = self.driver.snapshot(id) else { return };
        if !self.driver.breaks(Sabotage::SnapshotSharesFiles) {
            return;
        }
        for file in files_in(&self.shared_files(&snapshot.source)) {
            let shared = path.join(file.file_name().unwrap_or_default());
            if shared.is_file() {
                drop(std::fs::copy(&file, shared));
            }
        }
    }

    /// The bugs that change files which a copy has of its source.
    fn spoil_copy(&self, path: &Path) {
        let files = || std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        let found = |file: &Path| std::fs::symlink_metadata(file);
        if self.driver.breaks(Sabotage::CopyDropsPipes) {
            let pipes = files().filter(|file| found(file).is_ok_and(|found| found.file_type().is_fifo()));
            pipes.for_each(|pipe| drop(std::fs::remove_file(pipe)));
        }
        if self.driver.breaks(Sabotage::CopyFillsHoles) {
            // A file that is much larger may not fit without its holes.
            let is_small = |found: std::fs::Metadata| found.is_file() && found.len() <= 16 << 20;
            for file in files().filter(|file| found(file).is_ok_and(is_small)) {
                drop(fill_holes(&file));
            }
        }
        if self.driver.breaks(Sabotage::CopySplitsFiles) {
            let several = |found: std::fs::Metadata| found.is_file() && found.nlink() > 1;
            for file in files().filter(|file| found(file).is_ok_and(several)) {
                let own = file.with_extension("own");
                drop(std::fs::copy(&file, &own).and_then(|_| std::fs::rename(&own, &file)));
            }
        }
    }

    /// The bugs: a copy was made of the files that `*` matches.
    fn skip_hidden_files(&self, copy: &Volume, path: &Path) {
        let skips = match copy.source {
            Some(Source::Snapshot(_)) => Sabotage::RestoreSkipsHiddenFiles,
            _ => Sabotage::CloneSkipsHiddenFiles,
        };
        let is_hidden =
            |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if self.driver.breaks(skips) {
            files_in(path)
                .iter()
                .filter(|file| is_hidden(file))
                .for_each(|file| drop(std::fs::remove_file(file)));
        }
    }

    /// The bugs: programs took the names for options, or the name of the source for two.
    fn skip_odd_names(&self, copy: &Volume, path: &Path) {
        let source = match &copy.source {
            Some(Source::Volume(id)) => self.driver.volume(id).ok(),
            _ => None,
        };
        let is_split = source.is_some_and(|source| source.name.contains(' '))
            && self.driver.breaks(Sabotage::CloneSplitsNames);
        let is_option =
            |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('-'));
        let skips = self.driver.breaks(Sabotage::CopySkipsOddNames);
        files_in(path)
            .iter()
            .filter(|file| is_split || skips && is_option(file))
            .for_each(|file| drop(std::fs::remove_file(file)));
    }

    /// The bug: what cannot be unmounted is removed.
    fn empty_busy(&self, path: &Path) -> Result<(), Status> {
        if self.driver.breaks(Sabotage::UnstageEmptiesBusyPath)
            && mount::is_mount_point(path)?
            && let Err(busy) = mount::unmount_one(path, MntFlags::empty())
        {
            files_in(path).iter().for_each(|file| drop(std::fs::remove_file(file)));
            return Err(busy.into());
        }
        Ok(())
    }

    /// Undoes a staging. Until then the books have it as unfinished.
    pub(super) fn undo_staging(&self, volume: &Volume, staging: &Staging) -> Result<(), Status> {
        let name = self.name.to_string();
        self.driver.update_volume(&volume.id, |volume| {
            if let Some(staging) = volume.staged.get_mut(&name) {
                staging.finished = false;
            }
        })?;
        if self.driver.breaks(Sabotage::UnstageForgetsFirst) {
            self.driver.update_volume(&volume.id, |volume| drop(volume.staged.remove(&name)))?;
            std::thread::sleep(std::time::Duration::from_millis(150));
        }
        self.empty_busy(&staging.path)?;
        self.keep_files(volume, &staging.path);
        let keeps_old =
            self.driver.breaks(Sabotage::UnstageLosesLastWrite) && volume.backing == Backing::Loop;
        let contents = self.driver.contents_of(volume);
        let old = contents.with_extension("old");
        if keeps_old {
            copy::image(&contents, &old)?;
        }
        if !self.driver.breaks(Sabotage::UnstageSucceedsButMounted) {
            self.unprepare(volume, staging)?;
        }
        let is_device = staging.capability.access == Access::Block;
        if is_device && self.driver.breaks(Sabotage::UnstageLosesAStripe) {
            copy::lose_stripes(&contents)?;
        }
        if keeps_old {
            // Copied back into the same file, since a loop device may still have it open.
            copy::image(&old, &contents)?;
            copy::remove(&old)?;
        }
        if self.driver.breaks(Sabotage::UnstageRemovesDirectory) {
            drop(std::fs::remove_dir(&staging.path));
        }
        self.driver.update_volume(&volume.id, |volume| drop(volume.staged.remove(&name)))?;
        Ok(())
    }

    /// FAILED_PRECONDITION if the node cannot use the volume in this way, or if the attachment has ended.
    pub(super) fn may_use(
        &self,
        volume: &Volume,
        capability: &Capability,
        publish_context: &BTreeMap<String, String>,
    ) -> Result<(), Status> {
        self.driver.supports(volume.backing, capability).map_err(Status::failed_precondition)?;
        let overlooks = self.driver.breaks(Sabotage::StageIgnoresConflict);
        if !overlooks && !volume.is_made_for(&capability.access) {
            let message = "the volume was created for the other use: with a file system, or as a device";
            return Err(Status::failed_precondition(message));
        }
        if self.driver.breaks(Sabotage::StageAcceptsStaleContext) {
            return Ok(());
        }
        let Some(shown) = publish_context.get(crate::books::GENERATION_KEY) else { return Ok(()) };
        let attached = volume.attached.get(&*self.name);
        if attached.is_none_or(|attachment| attachment.generation.to_string() != *shown) {
            return Err(Status::failed_precondition("publish_context is of an attachment that has ended"));
        }
        Ok(())
    }

    pub(super) fn claim_alone(&self, volume: &str) -> Result<crate::in_flight::Claim, Status> {
        self.driver.in_flight.claim(&[volume, &self.name])
    }

    fn is_already_staged(
        &self,
        volume: &Volume,
        path: &Path,
        capability: &Capability,
    ) -> Result<bool, Status> {
        let Some(staging) = volume.staged.get(&*self.name) else {
            if mount::is_mount_point(path)? {
                let message = format!("something else is mounted at `{}`", path.display());
                return Err(Status::failed_precondition(message));
            }
            return Ok(false);
        };
        // The mount may be gone without an unstage: after a reboot, or by an administrator.
        let is_there = staging.finished && self.is_prepared(volume, staging)?;
        if !is_there {
            self.undo_staging(volume, staging)?;
            return Ok(false);
        }
        if staging.path != path {
            if self.driver.breaks(Sabotage::RefusedStageLeaksDescriptor) {
                std::mem::forget(std::fs::File::open("/dev/null"));
            }
            let message = format!("the volume is staged at `{}`", staging.path.display());
            return Err(Status::failed_precondition(message));
        }
        if self.driver.breaks(Sabotage::StageStacksMounts) {
            mount::bind(path, path, nix::mount::MsFlags::empty())?;
        }
        if staging.capability != *capability && !self.driver.breaks(Sabotage::StageIgnoresConflict) {
            return Err(Status::already_exists("the volume is staged here with another capability"));
        }
        if self.driver.breaks(Sabotage::StageForgetsIdempotence) {
            return Err(Status::internal("the staging path is mounted already"));
        }
        Ok(true)
    }

    fn refuse_while_published(&self, volume: &Volume) -> Result<(), Status> {
        for (path, target) in volume.targets_on(&self.name) {
            let is_remembered = !target.finished && self.driver.breaks(Sabotage::PublishRemembersFailure);
            if is_remembered || target.finished && self.is_shown(volume, path, target)? {
                let message = format!("the volume is still published at `{}`", path.display());
                // The sabotage acts at the next publish.
                self.driver.remember(&refused_unstage(&volume.id));
                return Err(Status::failed_precondition(message));
            }
        }
        Ok(())
    }
}

/// The driver's note, for a sabotage, that a published volume was not unstaged.
pub(super) fn refused_unstage(volume: &str) -> String {
    format!("{volume} was not unstaged")
}

/// Writes each byte of a file once more, and keeps its time.
fn fill_holes(file: &Path) -> std::io::Result<()> {
    let bytes = std::fs::read(file)?;
    let time = std::fs::metadata(file)?.modified()?;
    let mut opened = std::fs::File::options().write(true).open(file)?;
    std::io::Write::write_all(&mut opened, &bytes)?;
    opened.set_modified(time)?;
    opened.sync_all()
}

/// The regular files of a directory, without those below its directories.
pub(super) fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|found| found.is_file()))
        .map(|entry| entry.path())
        .collect()
}

/// The part of a volume context that goes into the books.
pub(super) fn without_tokens(context: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    context
        .iter()
        .filter(|(key, _)| *key != TOKENS_KEY)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
