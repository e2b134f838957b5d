//! The trait `Host`: every question and every order a volume manager has for its node. Touches nothing.
//!
//! Rules for all of it: paths are absolute; a path that is missing is the error ENOENT
//! ([`HostError::is_not_found`]) unless the method says otherwise; a method that changes something emits one
//! event of [`crate::effect`] after it succeeded and none when it had nothing to do; a dropped future leaves
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
    /// Makes a new mount. The target must exist; a source that names no device is the kernel's ENOENT or
    /// ENOTBLK, an unknown type ENODEV. Effect `mount`.
    async fn mount(&self, spec: &MountSpec) -> Result<()>;

    /// Shows `bind.source` at `bind.target` as well: the first of the two steps of [`crate::bind::mount`],
    /// which is what plugins want. Both must exist, and be both directories or both not. Effect `bind`.
    async fn bind(&self, bind: &Bind) -> Result<()>;

    /// Binds what was opened by [`Host::open_beneath`], following no name again. The target must exist, be of
    /// the same kind, and be no symbolic link (EINVAL). Effect `bind`.
    async fn bind_opened(&self, opened: &OpenedBeneath, target: &Path) -> Result<()>;

    /// Sets the flags of the mount at `target` and only of it: the second step of a bind mount. Options that
    /// are no per-mount flags are ignored. Not a mount point: EINVAL. Effect `remount`.
    async fn remount_bind(&self, source: &Path, target: &Path, options: &MountOptions) -> Result<()>;

    /// Changes how mounts below `target` travel. Not a mount point: EINVAL. Effect `remount`.
    async fn set_propagation(&self, target: &Path, propagation: Propagation, recursive: bool) -> Result<()>;

    /// Takes the topmost mount at `target` away. Not a mount point: success, and no effect. Missing: ENOENT.
    /// In use: EBUSY. A final symbolic link is not followed (and so is "not a mount point"). Effect `umount`.
    async fn unmount(&self, target: &Path) -> Result<()>;

    /// The same with MNT_FORCE, for a server that no longer answers, once [`Host::unmount`] was given up: what that has
    /// taken away since is an effect of this one. Effect `umount`.
    async fn unmount_forced(&self, target: &Path) -> Result<()>;

    /// All mounts this process sees, read consistently.
    async fn mount_table(&self) -> Result<MountTable>;

    /// The mount that shows `path` (its topmost mount if it is a mount point), following symbolic links.
    /// One look-up where the kernel has statmount; else a read of the table.
    async fn mount_of(&self, path: &Path) -> Result<MountEntry>;

    /// Where else what `path` shows is mounted (07 §8): the mount points of all other mounts with the same root on the
    /// same device. `path` must be free of links. Missing: none.
    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>>;

    /// Whether `path` is the root of a mount, as statx says; it follows a final symbolic link. The kubelet's
    /// `IsLikelyNotMountPoint`, negated. Old kernels see no bind mounts here.
    async fn is_likely_mount_point(&self, path: &Path) -> Result<bool>;

    /// Whether `path`, resolved, is a mount point, with certainty. `/` is one. Where the caller may not look
    /// (EACCES, EPERM) the mount table decides.
    async fn is_mount_point(&self, path: &Path) -> Result<bool>;

    /// Makes a directory and its missing parents with `mode` less the umask. An existing directory is
    /// success, anything else in its place ENOTDIR or EEXIST. Effect `mkdir`, one for each directory made.
    async fn make_dir_all(&self, path: &Path, mode: u32) -> Result<()>;

    /// Makes one directory with `mode` less the umask. Existing: EEXIST. Effect `mkdir`.
    async fn make_dir(&self, path: &Path, mode: u32) -> Result<()>;

    /// Removes an empty directory. Missing: ENOENT. A mount point: EBUSY. Effect `rmdir`.
    async fn remove_dir(&self, path: &Path) -> Result<()>;

    /// Removes a file, link or node. Missing: ENOENT. A mount point: EBUSY. Effect `unlink` for a symbolic
    /// link, else `remove`.
    async fn remove_file(&self, path: &Path) -> Result<()>;

    /// Removes all of a tree, or as much as `removal` permits. Missing: success. Effect `remove`.
    async fn remove_tree(&self, path: &Path, removal: Removal) -> Result<()>;

    /// Names and kinds in a directory, sorted by name, without looking at the entries: a hung mount in it
    /// does not block.
    async fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>>;

    /// A file's bytes. Follows links. What is no file is refused at once, whether or not anybody is at its other end:
    /// EISDIR for a directory, else ENXIO. More than [`LARGEST`](crate::LARGEST) is EFBIG.
    async fn read_file(&self, path: &Path) -> Result<Vec<u8>>;

    /// The last bytes of a file, at most so many, however long it is. Otherwise as [`read_file`](Self::read_file).
    async fn read_end(&self, path: &Path, most: u64) -> Result<Vec<u8>>;

    /// Truncates or creates a file (with `mode` less the umask) and writes. Not atomic. Parents are not
    /// made. What is no file is refused as by [`read_file`](Self::read_file), and so is a final link, which may lead to
    /// somebody else's file: ELOOP. Effect `write`.
    async fn write_file(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()>;

    /// Creates an empty file with `mode` less the umask. Existing: EEXIST. Effect `write`.
    async fn create_file(&self, path: &Path, mode: u32) -> Result<()>;

    /// Makes `link` a symbolic link to `target`, which need not exist. Existing link: EEXIST. Effect `link`.
    async fn symlink(&self, target: &Path, link: &Path) -> Result<()>;

    /// What a symbolic link says. Not a link: EINVAL.
    async fn read_link(&self, path: &Path) -> Result<PathBuf>;

    /// Renames, replacing what is at `to`, atomically. Effect `rename`.
    async fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// stat(2): follows links. A mount that no longer answers gives an error for which
    /// [`HostError::is_corrupted_mount`] is true.
    async fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// lstat(2): a final link is described itself.
    async fn symlink_metadata(&self, path: &Path) -> Result<Metadata>;

    /// access(2) with F_OK: some servers know a path here that their stat calls missing.
    async fn access(&self, path: &Path) -> Result<()>;

    /// Sets all twelve mode bits; follows links. Effect `chmod`.
    async fn chmod(&self, path: &Path, mode: u32) -> Result<()>;

    /// Sets owner, group, or both; a final link itself is changed. Effect `chown`.
    async fn lchown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// The path without links and dots. Every element must exist.
    async fn canonicalize(&self, path: &Path) -> Result<PathBuf>;

    /// What the file system of `path` says about itself.
    async fn statfs(&self, path: &Path) -> Result<FsStats>;

    /// What a tree takes up, without leaving its file system.
    async fn disk_usage(&self, path: &Path) -> Result<Usage>;

    /// Changes group and mode of a whole tree, children before their directory, links themselves, across
    /// mounts (06 §8). What cannot be changed is logged and passed over; what cannot be read ends the walk.
    /// Effect `chown` for the root, once.
    async fn change_ownership(
        &self,
        root: &Path,
        change: OwnershipChange,
        progress: &WalkProgress,
    ) -> Result<()>;

    /// Opens `sub` (relative) below `base`, resolving links only as long as they stay below it. Anything
    /// that would leave is [`HostError::Escape`]. The result pins the file: nothing that is renamed or
    /// swapped afterwards changes what [`Host::bind_opened`] shows.
    async fn open_beneath(&self, base: &Path, sub: &Path) -> Result<OpenedBeneath>;

    /// Makes the missing directories of `sub` below `base`, each with exactly `mode` (no umask). An existing
    /// directory is success, something else in its place ENOTDIR, leaving `base` [`HostError::Escape`].
    /// Effect `mkdir`, one for each directory made.
    async fn make_dirs_beneath(&self, base: &Path, sub: &Path, mode: u32) -> Result<()>;

    /// Holds the block device (or file) at `path` open by a loop device over it, so that the kernel cannot
    /// give its number to another; the loop device is returned. One that is there already is taken
    /// (07 §13), without an effect. Effect `lock`.
    async fn lock_device(&self, path: &Path) -> Result<PathBuf>;

    /// The loop device whose backing file is `path` or what it resolves to; `None` if there is none.
    async fn find_lock(&self, path: &Path) -> Result<Option<PathBuf>>;

    /// Detaches a loop device. Not attached, or its node missing: success. Effect `unlock`.
    async fn unlock_device(&self, device: &Path) -> Result<()>;

    /// Whether somebody holds the device open exclusively (mounted, in a map, …). A path that is missing or
    /// no device: `false`.
    async fn device_opened(&self, path: &Path) -> Result<bool>;

    /// The size of the block device or file at `path` in bytes.
    async fn device_size(&self, path: &Path) -> Result<u64>;

    /// What is on a device (blkid).
    async fn probe_device(&self, device: &Path) -> Result<DiskContent>;

    /// Checks and repairs what can be repaired unasked (fsck -a). A missing tool is an outcome, no error.
    async fn check_device(&self, device: &Path) -> Result<CheckOutcome>;

    /// Makes a file system; what was on the device is lost. Effect `format`.
    async fn make_filesystem(&self, make: &MakeFilesystem) -> Result<()>;

    /// Grows a file system to its device. An unknown type is an error. Effect `grow`.
    async fn grow_filesystem(&self, grow: &Grow) -> Result<()>;

    /// Whether SELinux is enabled.
    async fn selinux_enabled(&self) -> bool;

    /// Whether tmpfs takes `noswap`: kernel 6.4 or later and not in a user namespace, or a probe proves it.
    async fn tmpfs_takes_noswap(&self) -> bool;
}

