//! Target paths: makes one, checks it, removes it.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags};
use tonic::Status;

use super::{NodeService, backing};
use crate::books::{Access, Backing, Staging, Target, Volume};
use crate::driver::exists;
use crate::kernel::{KernelError, fuse, mount};
use crate::sabotage::Sabotage;

impl NodeService {
    /// Publishes. The intent goes into the books first, so that after a crash the driver knows what to undo.
    pub(super) fn make_target(
        &self,
        volume: &Volume,
        staging: &Staging,
        path: &Path,
        target: Target,
    ) -> Result<(), Status> {
        let records_late = self.driver.breaks(Sabotage::PublishRecordsLate);
        if records_late {
            self.show(volume, staging, path, &target)?;
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        self.driver.use_volume(&volume.id, |volume| {
            volume.targets.insert(path.to_owned(), target.clone());
        })?;
        if !records_late && let Err(failure) = self.show(volume, staging, path, &target) {
            // A file at the path may have been there before the call, and is not the driver's to remove.
            mount::unmount_all(path)?;
            drop(remove_target(path, &target.capability.access));
            if !self.driver.breaks(Sabotage::PublishRemembersFailure) {
                self.driver.update_volume(&volume.id, |volume| drop(volume.targets.remove(path)))?;
            }
            return Err(failure);
        }
        if self.driver.breaks(Sabotage::PublishAdoptsMounts) {
            // Long enough to be killed in between.
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        self.driver.update_volume(&volume.id, |volume| {
            if let Some(target) = volume.targets.get_mut(path) {
                target.finished = true;
            }
        })?;
        Ok(())
    }

    /// Unmounts and removes a target. Until then the books have it as unfinished.
    pub(super) fn undo_target(&self, volume: &Volume, path: &Path, target: &Target) -> Result<(), Status> {
        self.driver.update_volume(&volume.id, |volume| {
            if let Some(target) = volume.targets.get_mut(path) {
                target.finished = false;
            }
        })?;
        if !self.driver.breaks(Sabotage::UnpublishLeavesMount) {
            self.spoil_unpublish(volume, path)?;
            if self.driver.breaks(Sabotage::UnpublishRemovesAll) && mount::is_mount_point(path)? {
                mount::unmount_one(path, MntFlags::empty())?;
                drop(fs::remove_dir_all(path));
            }
            match volume.backing {
                Backing::Fuse => self.unmount_fuse(path)?,
                _ => mount::unmount_all(path)?,
            }
            if !self.driver.breaks(Sabotage::UnpublishKeepsTarget) {
                remove_target(path, &target.capability.access)?;
            }
            if self.driver.breaks(Sabotage::UnpublishRemovesParent) {
                path.parent().into_iter().for_each(|parent| drop(fs::remove_dir(parent)));
            }
        }
        self.driver.update_volume(&volume.id, |volume| drop(volume.targets.remove(path)))?;
        Ok(())
    }

    fn unmount_fuse(&self, path: &Path) -> Result<(), Status> {
        if mount::is_mount_point(path)? {
            if self.driver.breaks(Sabotage::UnpublishNeedsDaemon) && !fuse::is_served(path) {
                return Err(Status::internal("the transport endpoint at target_path is not connected"));
            }
            if self.driver.breaks(Sabotage::UnpublishWaitsForDaemon) {
                drop(fs::metadata(path));
            }
        }
        Ok(fuse::unmount_all(path)?)
    }

    /// Sabotages that damage more than the target.
    fn spoil_unpublish(&self, volume: &Volume, path: &Path) -> Result<(), Status> {
        let files = |directory: &Path| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect::<Vec<_>>()
        };
        while self.driver.breaks(Sabotage::UnpublishWaitsForSync) && mount::is_mount_point(path)? {
            let written = fs::File::create(path.join(".synced")).and_then(|file| file.sync_all());
            if written.is_ok() {
                drop(fs::remove_file(path.join(".synced")));
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        if self.driver.breaks(Sabotage::DeleteFollowsLinks) || self.driver.breaks(Sabotage::DeleteOpensLinks)
        {
            let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
            let linked =
                entries.filter(|entry| entry.is_symlink()).filter_map(|link| fs::canonicalize(link).ok());
            linked.for_each(|to| self.driver.remember(&format!("link in {}: {}", volume.id, to.display())));
        }
        let is_taken_for_inline =
            volume.name.starts_with("csi-") && self.driver.breaks(Sabotage::NamesTakenForInline);
        if is_taken_for_inline || self.driver.breaks(Sabotage::UnpublishDeletesData) {
            files(path).iter().for_each(|file| drop(fs::remove_file(file)));
        }
        if self.driver.breaks(Sabotage::UnpublishRemovesSiblings)
            && let Some(parent) = path.parent()
        {
            files(parent).iter().filter(|file| *file != path).for_each(|file| drop(fs::remove_file(file)));
        }
        let is_mounted = mount::is_mount_point(path)?;
        if is_mounted && self.driver.breaks(Sabotage::UnpublishEmptiesBusyTarget) {
            let busy = mount::unmount_one(path, MntFlags::empty());
            if busy.is_err() {
                files(path).iter().for_each(|file| drop(fs::remove_file(file)));
            }
            return Ok(busy?);
        }
        if self.driver.breaks(Sabotage::UnpublishLazily) && mount::is_mount_point(path)? {
            mount::unmount_one(path, MntFlags::MNT_DETACH)?;
        }
        Ok(())
    }

    /// Unmounts every target of this node and leaves the books unchanged.
    pub(crate) fn unmount_targets(&self) -> Result<(), Status> {
        let paths: Vec<PathBuf> = self.driver.journal.read(|books| {
            let targets = books.volumes.values().flat_map(|volume| volume.targets_on(&self.name));
            targets.map(|(path, _)| path.clone()).collect()
        })?;
        Ok(paths.iter().try_for_each(|path| mount::unmount_all(path))?)
    }

    /// Whether the kernel shows the volume at a target.
    pub(super) fn is_shown(&self, volume: &Volume, path: &Path, target: &Target) -> Result<bool, Status> {
        if !mount::is_mount_point(path)? {
            return Ok(false);
        }
        if target.capability.access == Access::Block {
            let node = self.device_node(volume, target.readonly)?;
            return Ok(mount::device_at(path)? == mount::device_at(&node)?);
        }
        match volume.staged.get(&*self.name) {
            Some(staging) if exists(&staging.path) => Ok(mount::is_same_file(path, &staging.path)?),
            _ => Ok(false),
        }
    }

    fn show(&self, volume: &Volume, staging: &Staging, path: &Path, target: &Target) -> Result<(), Status> {
        if self.driver.breaks(Sabotage::PublishCreatesFile) {
            return Ok(make_file(path)?);
        }
        match &target.capability.access {
            Access::Block => {
                make_file(path)?;
                let device = self.device_to_show(volume, target)?;
                self.show_everywhere(volume, target, &device)?;
                mount::bind(&device, path, MsFlags::empty())?;
            }
            Access::Mount { flags, group, .. } => {
                let trusts = self.driver.breaks(Sabotage::PublishTrustsTarget) && exists(path);
                make_directory(path)?;
                if self.driver.breaks(Sabotage::PublishOpensParent)
                    && let Some(parent) = path.parent()
                {
                    drop(fs::set_permissions(parent, Permissions::from_mode(0o777)));
                }
                if self.driver.breaks(Sabotage::TargetOpenToAll) {
                    drop(fs::set_permissions(path, Permissions::from_mode(0o777)));
                }
                let mut per_mount = backing::mount_options(flags).flags.per_mount;
                if target.readonly && !trusts && !self.driver.breaks(Sabotage::PublishIgnoresReadOnly) {
                    per_mount |= MsFlags::MS_RDONLY;
                }
                if self.driver.breaks(Sabotage::PublishAddsNoexec) {
                    per_mount |= MsFlags::MS_NOEXEC;
                }
                if per_mount.contains(MsFlags::MS_NOEXEC) {
                    // The sabotage acts for the next volume.
                    self.driver.remember("a mount without execution");
                }
                let was_asked = || self.driver.has_seen("a mount without execution");
                if self.driver.breaks(Sabotage::MountFlagsStay) && was_asked() {
                    per_mount |= MsFlags::MS_NOEXEC;
                }
                if self.driver.breaks(Sabotage::PublishFollowsNoLinks) {
                    per_mount |= mount::NOSYMFOLLOW;
                }
                let source = match self.first_inline(volume)? {
                    Some(first) => first,
                    None => self.directory_to_show(volume, staging)?,
                };
                let is_opened = || self.driver.has_seen(&format!("created again: {}", volume.id));
                let opens_again = self.driver.breaks(Sabotage::CreateAgainOpensRoot) && is_opened();
                if self.driver.breaks(Sabotage::PublishOpensRoot) || opens_again {
                    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
                    drop(fs::set_permissions(&source, open));
                }
                self.open_what_links_lead_to(&source);
                let gives = !self.driver.breaks(Sabotage::PublishIgnoresGroup);
                if !group.is_empty() && !target.readonly && gives {
                    give_to_group(&source, group)?;
                    self.give_what_links_lead_to(&source, group);
                }
                if self.driver.breaks(Sabotage::PublishIgnoresMountFlags) {
                    // A bind keeps the flags and the access time mode of its source unless it gets others.
                    per_mount = per_mount & MsFlags::MS_RDONLY | MsFlags::MS_RELATIME;
                }
                if self.driver.breaks(Sabotage::PublishDropsEmptyDirectories) {
                    let entries = fs::read_dir(&source).into_iter().flatten().flatten();
                    // A directory that is not empty stays.
                    entries.for_each(|entry| drop(fs::remove_dir(entry.path())));
                }
                mount::bind(&source, path, per_mount)?;
                if target.readonly && self.driver.breaks(Sabotage::ReadOnlyEverywhere) {
                    let mut others = volume.targets_on(&self.name).filter(|(other, _)| *other != path);
                    others.try_for_each(|(other, _)| mount::remount(other, MsFlags::MS_RDONLY))?;
                }
            }
        }
        Ok(())
    }

    /// The bug: all targets of the volume show the device that is published for reading only.
    fn show_everywhere(&self, volume: &Volume, target: &Target, device: &Path) -> Result<(), Status> {
        if !target.readonly || !self.driver.breaks(Sabotage::BlockReadOnlyEverywhere) {
            return Ok(());
        }
        let mut others = volume.targets_on(&self.name).filter(|(_, other)| !other.readonly);
        Ok(others.try_for_each(|(other, _)| mount::bind(device, other, MsFlags::empty()))?)
    }

    /// The bug: links in a volume are followed when modes are set.
    fn open_what_links_lead_to(&self, root: &Path) {
        if !self.driver.breaks(Sabotage::PublishFollowsLinksInVolume) {
            return;
        }
        let entries = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        for link in entries.filter(|entry| entry.is_symlink()) {
            if let Ok(found) = fs::metadata(&link) {
                let mode = Permissions::from_mode(found.permissions().mode() | 0o060);
                drop(fs::set_permissions(&link, mode));
            }
        }
    }

    /// The bug: links in a volume are followed when it is given to a group.
    fn give_what_links_lead_to(&self, root: &Path, group: &str) {
        if !self.driver.breaks(Sabotage::GroupFollowsLinks) {
            return;
        }
        let entries = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        for link in entries.filter(|entry| entry.is_symlink()) {
            drop(std::os::unix::fs::chown(&link, None, group.parse().ok()));
        }
    }

    fn device_to_show(&self, volume: &Volume, target: &Target) -> Result<PathBuf, Status> {
        if self.driver.breaks(Sabotage::BlockTargetIsRegularFile) {
            return Ok(self.driver.contents_of(volume));
        }
        self.device_node(volume, target.readonly && !self.driver.breaks(Sabotage::BlockIgnoresReadOnly))
    }

    /// The bug: what an inline volume shows is that of another one, if there is one.
    fn first_inline(&self, volume: &Volume) -> Result<Option<PathBuf>, Status> {
        if !volume.ephemeral || !self.driver.breaks(Sabotage::InlineVolumesShare) {
            return Ok(None);
        }
        let mounted = |path: &PathBuf| mount::is_mount_point(path).unwrap_or(false);
        Ok(self.driver.journal.read(|books| {
            let others = books.volumes.values().filter(|other| other.ephemeral && other.id != volume.id);
            let mut stagings = others.filter_map(|other| other.staged.get(&*self.name));
            stagings.find_map(|staging| Some(staging.path.clone()).filter(mounted))
        })?)
    }

    fn directory_to_show(&self, volume: &Volume, staging: &Staging) -> Result<PathBuf, Status> {
        if !self.driver.breaks(Sabotage::PublishWrongVolume) {
            return Ok(staging.path.clone());
        }
        // A volume that is being staged is in the books before it is mounted. Its later mount would propagate to the target.
        let mounted = |path: &PathBuf| mount::is_mount_point(path).unwrap_or(false);
        let other = self.driver.journal.read(|books| {
            let others = books.volumes.values().filter(|other| other.id != volume.id);
            let mut stagings = others.filter_map(|other| other.staged.get(&*self.name));
            stagings.find_map(|staging| Some(staging.path.clone()).filter(mounted))
        })?;
        Ok(other.unwrap_or_else(|| self.driver.options.state.join("mounts")))
    }
}

fn make_directory(path: &Path) -> Result<(), KernelError> {
    match DirBuilder::new().mode(0o750).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(|source| KernelError::path("create", path, source)),
    }
}

fn make_file(path: &Path) -> Result<(), KernelError> {
    let is_file = || fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    match OpenOptions::new().write(true).create_new(true).mode(0o640).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && is_file() => Ok(()),
        made => made.map(drop).map_err(|source| KernelError::path("create", path, source)),
    }
}

/// Removes the target that publishing created, if it is an empty directory or an empty file.
fn remove_target(path: &Path, access: &Access) -> Result<(), KernelError> {
    let removed = match fs::symlink_metadata(path) {
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => fs::remove_dir(path),
        Ok(found) if found.is_file() && found.len() == 0 && *access == Access::Block => fs::remove_file(path),
        Ok(_) => Err(std::io::ErrorKind::DirectoryNotEmpty.into()),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(KernelError::path("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Changes the group of everything in a volume, with access for the group.
fn give_to_group(root: &Path, group: &str) -> Result<(), Status> {
    let group: u32 = group.parse().expect("validated with the request");
    let give = |path: &Path| -> std::io::Result<()> {
        let found = fs::symlink_metadata(path)?;
        std::os::unix::fs::lchown(path, None, Some(group))?;
        if found.is_symlink() {
            return Ok(());
        }
        let bits = if found.is_dir() { 0o2770 } else { 0o660 };
        fs::set_permissions(path, Permissions::from_mode(found.permissions().mode() & 0o7777 | bits))
    };
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        give(&path).map_err(|source| KernelError::path("change the group of", &path, source))?;
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            let entries = fs::read_dir(&path).map_err(|source| KernelError::path("list", &path, source))?;
            pending.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    Ok(())
}
