//! Mounts, binds, unmounts, and look-ups of the mount at a path.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use linux_raw_sys::general as raw;
use nix::mount::{MntFlags, MsFlags, umount2};
use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::KernelError;

/// Mount options for the kernel: flags, and the rest as a string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) flags: Flags,
    pub(crate) data: String,
}

/// Mount flags: `per_mount` flags may differ between the mounts of a file system, `other` flags are the file system's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) per_mount: MsFlags,
    pub(crate) other: MsFlags,
}

impl Default for Flags {
    fn default() -> Self {
        Self { per_mount: MsFlags::empty(), other: MsFlags::empty() }
    }
}

impl Options {
    /// Splits options into flags and data. A later option overrides an earlier one.
    pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut options = Self::default();
        for word in words.into_iter().flat_map(split).filter(|word| !word.is_empty()) {
            let flags = &mut options.flags;
            match flag(word) {
                Some(Meaning::Set(flag)) => flags.per_mount |= flag,
                Some(Meaning::Clear(flag)) => flags.per_mount &= !flag,
                Some(Meaning::Whole(flag)) => flags.other |= flag,
                Some(Meaning::Nothing) => {}
                None if options.data.is_empty() => options.data.push_str(word),
                None => {
                    options.data.push(',');
                    options.data.push_str(word);
                }
            }
        }
        options
    }

    /// Adds one option for the file system.
    pub(crate) fn with_data(mut self, word: &str) -> Self {
        if !self.data.is_empty() {
            self.data.push(',');
        }
        self.data.push_str(word);
        self
    }
}

enum Meaning {
    Set(MsFlags),
    Clear(MsFlags),
    /// A flag of the whole file system.
    Whole(MsFlags),
    /// An option that is accepted and changes nothing.
    Nothing,
}

fn flag(word: &str) -> Option<Meaning> {
    Some(match word {
        "ro" => Meaning::Set(MsFlags::MS_RDONLY),
        "rw" => Meaning::Clear(MsFlags::MS_RDONLY),
        "nosuid" => Meaning::Set(MsFlags::MS_NOSUID),
        "suid" => Meaning::Clear(MsFlags::MS_NOSUID),
        "nodev" => Meaning::Set(MsFlags::MS_NODEV),
        "dev" => Meaning::Clear(MsFlags::MS_NODEV),
        "noexec" => Meaning::Set(MsFlags::MS_NOEXEC),
        "exec" => Meaning::Clear(MsFlags::MS_NOEXEC),
        "noatime" => Meaning::Set(MsFlags::MS_NOATIME),
        "relatime" => Meaning::Set(MsFlags::MS_RELATIME),
        "nodiratime" => Meaning::Set(MsFlags::MS_NODIRATIME),
        "strictatime" => Meaning::Set(MsFlags::MS_STRICTATIME),
        "sync" => Meaning::Whole(MsFlags::MS_SYNCHRONOUS),
        "dirsync" => Meaning::Whole(MsFlags::MS_DIRSYNC),
        "lazytime" => Meaning::Whole(MsFlags::MS_LAZYTIME),
        "defaults" | "async" | "atime" | "bind" | "_netdev" | "nofail" => Meaning::Nothing,
        _ => return None,
    })
}

/// Splits at commas outside double quotes: an SELinux context holds commas.
fn split(words: &str) -> Vec<&str> {
    let mut quoted = false;
    words
        .split(move |letter| {
            quoted ^= letter == '"';
            letter == ',' && !quoted
        })
        .collect()
}

pub(crate) fn mount(
    source: &Path,
    target: &Path,
    fs_type: &str,
    options: &Options,
) -> Result<(), KernelError> {
    let flags = options.flags.per_mount | options.flags.other;
    nix::mount::mount(Some(source), target, Some(fs_type), flags, Some(options.data.as_str()))
        .map_err(|errno| KernelError::pair("mount", source, target, errno))
}

/// Binds `source` on `target` with these per-mount flags.
pub(crate) fn bind(source: &Path, target: &Path, per_mount: MsFlags) -> Result<(), KernelError> {
    if per_mount.is_empty() {
        return bind_plain(source, target);
    }
    // The flags are set before the mount is attached. A mount in a container propagates to the node when it is
    // attached, and flags that are set later would stay in the container.
    match bind_flagged(source, target, per_mount) {
        // Before Linux 5.12 binding and setting flags are two calls. If the second fails, the first is undone: a
        // read-only request must not leave a writable mount.
        Err(Errno::NOSYS) => {
            bind_plain(source, target)?;
            remount(target, per_mount).inspect_err(|_| drop(unmount_one(target, MntFlags::empty())))
        }
        bound => bound.map_err(|errno| KernelError::pair("bind", source, target, errno)),
    }
}

fn bind_plain(source: &Path, target: &Path) -> Result<(), KernelError> {
    nix::mount::mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| KernelError::pair("bind", source, target, errno))
}

