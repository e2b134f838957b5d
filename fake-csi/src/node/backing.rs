//! Makes a volume ready at a staging path, undoes that, and checks it, for each backing.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tonic::Status;

use super::NodeService;
use crate::ability::Ability;
use crate::books::{Access, Backing, Capability, Format, Mode, Staging, Volume};
use crate::driver::exists;
use crate::kernel::filesystem::{self, Contents};
use crate::kernel::fuse;
use crate::kernel::loop_device::{self, Lifetime, LoopDevice};
use crate::kernel::mount::{self, Options};
use crate::sabotage::Sabotage;

impl NodeService {
    /// Mounts a volume at the staging's path, or attaches it to a loop device.
    pub(super) fn prepare(&self, volume: &Volume, staging: &Staging) -> Result<(), Status> {
        let contents = self.driver.contents_of(volume);
        if self.driver.breaks(Sabotage::StageLeaksLoopDevice) && volume.backing == Backing::Loop {
            drop(LoopDevice::attach(&contents, false, Lifetime::UntilDetached)?);
        }
        match (&staging.capability.access, volume.backing) {
            (Access::Block, _) => {
                let device = LoopDevice::find_or_attach(&contents, false, Lifetime::UntilDetached)?;
                // A device from before an unfinished expansion is too short.
                device.grow()?;
            }
            (Access::Mount { fs_type, flags, .. }, Backing::Loop) => {
                let format = self.formatted(volume, fs_type)?;
                let stays_small =
                    volume.source.is_some() && self.driver.breaks(Sabotage::CopyKeepsSmallFileSystem);
                let is_grown = format.bytes == volume.capacity
                    || stays_small
                    // Another node of this machine may have mounted it.
                    || (!loop_device::stays_attached(&contents)?
                        && filesystem::grow_unmounted(&contents, &format.fs_type)?);
                let flags = self.stage_flags(flags);
                // A clone has its original's UUID, and both may be mounted.
                let is_shared =
                    format.fs_type == "xfs" && !self.driver.breaks(Sabotage::CloneCollidesWithSource);
                let options = mount_options(flags);
                let options = if is_shared { options.with_data("nouuid") } else { options };
                mount_image(&contents, &staging.path, &format.fs_type, (options, !flags.is_empty()))?;
                if self.driver.breaks(Sabotage::StageTouchesFiles) {
                    touch_files(&staging.path);
                }
                if !is_grown {
                    filesystem::grow(&staging.path, &format.fs_type, volume.capacity)?;
                }
                if format.bytes != volume.capacity {
                    self.record_size(volume)?;
                }
            }
            (Access::Mount { flags, .. }, Backing::Tmpfs) => {
                self.driver.mount_tmpfs(volume)?;
                bind_directory(&contents, &staging.path, self.stage_flags(flags))?;
            }
            (Access::Mount { flags, .. }, Backing::Directory | Backing::Shared) => {
                bind_directory(&contents, &staging.path, self.stage_flags(flags))?;
            }
            (Access::Mount { flags, .. }, Backing::Fuse) => {
                let lingers = self.driver.breaks(Sabotage::UnstageLeavesDaemon);
                fuse::start(&contents, &staging.path, lingers)?;
                let flags = mount_options(self.stage_flags(flags)).flags.per_mount;
                if !flags.is_empty() {
                    mount::remount(&staging.path, flags)?;
                }
            }
        }
        Ok(())
    }

