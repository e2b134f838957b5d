//! The trait `Host`: every call a volume manager makes to its node. Touches nothing.
//!
//! Rules for all methods: paths are absolute. A missing path is the error ENOENT
//! ([`HostError::is_not_found`]) unless the method says otherwise. A method that changes something emits one
//! event of [`crate::effect`] after it succeeded, and none when it had nothing to do. A dropped future leaves
//! a started system call running to its end.

use std::any::Any;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

#[expect(unused_imports, reason = "the documentation links to it")]
use crate::error::HostError;
use crate::error::Result;
use crate::file::{DirEntry, FsStats, Metadata, Usage};
use crate::format::{CheckOutcome, DiskContent, Grow, MakeFilesystem};
use crate::mount_table::{MountEntry, MountTable};
use crate::options::{MountOptions, MountSpec};
use crate::ownership::{OwnershipChange, WalkProgress};

/// The only door to the kernel. Used as `Arc<dyn Host>`.
#[async_trait]
pub trait Host: Debug + Send + Sync + 'static {
    /// Makes a new mount. The target must exist. A source that is no device gives the kernel's ENOENT or
    /// ENOTBLK, an unknown type ENODEV. Effect `mount`.
    async fn mount(&self, spec: &MountSpec) -> Result<()>;

    /// Binds `bind.source` at `bind.target`: the first of the two steps of [`crate::bind::mount`], which is
    /// the one that plugins want. Both must exist, and be both directories or both not. Effect `bind`.
    async fn bind(&self, bind: &Bind) -> Result<()>;

    /// Binds a file opened by [`Host::open_beneath`] without resolving its path again. The target must exist,
    /// be of the same kind, and be no symbolic link (EINVAL). Effect `bind`.
    async fn bind_opened(&self, opened: &OpenedBeneath, target: &Path) -> Result<()>;

    /// Sets the flags of the one mount at `target`: the second step of a bind mount. Options that are no
    /// per-mount flags are ignored. Not a mount point: EINVAL. Effect `remount`.
    async fn remount_bind(&self, source: &Path, target: &Path, options: &MountOptions) -> Result<()>;

    /// Changes the propagation of the mount at `target`. Not a mount point: EINVAL. Effect `remount`.
    async fn set_propagation(&self, target: &Path, propagation: Propagation, recursive: bool) -> Result<()>;

    /// Unmounts the topmost mount at `target`. Not a mount point: success, and no effect. Missing: ENOENT.
    /// In use: EBUSY. A final symbolic link is not followed (and so is "not a mount point"). Effect `umount`.
    async fn unmount(&self, target: &Path) -> Result<()>;

    /// Unmounts with MNT_FORCE, for a server that no longer answers, after the caller has given up
    /// [`Host::unmount`]. If that call has unmounted `target` meanwhile, this one announces it. Effect `umount`.
    async fn unmount_forced(&self, target: &Path) -> Result<()>;

    /// All mounts this process sees, read consistently.
    async fn mount_table(&self) -> Result<MountTable>;

    /// The mount that shows `path` (its topmost mount if it is a mount point), following symbolic links.
    /// One look-up where the kernel has statmount; else a read of the table.
    async fn mount_of(&self, path: &Path) -> Result<MountEntry>;

    /// Mount points of all other mounts of the directory or file that `path` shows (07 §8): those with the same
    /// root on the same device. `path` must be free of links. Missing: none.
    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>>;

    /// Whether `path` is the root of a mount, as statx says; it follows a final symbolic link. The kubelet's
    /// `IsLikelyNotMountPoint`, negated. Old kernels see no bind mounts here.
    async fn is_likely_mount_point(&self, path: &Path) -> Result<bool>;

    /// Whether `path`, resolved, is a mount point, with certainty, also for bind mounts on old kernels. `/` is
    /// one. Where the caller may not look (EACCES, EPERM) the mount table decides.
    async fn is_mount_point(&self, path: &Path) -> Result<bool>;

    /// Makes a directory and its missing parents with `mode` less the umask. An existing directory is
    /// success, anything else of that name ENOTDIR or EEXIST. Effect `mkdir`, one for each directory made.
    async fn make_dir_all(&self, path: &Path, mode: u32) -> Result<()>;

    /// Makes one directory with `mode` less the umask. Existing: EEXIST. Effect `mkdir`.
    async fn make_dir(&self, path: &Path, mode: u32) -> Result<()>;

    /// Removes an empty directory. Missing: ENOENT. A mount point: EBUSY. Effect `rmdir`.
    async fn remove_dir(&self, path: &Path) -> Result<()>;

    /// Removes a file, link or node. Missing: ENOENT. A mount point: EBUSY. Effect `unlink` for a symbolic
    /// link, else `remove`.
    async fn remove_file(&self, path: &Path) -> Result<()>;

    /// Removes a tree, or as much of it as `removal` permits. Missing: success. Effect `remove`.
    async fn remove_tree(&self, path: &Path, removal: Removal) -> Result<()>;

    /// Names and kinds in a directory, sorted by name, without looking at the entries: a hung mount in it
    /// does not block.
    async fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>>;

    /// A file's bytes. Follows links. Anything but a regular file is refused without blocking: EISDIR for a
    /// directory, else ENXIO. More than [`LARGEST`](crate::LARGEST) is EFBIG.
    async fn read_file(&self, path: &Path) -> Result<Vec<u8>>;

    /// The last `most` bytes of a file of any length. Otherwise as [`read_file`](Self::read_file).
    async fn read_end(&self, path: &Path, most: u64) -> Result<Vec<u8>>;

    /// Truncates or creates a file (with `mode` less the umask) and writes. Not atomic. Parents are not
    /// made. Anything but a regular file is refused as by [`read_file`](Self::read_file). So is a final link
    /// (ELOOP): it may lead to a file outside the directory that the caller means. Effect `write`.
    async fn write_file(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()>;

    /// Creates an empty file with `mode` less the umask. Existing: EEXIST. Effect `write`.
    async fn create_file(&self, path: &Path, mode: u32) -> Result<()>;

    /// Makes `link` a symbolic link to `target`, which need not exist. Existing link: EEXIST. Effect `link`.
    async fn symlink(&self, target: &Path, link: &Path) -> Result<()>;

    /// The target of a symbolic link. Not a link: EINVAL.
    async fn read_link(&self, path: &Path) -> Result<PathBuf>;

    /// Renames atomically, replacing `to` if it exists. Effect `rename`.
    async fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// stat(2): follows links. A mount that no longer answers gives an error for which
    /// [`HostError::is_corrupted_mount`] is true.
    async fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// lstat(2): describes a final link itself.
    async fn symlink_metadata(&self, path: &Path) -> Result<Metadata>;

    /// access(2) with F_OK: on some servers it finds a path that stat reports as missing.
    async fn access(&self, path: &Path) -> Result<()>;

    /// Sets all twelve mode bits; follows links. Effect `chmod`.
    async fn chmod(&self, path: &Path, mode: u32) -> Result<()>;

    /// Sets owner, group, or both; a final link itself is changed. Effect `chown`.
    async fn lchown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// The path without links and dots. Every element must exist.
    async fn canonicalize(&self, path: &Path) -> Result<PathBuf>;

    async fn statfs(&self, path: &Path) -> Result<FsStats>;

    /// Space and inodes that a tree uses, without leaving its file system.
    async fn disk_usage(&self, path: &Path) -> Result<Usage>;

    /// Changes group and mode of a whole tree, children before their directory, links themselves, across
    /// mounts (06 §8). An entry that cannot be changed is logged and skipped; a directory that cannot be read
    /// ends the walk with an error. Effect `chown` for the root, once.
    async fn change_ownership(
        &self,
        root: &Path,
        change: OwnershipChange,
        progress: &WalkProgress,
    ) -> Result<()>;

    /// Opens `sub` (relative) below `base`, following links only while they stay below it. A path that leaves
    /// is [`HostError::Escape`]. The result pins the file: renaming or swapping a path afterwards does not
    /// change what [`Host::bind_opened`] binds.
    async fn open_beneath(&self, base: &Path, sub: &Path) -> Result<OpenedBeneath>;

    /// Makes the missing directories of `sub` below `base`, each with exactly `mode` (no umask). An existing
    /// directory is success, anything else of that name ENOTDIR, leaving `base` [`HostError::Escape`].
    /// Effect `mkdir`, one for each directory made.
    async fn make_dirs_beneath(&self, base: &Path, sub: &Path, mode: u32) -> Result<()>;

    /// Holds the block device (or file) at `path` open by a loop device over it, so that the kernel cannot
    /// give its number to another device. Returns the loop device; an existing one is reused without an effect
    /// (07 §13). Effect `lock`.
    async fn lock_device(&self, path: &Path) -> Result<PathBuf>;

    /// The loop device whose backing file is `path` or the path it resolves to.
    async fn find_lock(&self, path: &Path) -> Result<Option<PathBuf>>;

    /// Detaches a loop device. Not attached, or its node missing: success. Effect `unlock`.
    async fn unlock_device(&self, device: &Path) -> Result<()>;

    /// Whether the device is open exclusively (mounted, in a device mapper, …). Missing or no device: `false`.
    async fn device_opened(&self, path: &Path) -> Result<bool>;

    async fn device_size(&self, path: &Path) -> Result<u64>;

    /// Content of a device as blkid reports it.
    async fn probe_device(&self, device: &Path) -> Result<DiskContent>;

    /// Checks a file system and makes the safe repairs (fsck -a). A missing tool is an outcome, no error.
    async fn check_device(&self, device: &Path) -> Result<CheckOutcome>;

    /// Makes a file system; the device's old content is lost. Effect `format`.
    async fn make_filesystem(&self, make: &MakeFilesystem) -> Result<()>;

    /// Grows a file system to its device. An unknown type is an error. Effect `grow`.
    async fn grow_filesystem(&self, grow: &Grow) -> Result<()>;

    /// Runs a program that may mount or unmount at `target`. Returns what it has printed, whatever its exit status.
    async fn run_at(&self, program: &Path, arguments: &[String], target: &Path) -> Result<String>;

    async fn selinux_enabled(&self) -> bool;

    /// Whether tmpfs takes `noswap`: kernel 6.4 or later and not in a user namespace, or a probe proves it.
    async fn tmpfs_takes_noswap(&self) -> bool;
}

