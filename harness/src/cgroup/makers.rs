//! Who makes control groups: the kernel's notifications (fanotify, Linux 6.6) name the process. Reads only.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A notification about an entry of a directory carries the directory's handle and the entry's name.
const REPORT: u32 = libc::FAN_REPORT_DIR_FID | libc::FAN_REPORT_NAME;
/// Only root of the machine may have an endless queue; to others the kernel does not name the process.
const FLAGS: u32 = libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_UNLIMITED_QUEUE | REPORT;
const INFO_TYPE_DFID_NAME: u8 = 2;
const METADATA: usize = 24;
/// The bytes before the handle's own: header, id of the file system, size and type of the handle.
const BEFORE_HANDLE: usize = 20;

/// Notes the groups that processes of this PID namespace make directly below the tops of the hierarchies.
#[derive(Debug)]
pub(super) struct Makers {
    watched: Vec<(PathBuf, File)>,
    made: Mutex<BTreeSet<PathBuf>>,
}

impl Makers {
    /// `None` if the kernel does not notify of each hierarchy, or not this user.
    pub(super) fn watch(tops: impl IntoIterator<Item = PathBuf>) -> Option<Self> {
        let watched = tops.into_iter().map(|top| watch(&top).map(|group| (top, group)));
        Some(Self { watched: watched.collect::<io::Result<_>>().ok()?, made: Mutex::default() })
    }

    /// The groups that processes of this PID namespace have made, whether they are still there or not.
    pub(super) fn made(&self) -> BTreeSet<PathBuf> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inbox = vec![0; 64 << 10];
        for (top, group) in &self.watched {
            let mut group = group;
            // An error is the end of the notifications, as a rule that there are none left.
            while let Ok(length) = group.read(&mut inbox) {
                made.extend(names_by_us(&inbox[..length]).into_iter().map(|name| top.join(name)));
            }
        }
        made.clone()
    }
}

fn watch(top: &Path) -> io::Result<File> {
    // SAFETY: no pointers; the result is checked before it is used as a descriptor.
    let fd = unsafe { libc::fanotify_init(FLAGS, libc::O_RDONLY.cast_unsigned()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    let group = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let path = CString::new(top.as_os_str().as_bytes())?;
    // SAFETY: the descriptor is open, and the path is a string that ends with zero and outlives the call.
    let result = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR,
            libc::FAN_CREATE | libc::FAN_ONDIR,
            libc::AT_FDCWD,
            path.as_ptr(),
        )
    };
    if result == 0 { Ok(group) } else { Err(io::Error::last_os_error()) }
}

/// The names of the entries that processes of this PID namespace have made. For the others the kernel says 0.
fn names_by_us(bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while rest.len() >= METADATA {
        let length = number(rest, 0).clamp(METADATA, rest.len());
        let (event, after) = rest.split_at(length);
        if number(event, 20) != 0 {
            found.extend(name(&event[METADATA..]));
        }
        rest = after;
    }
    found
}

/// The name among the records that follow a notification.
fn name(mut records: &[u8]) -> Option<PathBuf> {
    while records.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([records[2], records[3]]));
        let record = records.get(..length.max(4))?;
        if record[0] == INFO_TYPE_DFID_NAME && record.len() > BEFORE_HANDLE {
            let text = record.get(BEFORE_HANDLE + number(record, 12)..)?;
            let end = text.iter().position(|byte| *byte == 0)?;
            return Some(PathBuf::from(OsString::from_vec(text[..end].to_vec())));
        }
        records = &records[record.len()..];
    }
    None
}

fn number(bytes: &[u8], at: usize) -> usize {
    let four: [u8; 4] = std::array::from_fn(|i| bytes.get(at + i).copied().unwrap_or_default());
    usize::try_from(u32::from_ne_bytes(four)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A notification as Linux 6.18 writes it.
    fn notification(pid: u32, name: &str) -> Vec<u8> {
        let handle = [0xfe_u8, 0, 0, 0, 1, 0, 0, 0];
        let mut record = vec![INFO_TYPE_DFID_NAME, 0, 0, 0];
        record.extend([7; 8]);
        record.extend([8_u32, 0xfe].map(u32::to_ne_bytes).concat());
        record.extend(handle);
        record.extend(name.as_bytes());
        record.resize(record.len() + 4 - name.len() % 4, 0);
        let length = u16::try_from(record.len()).unwrap();
        record[2..4].copy_from_slice(&length.to_ne_bytes());
        let mut event = u32::try_from(METADATA + record.len()).unwrap().to_ne_bytes().to_vec();
        event.extend([3, 0, 24, 0]);
        event.extend((libc::FAN_CREATE | libc::FAN_ONDIR).to_ne_bytes());
        event.extend((-1_i32).to_ne_bytes());
        event.extend(pid.to_ne_bytes());
        event.extend(record);
        event
    }

    #[test]
    fn groups_of_other_pid_namespaces_are_not_ours() {
        let all = [notification(0, "theirs"), notification(42, "ours"), notification(1, "mine")].concat();
        assert_eq!(names_by_us(&all), ["ours", "mine"].map(PathBuf::from));
        assert_eq!(names_by_us(&all[..all.len() - 6]), ["ours"].map(PathBuf::from), "one that is cut off");
    }
}
