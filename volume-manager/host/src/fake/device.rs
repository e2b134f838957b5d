//! Block devices of the simulated kernel, loop devices among them. Touches nothing real.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::kernel::{FsId, State};
use super::mount::MountFlags;
use super::tree::{Filesystem, Ino, Node, ROOT};
use super::walk::At;
use crate::errno::{self, Errno};
use crate::file::FileKind;
use crate::format::{CheckOutcome, DiskContent};
use crate::mount_table::DeviceNumber;

/// The block devices, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Devices {
    blocks: BTreeMap<DeviceNumber, Block>,
    next_disk: u32,
}

impl Devices {
    pub(super) fn unclaim(&mut self) {
        for block in self.blocks.values_mut() {
            block.claims = 0;
        }
    }
}

/// Major number of loop devices.
const LOOP: u32 = 7;
/// Major number of the disks that a test or a driver adds.
const DISK: u32 = 252;

#[derive(Debug)]
pub(super) struct Block {
    pub(super) size: u64,
    pub(super) content: DiskContent,
    /// Outcome of the next check.
    pub(super) check: CheckOutcome,
    fs: Option<FsId>,
    /// For an attached loop device.
    backing: Option<Backing>,
    /// Exclusive opens besides those of mounts.
    pub(super) claims: u32,
}

#[derive(Debug, Clone)]
struct Backing {
    fs: FsId,
    ino: Ino,
    path: PathBuf,
}

impl State {
    /// Makes a disk with a node `/dev/<name>`.
    pub(super) fn add_disk(&mut self, name: &str, size: u64) -> Result<DeviceNumber, Errno> {
        let number = DeviceNumber::new(DISK, self.devices.next_disk);
        self.create(Path::new(&format!("/dev/{name}")), Node::Device(FileKind::BlockDevice, number), 0o660)?;
        self.devices.next_disk += 1;
        self.devices.blocks.insert(number, Block::new(size));
        Ok(number)
    }

    /// The device of a node.
    fn number_at(&self, path: &Path) -> Result<DeviceNumber, Errno> {
        let at = self.resolve(path, true)?;
        let fs = self.fs_of(at.mount);
        fs.ask()?;
        match fs.inode(at.ino).node {
            Node::Device(FileKind::BlockDevice, number) => Ok(number),
            _ => Err(Errno(errno::ENOTBLK)),
        }
    }

    /// The device of a node; ENXIO if the device was removed.
    pub(super) fn block(&mut self, path: &Path) -> Result<&mut Block, Errno> {
        let number = self.number_at(path)?;
        self.devices.blocks.get_mut(&number).ok_or(Errno(errno::ENXIO))
    }

    /// Removes a disk and its node. File systems mounted from it answer EIO from then on.
    pub(super) fn remove_disk(&mut self, path: &Path) -> Result<(), Errno> {
        let number = self.number_at(path)?;
        if let Some(fs) = self.devices.blocks.remove(&number).and_then(|block| block.fs) {
            self.fs_mut(fs).broken = Some(Errno(errno::EIO));
            self.discard_fs(fs);
        }
        self.remove_file(path).map(drop)
    }

    /// The file system on a device, for a mount of this type.
    pub(super) fn fs_on(&mut self, source: &Path, fs_type: &str) -> Result<FsId, Errno> {
        let number = self.number_at(source)?;
        let block = self.devices.blocks.get(&number).ok_or(Errno(errno::ENXIO))?;
        if block.content != DiskContent::FileSystem(fs_type.to_owned()) {
            return Err(Errno(errno::EINVAL));
        }
        if let Some(fs) = block.fs {
            return Ok(fs);
        }
        let mut fs = Filesystem::new(fs_type, source.as_os_str(), number, 0o755);
        fs.device = Some(number);
        fs.bytes = block.size;
        let id = self.add_fs(fs);
        if let Some(block) = self.devices.blocks.get_mut(&number) {
            block.fs = Some(id);
        }
        Ok(id)
    }