    fn stage_flags<'a>(&self, flags: &'a [String]) -> &'a [String] {
        if self.driver.breaks(Sabotage::StageIgnoresMountFlags) { &[] } else { flags }
    }

    /// Whether the kernel shows the volume at its staging path.
    pub(super) fn is_prepared(&self, volume: &Volume, staging: &Staging) -> Result<bool, Status> {
        let contents = self.driver.contents_of(volume);
        if staging.capability.access == Access::Block {
            return Ok(LoopDevice::find(&contents, false)?.is_some());
        }
        if !mount::is_mount_point(&staging.path)? {
            return Ok(false);
        }
        if volume.backing == Backing::Fuse {
            let trusts = self.driver.breaks(Sabotage::StageTrustsDeadDaemon);
            return Ok(trusts || fuse::is_served(&staging.path));
        }
        if volume.backing != Backing::Loop {
            return Ok(mount::is_same_file(&contents, &staging.path)?);
        }
        let Some(device) = LoopDevice::find(&contents, false)? else { return Ok(false) };
        let shown = fs::metadata(&staging.path).map(|found| found.dev()).unwrap_or_default();
        // btrfs reports device numbers of its own, so for it a mount point and an attached device must suffice.
        let is_btrfs = volume.format.as_ref().is_some_and(|format| format.fs_type == "btrfs");
        Ok(is_btrfs || Some(shown) == mount::device_at(device.path())?)
    }

    /// Undoes a complete or partial [`Self::prepare`].
    pub(super) fn unprepare(&self, volume: &Volume, staging: &Staging) -> Result<(), Status> {
        match volume.backing {
            Backing::Fuse => self.end_daemon(volume, staging)?,
            _ if staging.capability.access != Access::Block => mount::unmount_all(&staging.path)?,
            _ => {}
        }
        let elsewhere = volume
            .staged
            .iter()
            .any(|(node, other)| **node != *self.name && other.capability.access == Access::Block);
        if staging.capability.access == Access::Block && !elsewhere {
            loop_device::detach_all(&self.driver.contents_of(volume))?;
        }
        if staging.private && exists(&staging.path) {
            fs::remove_dir(&staging.path)
                .map_err(|error| Status::internal(format!("cannot remove a private directory: {error}")))?;
        }
        Ok(())
    }

    /// Unmounts a FUSE volume and ends its daemon. One that does not answer is killed first: the unmount could wait for it.
    fn end_daemon(&self, volume: &Volume, staging: &Staging) -> Result<(), Status> {
        let contents = self.driver.contents_of(volume);
        if mount::is_mount_point(&staging.path)? && !fuse::is_served(&staging.path) {
            if self.driver.breaks(Sabotage::UnstageLeavesDeadMount) {
                return Ok(());
            }
            fuse::end(&contents, &staging.path)?;
        }
        fuse::unmount_all(&staging.path)?;
        if self.driver.breaks(Sabotage::UnstageLeavesDaemon) {
            return Ok(());
        }
        Ok(fuse::end(&contents, &staging.path)?)
    }

    /// The device node of a staged block volume.
    pub(super) fn device_node(&self, volume: &Volume, read_only: bool) -> Result<PathBuf, Status> {
        let contents = self.driver.contents_of(volume);
        if !read_only {
            let other = self.device_of_another(volume)?;
            let device = other.or(LoopDevice::find(&contents, false)?);
            let device = device.ok_or_else(|| Status::failed_precondition("the device is not attached"))?;
            return Ok(device.path().to_owned());
        }
        // A read-only bind does not prevent writing to a device: the device itself must be read-only.
        if let Some(device) = LoopDevice::find(&contents, false)? {
            device.sync()?;
        }
        let device = LoopDevice::find_or_attach(&contents, true, Lifetime::UntilDetached)?;
        Ok(device.path().to_owned())
    }

    /// The bug: the first device that is found.
    fn device_of_another(&self, volume: &Volume) -> Result<Option<LoopDevice>, Status> {
        let others = self.driver.journal.read(|books| books.volumes.clone())?;
        if self.driver.breaks(Sabotage::PublishSwapsDevices) {
            let twin =
                others.values().find(|other| other.id != volume.id && other.staged.contains_key(&*self.name));
            let Some(twin) = twin else { return Ok(None) };
            let pair =
                format!("{} {} swapped", volume.number.min(twin.number), volume.number.max(twin.number));
            // From the moment when both are staged and none is published.
            let is_swapped =
                self.driver.has_seen(&pair) || volume.targets.len() < 2 && twin.targets.is_empty();
            if is_swapped {
                self.driver.remember(&pair);
                return Ok(LoopDevice::find(&self.driver.contents_of(twin), false)?);
            }
            return Ok(None);
        }
        if !self.driver.breaks(Sabotage::BlockShowsOther) {
            return Ok(None);
        }
        let others = others.values().filter(|other| other.id != volume.id);
        let mut found =
            others.filter_map(|other| LoopDevice::find(&self.driver.contents_of(other), false).ok()?);
        Ok(found.next_back())
    }

    /// The volume's file system, made now if the volume never had one.
    fn formatted(&self, volume: &Volume, wanted: &str) -> Result<Format, Status> {
        let contents = self.driver.contents_of(volume);
        // One node at a time: an image that another node is formatting looks like unknown data.
        let guard = fs::File::open(&contents)
            .map_err(|source| crate::kernel::KernelError::path("open", &contents, source))?;
        rustix::fs::flock(&guard, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|errno| crate::kernel::KernelError::path("lock", &contents, errno))?;
        let volume = &self.driver.volume(&volume.id)?;
        let wanted = if self.driver.breaks(Sabotage::StageIgnoresFsType) { "" } else { wanted };
        let chosen = if wanted.is_empty() { &self.driver.options.fs_type } else { wanted };
        let is_unreadable =
            self.driver.breaks(Sabotage::StageFormatsAfterReadError) && filesystem::probe(&contents).is_err();
        match &volume.format {
            Some(_) if is_unreadable || self.driver.breaks(Sabotage::StageFormatsAgain) => {}
            Some(format) if format.finished => {
                if !wanted.is_empty() && format.fs_type != wanted {
                    let held = &format.fs_type;
                    let message = format!("the volume holds a file system `{held}`, not `{wanted}`");
                    return Err(Status::failed_precondition(message));
                }
                return self.made_distinct(volume, format);
            }
            // An interrupted attempt: no caller has used that file system, so it is made anew.
            Some(_) => {}
            None => match filesystem::probe(&contents)? {
                Contents::Nothing => {}
                Contents::Filesystem(found) if found == chosen || wanted.is_empty() => {
                    return self.record_format(volume, found, 0);
                }
                Contents::Filesystem(_) | Contents::Unknown => {
                    let message = format!("the volume holds data that is no file system `{chosen}`");
                    return Err(Status::failed_precondition(message));
                }
            },
        }
        let finished = self.driver.breaks(Sabotage::StageTrustsFailedFormat);
        let bytes = if finished { volume.capacity } else { 0 };
        let begun = Format { fs_type: chosen.to_owned(), finished, twin: false, bytes };
        self.driver.update_volume(&volume.id, |volume| volume.format = Some(begun))?;
        filesystem::make(&contents, chosen)?;
        self.record_format(volume, chosen, volume.capacity)
    }

    fn made_distinct(&self, volume: &Volume, format: &Format) -> Result<Format, Status> {
        if !format.twin || self.driver.breaks(Sabotage::CloneCollidesWithSource) {
            return Ok(format.clone());
        }
        filesystem::make_distinct(&self.driver.contents_of(volume), &format.fs_type)?;
        self.record_format(volume, &format.fs_type, format.bytes)
    }

    fn record_format(&self, volume: &Volume, fs_type: &str, bytes: u64) -> Result<Format, Status> {
        let format = Format { fs_type: fs_type.to_owned(), finished: true, twin: false, bytes };
        self.driver.update_volume(&volume.id, |volume| volume.format = Some(format.clone()))?;
        Ok(format)
    }

    /// Records that the file system fills its device.
    pub(super) fn record_size(&self, volume: &Volume) -> Result<(), Status> {
        self.driver.update_volume(&volume.id, |record| {
            if let Some(format) = &mut record.format {
                format.bytes = volume.capacity;
            }
        })?;
        Ok(())
    }
}

