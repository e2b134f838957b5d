//! Queries single mounts: statx for the unique id, statmount for the rest, listmount for the ids of all. Touches
//! nothing.
//!
//! Before 6.8 the kernel has none of these calls, and before 6.13 statmount leaves out the source. Then
//! [`mount_of`] answers `None` and the caller reads the whole table.

use std::ffi::{CStr, OsStr};
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linux_raw_sys::general as raw;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

use crate::error::{Action, HostError, Result};
use crate::mount_table::{DeviceNumber, MountEntry, part_shown};
use crate::options::split_options;

pub(super) const UNIQUE_ID: StatxFlags = StatxFlags::from_bits_retain(raw::STATX_MNT_ID_UNIQUE);

/// Every field of mountinfo. `MNT_OPTS` and the subtype may be missing in an answer: that means "none".
const WANTED: u32 = raw::STATMOUNT_SB_BASIC
    | raw::STATMOUNT_MNT_BASIC
    | raw::STATMOUNT_PROPAGATE_FROM
    | raw::STATMOUNT_MNT_ROOT
    | raw::STATMOUNT_MNT_POINT
    | raw::STATMOUNT_FS_TYPE
    | raw::STATMOUNT_MNT_OPTS
    | raw::STATMOUNT_FS_SUBTYPE
    | raw::STATMOUNT_SB_SOURCE
    | raw::STATMOUNT_SUPPORTED_MASK;

const NEEDED: u32 = raw::STATMOUNT_SB_BASIC
    | raw::STATMOUNT_MNT_BASIC
    | raw::STATMOUNT_MNT_ROOT
    | raw::STATMOUNT_MNT_POINT
    | raw::STATMOUNT_FS_TYPE
    | raw::STATMOUNT_SB_SOURCE;

/// A mount with the fields that references are found by.
pub(super) struct Mount {
    pub(super) id: u64,
    pub(super) dev: DeviceNumber,
    pub(super) root: PathBuf,
    pub(super) mount_point: PathBuf,
}

/// The fields of a [`Mount`].
const PLACE: u32 = raw::STATMOUNT_SB_BASIC | raw::STATMOUNT_MNT_ROOT | raw::STATMOUNT_MNT_POINT;

/// The mount that shows `path`; `None` if this kernel lacks the calls.
pub(super) fn mount_of(path: &Path) -> Result<Option<MountEntry>> {
    match unique_id(path) {
        Ok(Some(id)) => Ok(statmount(id, WANTED).ok().and_then(|answer| answer.entry())),
        Ok(None) | Err(Errno::NOSYS) => Ok(None),
        Err(error) => Err(HostError::os(Action::Stat, path, error)),
    }
}

/// The mount that shows `path`.
pub(super) fn shown_at(path: &Path) -> Result<Mount, Errno> {
    shown_by(unique_id(path)?.ok_or(Errno::NOSYS)?)
}

/// The mount with this unique id.
pub(super) fn shown_by(id: u64) -> Result<Mount, Errno> {
    statmount(id, PLACE)?.place(id).ok_or(Errno::NODATA)
}

/// Whether the mount with this id is still at this mount point, of a file system without a server.
pub(super) fn is_local_at(id: u64, mount_point: &Path) -> bool {
    /// ext2 to ext4, XFS, btrfs, tmpfs.
    const LOCAL: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];
    let Ok(answer) = statmount(id, PLACE) else { return false };
    let is_there = answer.path(answer.fixed().mnt_point).is_some_and(|path| path == mount_point);
    answer.has(PLACE) && is_there && LOCAL.contains(&answer.fixed().sb_magic)
}

fn unique_id(path: &Path) -> Result<Option<u64>, Errno> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, UNIQUE_ID)?;
    Ok((stat.stx_mask & UNIQUE_ID.bits() != 0).then_some(stat.stx_mnt_id))
}

/// Unique ids of all mounts that the table would show, ascending.
pub(super) fn list() -> Result<Vec<u64>, Errno> {
    let (mut ids, mut page) = (Vec::new(), [0u64; 512]);
    loop {
        let last = ids.last().copied().unwrap_or(0);
        let request = raw::mnt_id_req { mnt_id: ALL, ..request(last) };
        // SAFETY: `request` outlives the call and is at least as long as its `size` says; the kernel writes at most
        // as many ids as the page has room for.
        let result = unsafe {
            let number = libc::c_long::from(raw::__NR_listmount.cast_signed());
            libc::syscall(number, &raw const request, page.as_mut_ptr(), page.len(), 0)
        };
        let count = usize::try_from(result).map_err(|_| last_error())?;
        ids.extend(&page[..count]);
        if count < page.len() {
            return Ok(ids);
        }
    }
}

/// The kernel's `LSMT_ROOT`: all mounts below the root.
const ALL: u64 = u64::MAX;

