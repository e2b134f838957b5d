//! Who makes control groups: the kernel's notifications (fanotify, Linux 6.6) name the process. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use nix::sys::statvfs::statvfs;

use crate::notification::{Group, Notification, array, notifications};

/// A notification about an entry of a directory carries the directory's file system, its handle and the entry's name.
const REPORT: u32 = libc::FAN_REPORT_DIR_FID | libc::FAN_REPORT_NAME;
const INFO_TYPE_DFID_NAME: u8 = 2;
/// The bytes of the header before the id of the file system.
const BEFORE_ID: usize = 4;
/// The bytes before the handle's own: header, id of the file system, size and type of the handle.
const BEFORE_HANDLE: usize = 20;

/// Notes the groups that processes of this PID namespace make directly below the tops of the hierarchies.
///
/// One notification group for all: there are a dozen hierarchies of version 1.
#[derive(Debug)]
pub(super) struct Makers {
    group: Group,
    /// The tops by the ids of their file systems.
    tops: BTreeMap<u64, PathBuf>,
    made: Mutex<BTreeSet<PathBuf>>,
}

impl Makers {
    /// `None` if the kernel does not notify of each hierarchy, or not this user.
    pub(super) fn watch(tops: impl IntoIterator<Item = PathBuf>) -> Option<Self> {
        Self::try_watch(tops).ok()
    }

    fn try_watch(tops: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        // Only root of the machine may have an endless queue; to others the kernel does not name the process.
        let group = Group::open(libc::FAN_UNLIMITED_QUEUE | REPORT, 0)?;
        let mut by_id = BTreeMap::new();
        for top in tops {
            let path = CString::new(top.as_os_str().as_bytes())?;
            let mask = libc::FAN_CREATE | libc::FAN_ONDIR;
            group.mark(libc::FAN_MARK_ONLYDIR, mask, libc::AT_FDCWD, Some(&path))?;
            let id = statvfs(&top)?.filesystem_id();
            if let Some(other) = by_id.insert(id, top) {
                let message = format!("the file system of `{}` has the id of another", other.display());
                return Err(io::Error::other(message));
            }
        }
        Ok(Self { group, tops: by_id, made: Mutex::default() })
    }

    /// The groups that processes of this PID namespace have made, whether they are still there or not.
    pub(super) fn made(&self) -> BTreeSet<PathBuf> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inbox = vec![0; 64 << 10];
        // An error is the end of the notifications, as a rule that there are none left.
        while let Ok(length) = (&self.group).read(&mut inbox) {
            let entries = entries_by_us(&inbox[..length]).into_iter();
            made.extend(entries.filter_map(|(id, name)| Some(self.tops.get(&id)?.join(name))));
        }
        made.clone()
    }
}

/// The entries that processes of this PID namespace have made: the id of the file system, and the name.
fn entries_by_us(bytes: &[u8]) -> Vec<(u64, PathBuf)> {
    notifications(bytes).filter(|event| event.pid != 0).filter_map(entry).collect()
}

fn entry(event: Notification) -> Option<(u64, PathBuf)> {
    let record = event.record(INFO_TYPE_DFID_NAME)?;
    let id = u64::from_ne_bytes(array(record, BEFORE_ID)?);
    let handle = u32::from_ne_bytes(array(record, 12)?) as usize;
    let text = record.get(BEFORE_HANDLE.checked_add(handle)?..)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    Some((id, PathBuf::from(OsString::from_vec(text[..end].to_vec()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: usize = 24;

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
        let id = u64::from_ne_bytes([7; 8]);
        assert_eq!(entries_by_us(&all), ["ours", "mine"].map(|name| (id, PathBuf::from(name))));
        let cut_off = &all[..all.len() - 6];
        assert_eq!(entries_by_us(cut_off), [(id, PathBuf::from("ours"))]);
    }
}
