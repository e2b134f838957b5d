//! One mount asked for by itself: statx for its unique id, statmount for the rest. Touches nothing.
//!
//! Kernels without it (before 6.8; before 6.13 without sources) answer `None`, and the caller reads the
//! whole table.

use std::ffi::{CStr, OsStr};
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linux_raw_sys::general as raw;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

use crate::error::{Action, HostError, Result};
use crate::mount_table::{DeviceNumber, MountEntry};
use crate::options::split_options;

const UNIQUE_ID: StatxFlags = StatxFlags::from_bits_retain(raw::STATX_MNT_ID_UNIQUE);

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

/// The mount that shows `path`, or `None` where this kernel cannot be asked like this.
pub(super) fn mount_of(path: &Path) -> Result<Option<MountEntry>> {
    let stat = match rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, UNIQUE_ID) {
        Ok(stat) => stat,
        Err(Errno::NOSYS) => return Ok(None),
        Err(error) => return Err(HostError::os(Action::Stat, path, error)),
    };
    if stat.stx_mask & UNIQUE_ID.bits() == 0 {
        return Ok(None);
    }
    Ok(statmount(stat.stx_mnt_id).ok().and_then(|answer| answer.entry()))
}

/// The kernel's answer: the fixed part, and the strings it points into.
struct Answer {
    words: Vec<u64>,
}

/// The oldest form of the request, which every kernel with the call knows.
fn statmount(id: u64) -> Result<Answer, Errno> {
    let request = raw::mnt_id_req { size: 24, spare: 0, mnt_id: id, param: u64::from(WANTED), mnt_ns_id: 0 };
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
        match std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::OVERFLOW) if length < 1 << 20 => words.resize(words.len() * 2, 0),
            Some(error) => return Err(error),
            None => return Err(Errno::IO),
        }
    }
}

impl Answer {
    /// The answer as a line of mountinfo; `None` if the kernel left out what such a line needs.
    fn entry(&self) -> Option<MountEntry> {
        let fixed = self.fixed();
        let mask = fixed.mask;
        if mask & u64::from(NEEDED) != u64::from(NEEDED) {
            return None;
        }
        let has = |bit: u32| mask & u64::from(bit) != 0;
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
            dev: DeviceNumber::new(fixed.sb_dev_major, fixed.sb_dev_minor),
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
    // Relative access times are the absence of the two other ways.
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