/// The first version of the request, which every kernel with these calls accepts.
fn request(param: u64) -> raw::mnt_id_req {
    raw::mnt_id_req { size: 24, spare: 0, mnt_id: 0, param, mnt_ns_id: 0 }
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The kernel's answer: the fixed part, and the strings it points into.
struct Answer {
    words: Vec<u64>,
}

fn statmount(id: u64, wanted: u32) -> Result<Answer, Errno> {
    let request = raw::mnt_id_req { mnt_id: id, ..request(u64::from(wanted)) };
    let mut words = vec![0u64; 512];
    loop {
        let length = words.len() * size_of::<u64>();
        // SAFETY: `request` outlives the call and is at least as long as its `size` says; the kernel writes
        // at most `length` bytes to a buffer that has as many and is aligned for the structure.
        let result = unsafe {
            let number = libc::c_long::from(raw::__NR_statmount.cast_signed());
            libc::syscall(number, &raw const request, words.as_mut_ptr(), length, 0)
        };
        if result == 0 {
            return Ok(Answer { words });
        }
        match last_error() {
            Errno::OVERFLOW if length < 1 << 20 => words.resize(words.len() * 2, 0),
            error => return Err(error),
        }
    }
}

impl Mount {
    /// The path within the file system that `path`, which this mount shows, stands for.
    pub(super) fn root_at(&self, path: &Path) -> PathBuf {
        part_shown(&self.root, &self.mount_point, path)
    }
}

impl Answer {
    /// The answer as a line of mountinfo; `None` if a needed field is missing.
    fn entry(&self) -> Option<MountEntry> {
        let fixed = self.fixed();
        let has = |bits: u32| self.has(bits);
        if !has(NEEDED) {
            return None;
        }
        let mut fs_type = self.string(fixed.fs_type)?.to_owned();
        if has(raw::STATMOUNT_FS_SUBTYPE) {
            fs_type = format!("{fs_type}.{}", self.string(fixed.fs_subtype)?);
        }
        let mut super_options = super_flags(fixed.sb_flags);
        if has(raw::STATMOUNT_MNT_OPTS) {
            super_options.extend(split_options(self.string(fixed.mnt_opts)?));
        }
        let group = |id: u64| Some(id).filter(|id| *id != 0);
        Some(MountEntry {
            id: u64::from(fixed.mnt_id_old),
            parent: u64::from(fixed.mnt_parent_id_old),
            dev: self.device()?,
            root: self.path(fixed.mnt_root)?,
            mount_point: self.path(fixed.mnt_point)?,
            options: mount_flags(fixed.mnt_attr),
            shared: group(fixed.mnt_peer_group).filter(|_| fixed.mnt_propagation & MS_SHARED != 0),
            master: group(fixed.mnt_master),
            propagate_from: group(fixed.propagate_from).filter(|from| *from != fixed.mnt_master),
            unbindable: fixed.mnt_propagation & MS_UNBINDABLE != 0,
            fs_type,
            source: self.path(fixed.sb_source)?.into_os_string(),
            super_options,
        })
    }

    fn place(&self, id: u64) -> Option<Mount> {
        let (root, mount_point) = (self.fixed().mnt_root, self.fixed().mnt_point);
        let place = || {
            Some(Mount {
                id,
                dev: self.device()?,
                root: self.path(root)?,
                mount_point: self.path(mount_point)?,
            })
        };
        if self.has(PLACE) { place() } else { None }
    }

    fn device(&self) -> Option<DeviceNumber> {
        let fixed = self.fixed();
        let device = DeviceNumber::new(fixed.sb_dev_major, fixed.sb_dev_minor);
        self.has(raw::STATMOUNT_SB_BASIC).then_some(device)
    }

    /// Whether the answer has all these fields.
    fn has(&self, bits: u32) -> bool {
        self.fixed().mask & u64::from(bits) == u64::from(bits)
    }

    fn fixed(&self) -> &raw::statmount {
        debug_assert!(self.words.len() * size_of::<u64>() >= size_of::<raw::statmount>());
        // SAFETY: the buffer is longer than the structure, aligned to its strictest member, initialised
        // throughout, and the structure is made of integers only.
        unsafe { &*self.words.as_ptr().cast() }
    }

    fn bytes(&self, offset: u32) -> Option<&[u8]> {
        let start = offset_of!(raw::statmount, str_) + offset as usize;
        // SAFETY: any initialised u64s may be read as twice four, or eight, bytes.
        let all: &[u8] = unsafe {
            std::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() * size_of::<u64>())
        };
        Some(CStr::from_bytes_until_nul(all.get(start..)?).ok()?.to_bytes())
    }

    fn string(&self, offset: u32) -> Option<&str> {
        std::str::from_utf8(self.bytes(offset)?).ok()
    }

    fn path(&self, offset: u32) -> Option<PathBuf> {
        Some(PathBuf::from(OsStr::from_bytes(self.bytes(offset)?)))
    }
}

const MS_UNBINDABLE: u64 = 1 << 17;
const MS_SHARED: u64 = 1 << 20;

/// The per-mount flags in the order and the words of mountinfo.
fn mount_flags(attributes: u64) -> Vec<String> {
    const FLAGS: [(u32, &str); 5] = [
        (raw::MOUNT_ATTR_NOSUID, "nosuid"),
        (raw::MOUNT_ATTR_NODEV, "nodev"),
        (raw::MOUNT_ATTR_NOEXEC, "noexec"),
        (raw::MOUNT_ATTR_NOATIME, "noatime"),
        (raw::MOUNT_ATTR_NODIRATIME, "nodiratime"),
    ];
    let has = |bit: u32| attributes & u64::from(bit) != 0;
    let mut words = vec![if has(raw::MOUNT_ATTR_RDONLY) { "ro" } else { "rw" }];
    words.extend(FLAGS.iter().filter(|(bit, _)| has(*bit)).map(|(_, word)| *word));
    // `relatime` has no bit: it is the absence of the two others.
    if attributes & u64::from(raw::MOUNT_ATTR__ATIME) == 0 {
        words.push("relatime");
    }
    if has(raw::MOUNT_ATTR_NOSYMFOLLOW) {
        words.push("nosymfollow");
    }
    words.into_iter().map(str::to_owned).collect()
}

/// The flags of the file system itself, likewise.
fn super_flags(flags: u32) -> Vec<String> {
    const FLAGS: [(u32, &str); 3] = [(1 << 4, "sync"), (1 << 7, "dirsync"), (1 << 25, "lazytime")];
    let mut words = vec![if flags & 1 != 0 { "ro" } else { "rw" }];
    words.extend(FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word));
    words.into_iter().map(str::to_owned).collect()
}