fn bind_flagged(source: &Path, target: &Path, per_mount: MsFlags) -> rustix::io::Result<()> {
    let tree = open_tree(CWD, source, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let (mut set, mut clear) = (0, 0);
    for (flag, attribute) in ATTRIBUTES {
        *if per_mount.contains(flag) { &mut set } else { &mut clear } |= u64::from(attribute);
    }
    let atime = ATIMES.iter().find(|(flag, _)| per_mount.contains(*flag));
    if let Some((_, attribute)) = atime {
        set |= u64::from(*attribute);
        clear |= u64::from(raw::MOUNT_ATTR__ATIME);
    }
    let attributes = raw::mount_attr { attr_set: set, attr_clr: clear, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is a literal, and the kernel reads one `mount_attr` of the given length.
    let status = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            nix::libc::AT_EMPTY_PATH,
            std::ptr::from_ref(&attributes),
            size_of::<raw::mount_attr>(),
        )
    };
    if status != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    move_mount(&tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// `MS_NOSYMFOLLOW`: symbolic links on the mount are not followed.
pub(crate) const NOSYMFOLLOW: MsFlags = MsFlags::from_bits_retain(256);

/// Per-mount flags as attributes for mount_setattr(2).
const ATTRIBUTES: [(MsFlags, u32); 6] = [
    (MsFlags::MS_RDONLY, raw::MOUNT_ATTR_RDONLY),
    (MsFlags::MS_NOSUID, raw::MOUNT_ATTR_NOSUID),
    (MsFlags::MS_NODEV, raw::MOUNT_ATTR_NODEV),
    (MsFlags::MS_NOEXEC, raw::MOUNT_ATTR_NOEXEC),
    (MsFlags::MS_NODIRATIME, raw::MOUNT_ATTR_NODIRATIME),
    (NOSYMFOLLOW, raw::MOUNT_ATTR_NOSYMFOLLOW),
];

/// Access time flags: a mount has exactly one of them.
const ATIMES: [(MsFlags, u32); 3] = [
    (MsFlags::MS_NOATIME, raw::MOUNT_ATTR_NOATIME),
    (MsFlags::MS_STRICTATIME, raw::MOUNT_ATTR_STRICTATIME),
    (MsFlags::MS_RELATIME, raw::MOUNT_ATTR_RELATIME),
];

/// Sets the per-mount flags of an existing mount.
pub(crate) fn remount(target: &Path, per_mount: MsFlags) -> Result<(), KernelError> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | per_mount;
    nix::mount::mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
        .map_err(|errno| KernelError::path("remount", target, errno))
}

/// Unmounts all mounts stacked at `target`. Missing or not mounted: success.
pub(crate) fn unmount_all(target: &Path) -> Result<(), KernelError> {
    while is_mount_point(target)? {
        unmount_one(target, MntFlags::empty())?;
    }
    Ok(())
}

/// Unmounts the topmost mount at `target`.
pub(crate) fn unmount_one(target: &Path, flags: MntFlags) -> Result<(), KernelError> {
    umount2(target, flags | MntFlags::UMOUNT_NOFOLLOW)
        .map_err(|errno| KernelError::path("unmount", target, errno))
}

/// Whether a mount is at `path`; false if the path is missing. Never calls the file system: a FUSE daemon may hang.
pub(crate) fn is_mount_point(path: &Path) -> Result<bool, KernelError> {
    match look_at(path) {
        Ok(found) => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(KernelError::path("look at", path, errno)),
    }
}

/// Whether the mount at a path is for writing, and its file system has become read-only, as after an error.
pub(crate) fn has_gone_read_only(path: &Path) -> Result<bool, KernelError> {
    const TABLE: &str = "/proc/self/mountinfo";
    let table = fs::read_to_string(TABLE).map_err(|source| KernelError::path("read", TABLE, source))?;
    // The last line of a target is its topmost mount.
    let line = table.lines().rfind(|line| {
        let target = line.split(' ').nth(4).unwrap_or_default();
        Path::new(&target.replace("\\040", " ")) == path
    });
    let Some((mount, file_system)) = line.and_then(|line| line.split_once(" - ")) else { return Ok(false) };
    let per_mount = mount.split(' ').nth(5).unwrap_or_default();
    let is_for_writing = per_mount.split(',').any(|word| word == "rw");
    let refuses_writes = ["ro", "emergency_ro", "shutdown"];
    let options = file_system.split(' ').nth(2).unwrap_or_default();
    Ok(is_for_writing && options.split(',').any(|word| refuses_writes.contains(&word)))
}

/// The type and the inode of a path, and whether it is a mount point, as the kernel has cached them.
pub(crate) fn look_at(path: &Path) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::INO)
}

/// Whether a path is a symbolic link.
pub(crate) fn is_link(path: &Path) -> bool {
    look_at(path).is_ok_and(|found| {
        rustix::fs::FileType::from_raw_mode(found.stx_mode.into()) == rustix::fs::FileType::Symlink
    })
}

/// Whether both paths show the same file or directory of the same file system.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> Result<bool, KernelError> {
    let identity = |path: &Path| {
        look_at(path)
            .map(|found| (found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
            .map_err(|errno| KernelError::path("look at", path, errno))
    };
    Ok(identity(one)? == identity(other)?)
}

/// The device number of the block device node at `path`; `None` for anything else.
pub(crate) fn device_at(path: &Path) -> Result<Option<u64>, KernelError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_block_device() => Ok(Some(found.rdev())),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KernelError::path("look at", path, source)),
    }
}

/// Changes the options of the file system mounted at a path.
pub(crate) fn reconfigure(target: &Path, options: &Options) -> Result<(), KernelError> {
    let data = Some(options.data.as_str());
    nix::mount::mount(None::<&str>, target, None::<&str>, MsFlags::MS_REMOUNT, data)
        .map_err(|errno| KernelError::path("reconfigure", target, errno))
}