/// The first step of a bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// What is shown.
    pub source: PathBuf,
    /// Where it is shown as well.
    pub target: PathBuf,
    /// Whether mounts below the source come along.
    pub recursive: bool,
    /// Whether `_netdev` was asked for, which a `mount` command has to be told.
    pub netdev: bool,
}

impl Bind {
    /// A bind of `source` on `target` alone.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), target: target.into(), recursive: false, netdev: false }
    }
}

/// How mounts travel between a mount and its copies.
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
    /// The word mount(8) has for it.
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

/// How far a removal goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Everything, entering what is mounted below. A mount point itself cannot go: EBUSY, when its content
    /// is gone already.
    Everything,
    /// Everything on this file system; a mount point is [`HostError::IsMountPoint`], and its content stays
    /// (07 §12).
    OneFilesystem,
    /// Directories only, on this file system: the first file makes it fail with ENOTDIR, and stays.
    DirsOnly,
}

/// A file that was opened safely below a directory, and is held.
#[derive(Debug, Clone)]
pub struct OpenedBeneath {
    /// What it was when it was opened.
    pub metadata: Metadata,
    /// Where it was, without links. For texts: it may have moved since.
    pub path: PathBuf,
    pub(crate) handle: Arc<dyn Any + Send + Sync>,
}

impl OpenedBeneath {
    /// For hosts: the result of an opening, `handle` being whatever the host binds from later.
    pub fn new(metadata: Metadata, path: PathBuf, handle: Arc<dyn Any + Send + Sync>) -> Self {
        Self { metadata, path, handle }
    }

    /// For hosts: the handle, if it was this kind of host that opened it.
    pub fn handle<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.handle.downcast_ref()
    }
}
