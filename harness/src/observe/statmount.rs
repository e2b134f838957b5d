//! The system calls `statmount` and `listmount`: one mount by its unique id, and all ids of a namespace.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use linux_raw_sys::general as raw;

use super::{Device, Mount};

/// The kernel's id of a mount. Unique ids are never used again, and later mounts have greater ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountId(
    /// The number as the kernel gives it.
    pub u64,
);

impl fmt::Display for MountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

const ROOT: u64 = u64::MAX;
const PAGE: usize = 512;
const STRINGS: usize = 512;
const WANTED: u32 = raw::STATMOUNT_SB_BASIC
    | raw::STATMOUNT_MNT_BASIC
    | raw::STATMOUNT_MNT_ROOT
    | raw::STATMOUNT_MNT_POINT
    | raw::STATMOUNT_FS_TYPE
    | raw::STATMOUNT_MNT_OPTS
    | raw::STATMOUNT_FS_SUBTYPE
    | raw::STATMOUNT_SB_SOURCE;

/// Every mount of the caller's namespace that it can reach, in the order they were made.
pub(super) fn list() -> io::Result<Vec<MountId>> {
    let mut ids = Vec::new();
    loop {
        let last = ids.last().map_or(0, |id: &MountId| id.0);
        let request = request(ROOT, last);
        let mut page = [0u64; PAGE];
        // SAFETY: `request` is a complete mnt_id_req and `page` has room for PAGE ids.
        let count = unsafe {
            libc::syscall(raw::__NR_listmount.into(), &raw const request, page.as_mut_ptr(), PAGE, 0)
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        ids.extend(page[..count].iter().copied().map(MountId));
        if count < PAGE {
            return Ok(ids);
        }
    }
}

/// Makes the calls of statmount, with one buffer for the answers.
#[derive(Debug)]
pub(super) struct Statmount {
    buffer: Vec<u64>,
}

impl Statmount {
    pub(super) fn new() -> Statmount {
        Statmount { buffer: vec![0; 512] }
    }

    /// Asks about one mount; `None` if it is not in the caller's namespace (any more).
    pub(super) fn ask(&mut self, id: MountId) -> io::Result<Option<Answer<'_>>> {
        loop {
            let request = request(id.0, WANTED.into());
            // SAFETY: the buffer is writable for the length that is given, and aligned for u64.
            let result = unsafe {
                let bytes = self.buffer.len() * size_of::<u64>();
                libc::syscall(
                    raw::__NR_statmount.into(),
                    &raw const request,
                    self.buffer.as_mut_ptr(),
                    bytes,
                    0,
                )
            };
            if result == 0 {
                return Ok(Some(Answer(&self.buffer)));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EOVERFLOW) if self.buffer.len() < 1 << 20 => {
                    self.buffer.resize(self.buffer.len() * 4, 0);
                }
                Some(libc::ENOENT) => return Ok(None),
                _ => return Err(error),
            }
        }
    }
}

fn request(mnt_id: u64, param: u64) -> raw::mnt_id_req {
    raw::mnt_id_req { size: size_of::<raw::mnt_id_req>() as u32, spare: 0, mnt_id, param, mnt_ns_id: 0 }
}

/// The kernel's answer: a `struct statmount`, then its strings.
pub(super) struct Answer<'a>(&'a [u64]);

macro_rules! field {
    ($answer:expr, $field:ident) => {{
        let bytes = $answer.bytes();
        let at = offset_of!(raw::statmount, $field);
        fixed(bytes, at)
    }};
}

/// A number of the answer's fixed part.
fn fixed<const N: usize, T: FromBytes<N>>(bytes: &[u8], at: usize) -> T {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    T::from_bytes(value)
}

trait FromBytes<const N: usize> {
    fn from_bytes(bytes: [u8; N]) -> Self;
}

impl FromBytes<4> for u32 {
    fn from_bytes(bytes: [u8; 4]) -> u32 {
        u32::from_ne_bytes(bytes)
    }
}

impl FromBytes<8> for u64 {
    fn from_bytes(bytes: [u8; 8]) -> u64 {
        u64::from_ne_bytes(bytes)
    }
}