impl crate::driver::Driver {
    /// The error says why the driver cannot use a volume of this backing in this way.
    pub(crate) fn supports(&self, backing: Backing, capability: &Capability) -> Result<(), String> {
        let is_fine = matches!(capability.mode, Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter);
        if is_fine && !self.can(Ability::SingleNodeMultiWriter) {
            return Err("this driver does not distinguish one writer of a node from many".to_owned());
        }
        let (fs_type, group) = match &capability.access {
            Access::Mount { fs_type, group, .. } => (fs_type.as_str(), group.as_str()),
            Access::Block => ("", ""),
        };
        if !fs_type.is_empty() && !self.can(Ability::FsTypes) {
            return Err("the volumes of this driver have no type of file system".to_owned());
        }
        if !group.is_empty() && !self.can(Ability::VolumeMountGroup) {
            return Err("this driver does not give volumes to groups".to_owned());
        }
        suits(backing, capability)
    }

    /// Mounts the tmpfs of a volume, or resizes it if it is mounted. It stays until the volume is deleted.
    pub(crate) fn mount_tmpfs(&self, volume: &Volume) -> Result<(), Status> {
        let path = self.contents_of(volume);
        let size = Options::default().with_data(&format!("size={}", volume.capacity));
        if mount::is_mount_point(&path)? {
            return Ok(mount::reconfigure(&path, &size)?);
        }
        fs::create_dir_all(&path)
            .map_err(|error| Status::internal(format!("cannot create a directory: {error}")))?;
        Ok(mount::mount(Path::new("fake-csi"), &path, "tmpfs", &size.with_data("mode=0777"))?)
    }
}