/// The first step of a bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    pub source: PathBuf,
    pub target: PathBuf,
    /// Whether mounts below the source are bound as well.
    pub recursive: bool,
    /// Whether `_netdev` was asked for: only a `mount` command needs it.
    pub netdev: bool,
}

impl Bind {
    /// Not recursive, without `_netdev`.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), target: target.into(), recursive: false, netdev: false }
    }
}

/// How new mounts travel between a mount and its copies (mount_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Propagation {
    /// Both ways.
    Shared,
    /// Not at all.
    Private,
    /// Towards this one only.
    Slave,
    /// Not at all, and it cannot be bound either.
    Unbindable,
}

impl Propagation {
    /// The option of mount(8).
    pub fn word(self, recursive: bool) -> &'static str {
        match (self, recursive) {
            (Self::Shared, false) => "shared",
            (Self::Shared, true) => "rshared",
            (Self::Private, false) => "private",
            (Self::Private, true) => "rprivate",
            (Self::Slave, false) => "slave",
            (Self::Slave, true) => "rslave",
            (Self::Unbindable, false) => "unbindable",
            (Self::Unbindable, true) => "runbindable",
        }
    }
}

/// The extent of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Everything, also on file systems mounted below. A mount point itself stays: EBUSY, after its content
    /// was removed.
    Everything,
    /// Everything on this file system. A mount point is [`HostError::IsMountPoint`], and its content stays
    /// (07 §12).
    OneFilesystem,
    /// Directories only, on this file system. A file stays, and the removal fails with ENOTDIR.
    DirsOnly,
}

/// A file opened safely below a directory, and held open.
#[derive(Debug, Clone)]
pub struct OpenedBeneath {
    /// As of the opening.
    pub metadata: Metadata,
    /// Its path without links. For texts: the file may have moved since.
    pub path: PathBuf,
    pub(crate) handle: Arc<dyn Any + Send + Sync>,
}

impl OpenedBeneath {
    /// For hosts: `handle` is the value that the host binds from later.
    pub fn new(metadata: Metadata, path: PathBuf, handle: Arc<dyn Any + Send + Sync>) -> Self {
        Self { metadata, path, handle }
    }

    /// For hosts: the handle, if this kind of host opened the file.
    pub fn handle<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.handle.downcast_ref()
    }
}