impl Answer<'_> {
    fn bytes(&self) -> &[u8] {
        // SAFETY: every u64 is eight initialised bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), size_of_val(self.0)) }
    }

    /// The whole answer. Two answers about a mount are equal as long as the mount does not change.
    pub(super) fn words(&self) -> &[u8] {
        let size: u32 = field!(self, size);
        &self.bytes()[..size as usize]
    }

    /// A string of the answer; empty if the kernel did not fill it in.
    fn string(&self, offset: u32, bit: u32) -> &[u8] {
        let mask: u64 = field!(self, mask);
        if mask & u64::from(bit) == 0 {
            return b"";
        }
        let tail = &self.bytes()[STRINGS + offset as usize..];
        tail.split(|byte| *byte == 0).next().unwrap_or(b"")
    }

    fn text(&self, offset: u32, bit: u32) -> String {
        String::from_utf8_lossy(&super::mountinfo::unescape(self.string(offset, bit))).into_owned()
    }

    /// Paths come unescaped, other than in mountinfo.
    fn path(&self, offset: u32, bit: u32) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(self.string(offset, bit)))
    }

    pub(super) fn mount(&self) -> Mount {
        let mut fstype = self.text(field!(self, fs_type), raw::STATMOUNT_FS_TYPE);
        let subtype = self.text(field!(self, fs_subtype), raw::STATMOUNT_FS_SUBTYPE);
        if !subtype.is_empty() {
            fstype = format!("{fstype}.{subtype}");
        }
        let dev = Device { major: field!(self, sb_dev_major), minor: field!(self, sb_dev_minor) };
        let fs_options = self.text(field!(self, mnt_opts), raw::STATMOUNT_MNT_OPTS);
        Mount {
            id: MountId(field!(self, mnt_id)),
            parent: MountId(field!(self, mnt_parent_id)),
            target: self.path(field!(self, mnt_point), raw::STATMOUNT_MNT_POINT),
            root: self.path(field!(self, mnt_root), raw::STATMOUNT_MNT_ROOT),
            fstype,
            source: self.text(field!(self, sb_source), raw::STATMOUNT_SB_SOURCE),
            opts: mount_options(field!(self, mnt_attr)),
            super_opts: super_options(field!(self, sb_flags), &fs_options),
            dev,
            rdev: None,
            propagation: self.propagation(),
        }
    }

    fn propagation(&self) -> String {
        let kind: u64 = field!(self, mnt_propagation);
        let group: u64 = field!(self, mnt_peer_group);
        let master: u64 = field!(self, mnt_master);
        let mut tags = Vec::new();
        if kind & u64::from(raw::MS_SHARED) != 0 {
            tags.push(format!("shared:{group}"));
        }
        if kind & u64::from(raw::MS_SLAVE) != 0 {
            tags.push(format!("master:{master}"));
        }
        if kind & u64::from(raw::MS_UNBINDABLE) != 0 {
            tags.push("unbindable".to_owned());
        }
        tags.join(" ")
    }
}

/// Attributes in mountinfo's words and order.
fn mount_options(attributes: u64) -> String {
    let mut words = vec![if attributes & 0x1 != 0 { "ro" } else { "rw" }];
    let plain = [(0x2, "nosuid"), (0x4, "nodev"), (0x8, "noexec")];
    words.extend(plain.iter().filter(|(bit, _)| attributes & bit != 0).map(|(_, word)| *word));
    let atime = attributes & 0x70;
    words.extend((atime == 0x10).then_some("noatime"));
    words.extend((attributes & 0x80 != 0).then_some("nodiratime"));
    words.extend((atime == 0).then_some("relatime"));
    let late = [(0x20_0000, "nosymfollow"), (0x10_0000, "idmapped")];
    words.extend(late.iter().filter(|(bit, _)| attributes & bit != 0).map(|(_, word)| *word));
    words.join(",")
}

/// Flags and options of the file system in mountinfo's words and order.
fn super_options(flags: u32, rest: &str) -> String {
    let mut words = vec![if flags & raw::MS_RDONLY != 0 { "ro" } else { "rw" }];
    let named = [(raw::MS_SYNCHRONOUS, "sync"), (raw::MS_DIRSYNC, "dirsync"), (raw::MS_LAZYTIME, "lazytime")];
    words.extend(named.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word));
    words.extend((!rest.is_empty()).then_some(rest));
    words.join(",")
}