/// The error says why a volume of this backing cannot be used in this way.
fn suits(backing: Backing, capability: &Capability) -> Result<(), String> {
    let multi_writer = capability.mode.is_multi_node() && !capability.mode.is_read_only();
    match (&capability.access, backing) {
        (Access::Block, Backing::Loop) => Ok(()),
        (Access::Block, _) => Err("only a volume on a loop device can be a raw device".to_owned()),
        (Access::Mount { .. }, Backing::Loop | Backing::Directory | Backing::Tmpfs | Backing::Fuse)
            if multi_writer =>
        {
            Err("only a shared directory can be written to from several nodes".to_owned())
        }
        (Access::Mount { fs_type, .. }, Backing::Loop) => {
            let known = fs_type.is_empty() || filesystem::smallest(fs_type).is_some();
            if known { Ok(()) } else { Err(format!("`{fs_type}` is no file system this driver can make")) }
        }
        (Access::Mount { .. }, _) => Ok(()),
    }
}

fn mount_image(
    image: &Path,
    target: &Path,
    fs_type: &str,
    (options, has_flags): (Options, bool),
) -> Result<(), Status> {
    // Closed when this function returns: from then on only the mount keeps the device attached.
    let device = LoopDevice::find_or_attach(image, false, Lifetime::UntilUnused)?;
    device.grow()?;
    mount::mount(device.path(), target, fs_type, &options).map_err(|error| {
        if error.errno() == Some(nix::libc::EINVAL) && has_flags {
            return Status::invalid_argument(crate::driver::chain(&error));
        }
        error.into()
    })
}

fn bind_directory(source: &Path, target: &Path, flags: &[String]) -> Result<(), Status> {
    let options = mount_options(flags);
    Ok(mount::bind(source, target, options.flags.per_mount)?)
}

/// Mount options for the kernel. Without SELinux the kernel refuses `context`, so it is dropped; the books keep it.
pub(super) fn mount_options(flags: &[String]) -> Options {
    let selinux = Path::new("/sys/fs/selinux/enforce").exists();
    Options::parse(flags.iter().map(String::as_str).filter(|word| selinux || !word.starts_with("context=")))
}

/// The SELinux context among mount options.
pub(super) fn selinux_context(access: &Access) -> Option<String> {
    let Access::Mount { flags, .. } = access else { return None };
    let value = flags.iter().find_map(|flag| flag.strip_prefix("context="))?;
    Some(value.trim_matches('"').to_owned())
}

/// Changes the time of all files, as one of the sabotages does.
fn touch_files(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let file = fs::File::options().write(true).open(entry.path());
        drop(file.and_then(|file| file.set_modified(std::time::SystemTime::now())));
    }
}