    /// Makes a file system; the old content is lost. A mounted device is busy.
    pub(super) fn format(&mut self, path: &Path, fs_type: &str) -> Result<(), Errno> {
        let number = self.number_at(path)?;
        if self.device_opened(path)? {
            return Err(Errno(errno::EBUSY));
        }
        let block = self.devices.blocks.get_mut(&number).ok_or(Errno(errno::ENXIO))?;
        block.content = DiskContent::FileSystem(fs_type.to_owned());
        if let Some(old) = block.fs.take() {
            self.discard_fs(old);
        }
        Ok(())
    }

    /// Grows the file system of a device to the device's size.
    pub(super) fn grow(&mut self, path: &Path) -> Result<(), Errno> {
        let block = self.block(path)?;
        let (size, fs) = (block.size, block.fs);
        if let Some(fs) = fs {
            self.fs_mut(fs).bytes = size;
        }
        Ok(())
    }

    /// Whether a device is mounted or claimed.
    pub(super) fn device_opened(&self, path: &Path) -> Result<bool, Errno> {
        let number = match self.number_at(path) {
            Ok(number) => number,
            Err(Errno(errno::ENOENT | errno::ENOTBLK)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let block = self.devices.blocks.get(&number).ok_or(Errno(errno::ENXIO))?;
        Ok(block.claims > 0 || block.fs.is_some_and(|fs| self.users(fs) > 0))
    }

    pub(super) fn device_size(&self, path: &Path) -> Result<u64, Errno> {
        let at = self.resolve(path, true)?;
        let metadata = self.fs_of(at.mount).metadata(at.ino)?;
        match metadata.kind {
            FileKind::BlockDevice => {
                let block = self.devices.blocks.get(&metadata.rdev).ok_or(Errno(errno::ENXIO))?;
                Ok(block.size)
            }
            _ => Ok(metadata.size),
        }
    }

    /// The loop device over the file at `path`, attached by this path or by the one it resolves to.
    pub(super) fn find_loop(&self, path: &Path) -> Result<Option<PathBuf>, Errno> {
        let at = match self.resolve(path, true) {
            Ok(at) => at,
            Err(Errno(errno::ENOENT)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (fs, resolved) = (self.mount(at.mount).fs, self.path_of(at));
        let is_ours = |backing: &Backing| {
            backing.fs == fs && backing.ino == at.ino && (backing.path == path || backing.path == resolved)
        };
        let mut attached = self.devices.blocks.iter();
        let found = attached.find(|(_, block)| block.backing.as_ref().is_some_and(is_ours));
        Ok(found.map(|(number, _)| loop_path(number.minor)))
    }

    /// Attaches the first free loop device to `path`.
    pub(super) fn attach_loop(&mut self, path: &Path) -> Result<PathBuf, Errno> {
        let at = self.resolve(path, true)?;
        self.fs_of(at.mount).ask()?;
        if self.fs_of(at.mount).is_dir(at.ino) {
            return Err(Errno(errno::EISDIR));
        }
        let size = self.device_size(path)?;
        let used = |minor| {
            let block = self.devices.blocks.get(&DeviceNumber::new(LOOP, minor));
            block.is_some_and(|block| block.backing.is_some())
        };
        let minor = (0..).find(|minor| !used(*minor)).expect("the range has no end");
        let number = DeviceNumber::new(LOOP, minor);
        let node = Node::Device(FileKind::BlockDevice, number);
        match self.create(&loop_path(minor), node, 0o660) {
            Ok(()) | Err(Errno(errno::EEXIST)) => {}
            Err(error) => return Err(error),
        }
        let fs = self.mount(at.mount).fs;
        let backing = Backing { fs, ino: at.ino, path: self.path_of(at) };
        self.fs_mut(fs).pin(at.ino);
        self.keep_fs(fs);
        self.devices.blocks.insert(number, Block { backing: Some(backing), ..Block::new(size) });
        Ok(loop_path(minor))
    }

    /// Detaches a loop device and returns the path of its backing file. `None`: not attached, or no such node.
    pub(super) fn detach_loop(&mut self, device: &Path) -> Result<Option<PathBuf>, Errno> {
        let number = match self.number_at(device) {
            Ok(number) => number,
            Err(Errno(errno::ENOENT)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(block) = self.devices.blocks.get_mut(&number) else { return Ok(None) };
        let Some(backing) = block.backing.take() else { return Ok(None) };
        self.fs_mut(backing.fs).unpin(backing.ino);
        self.release_fs(backing.fs);
        Ok(Some(backing.path))
    }

    /// Every attached loop device and the path of its backing file.
    pub(super) fn loops(&self) -> Vec<(PathBuf, PathBuf)> {
        let attached = self.devices.blocks.iter();
        attached
            .filter_map(|(number, block)| {
                Some((loop_path(number.minor), block.backing.as_ref()?.path.clone()))
            })
            .collect()
    }

    /// Makes a new mount. Options that are no flags of a mount go to the file system.
    pub(super) fn mount_new(
        &mut self,
        source: &str,
        target: &Path,
        fs_type: &str,
        options: &[String],
    ) -> Result<(), Errno> {
        let at = self.resolve(target, true)?;
        let mut flags = MountFlags::default();
        let own: Vec<String> =
            options.iter().filter(|option| !flags.apply(option) && !is_idle(option)).cloned().collect();
        let fs = self.superblock(source, fs_type, &own)?;
        if self.users(fs) == 0 {
            let fs = self.fs_mut(fs);
            (fs.read_only, fs.options) = (flags.read_only, own);
        } else if self.fs(fs).read_only != flags.read_only {
            return Err(Errno(errno::EBUSY));
        }
        let mount = self.new_mount(fs, ROOT, flags);
        self.graft(mount, at)
    }

    fn superblock(&mut self, source: &str, fs_type: &str, options: &[String]) -> Result<FsId, Errno> {
        let base = fs_type.split('.').next().unwrap_or(fs_type);
        match base {
            "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" => return self.fs_on(Path::new(source), fs_type),
            "tmpfs" | "hugetlbfs" | "nfs" | "nfs4" | "fuse" | "overlay" | "ramfs" | "cifs" => {}
            _ => return Err(Errno(errno::ENODEV)),
        }
        let exported = self.filesystems().find(|(_, fs)| fs.fs_type == fs_type && fs.source == source);
        if let Some((id, _)) = exported.filter(|_| base.starts_with("nfs")) {
            return Ok(id);
        }
        let value = |name: &str| {
            let value = options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
            value.map(str::to_owned)
        };
        let default = if base == "tmpfs" { 0o1777 } else { 0o755 };
        let mode = value("mode").and_then(|mode| u32::from_str_radix(&mode, 8).ok()).unwrap_or(default);
        let source = if source.is_empty() { "none" } else { source };
        let mut fs = Filesystem::new(fs_type, OsStr::new(source), self.anonymous_device(), mode);
        if let Some(size) = value("size").and_then(|size| size.parse().ok()) {
            fs.bytes = size;
        }
        if let Some(gid) = value("gid").and_then(|gid| gid.parse().ok()) {
            fs.inode_mut(ROOT).gid = gid;
        }
        Ok(self.add_fs(fs))
    }

    /// Changes the flags of one mount.
    pub(super) fn remount_bind(&mut self, at: At, options: &[String]) -> Result<(), Errno> {
        if !self.is_mount_root(at) {
            return Err(Errno(errno::EINVAL));
        }
        let (old, mut flags) = (self.mount(at.mount).flags, MountFlags::default());
        for option in options {
            flags.apply(option);
        }
        // Flags that are not named are cleared, except those of access times: they change only if one of them
        // is named.
        let about_time = ["noatime", "nodiratime", "relatime", "strictatime"];
        if !options.iter().any(|option| about_time.contains(&option.as_str())) {
            let MountFlags { noatime, nodiratime, relatime, .. } = old;
            flags = MountFlags { noatime, nodiratime, relatime, ..flags };
        }
        self.mount_mut(at.mount).flags = flags;
        self.table_changed();
        Ok(())
    }
}

impl Block {
    fn new(size: u64) -> Self {
        let (content, check) = (DiskContent::Nothing, CheckOutcome::Clean);
        Self { size, content, check, fs: None, backing: None, claims: 0 }
    }
}

/// Options for user space: neither flags of a mount nor data for a file system.
fn is_idle(option: &str) -> bool {
    matches!(option, "defaults" | "_netdev" | "nofail" | "auto" | "noauto" | "bind" | "remount")
}

fn loop_path(minor: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{minor}"))
}
