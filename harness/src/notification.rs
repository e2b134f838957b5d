//! Notification groups of the kernel (fanotify): opening and marking one, and reading what the kernel writes into it.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The bytes of a notification before its records.
const METADATA: usize = 24;
/// The bytes of a record that say its type and its length.
const RECORD: usize = 4;

/// A notification group. What is read from it are [`notifications`].
#[derive(Debug)]
pub(crate) struct Group {
    /// Taken when this is dropped.
    file: Option<File>,
    /// Where its marks are: one of the kernel's `FAN_MARK_…`, and 0 for files.
    place: u32,
}

impl Group {
    /// Opens a group whose reader does not wait.
    pub(crate) fn open(flags: u32, place: u32) -> io::Result<Self> {
        let flags = flags | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: no pointers; the result is checked before it is used as a descriptor.
        let fd = unsafe { libc::fanotify_init(flags, libc::O_RDONLY.cast_unsigned()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { file: Some(file), place })
    }

    /// Has the kernel notify of what the mask says, at a path or, without one, at a descriptor, which is open.
    pub(crate) fn mark(&self, flags: u32, mask: u64, at: RawFd, path: Option<&CStr>) -> io::Result<()> {
        change_marks(self.file(), libc::FAN_MARK_ADD | self.place | flags, mask, at, path)
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("it is taken only when this is dropped")
    }
}

impl Read for &Group {
    fn read(&mut self, inbox: &mut [u8]) -> io::Result<usize> {
        self.file().read(inbox)
    }
}

impl Drop for Group {
    /// Removes the marks. The group is closed later: the kernel takes ten milliseconds to let go of marks and does so by
    /// itself, but a process that closes a group waits for it.
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|(since, _)| since.elapsed() < LETTING_GO);
        // Without success the close waits.
        let _ = change_marks(&file, libc::FAN_MARK_FLUSH | self.place, 0, libc::AT_FDCWD, None);
        retired.push((Instant::now(), file));
    }
}

/// Groups without marks, and since when. The end of the process closes those that are left.
static RETIRED: Mutex<Vec<(Instant, File)>> = Mutex::new(Vec::new());

/// More than the kernel takes to let go of marks.
const LETTING_GO: Duration = Duration::from_millis(100);

fn change_marks(group: &File, flags: u32, mask: u64, at: RawFd, path: Option<&CStr>) -> io::Result<()> {
    let path = path.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the group is open, and the path is null or a string that ends with zero and outlives the call.
    let result = unsafe { libc::fanotify_mark(group.as_raw_fd(), flags, mask, at, path) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A notification as it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification<'a> {
    pub(crate) mask: u64,
    /// The process that did it, or 0 for one outside of this PID namespace.
    pub(crate) pid: i32,
    records: &'a [u8],
}

impl<'a> Notification<'a> {
    /// The first record of a type, from its own first byte.
    pub(crate) fn record(self, kind: u8) -> Option<&'a [u8]> {
        let mut records = self.records;
        while records.len() >= RECORD {
            let length = usize::from(u16::from_ne_bytes([records[2], records[3]])).max(RECORD);
            let record = records.get(..length)?;
            if record[0] == kind {
                return Some(record);
            }
            records = &records[length..];
        }
        None
    }
}

/// Splits what was read into notifications.
pub(crate) fn notifications(mut bytes: &[u8]) -> impl Iterator<Item = Notification<'_>> {
    std::iter::from_fn(move || {
        let mask = u64::from_ne_bytes(array(bytes, 8)?);
        let pid = i32::from_ne_bytes(array(bytes, 20)?);
        let length = u32::from_ne_bytes(array(bytes, 0)?) as usize;
        let (event, rest) = bytes.split_at(length.clamp(METADATA, bytes.len()));
        bytes = rest;
        Some(Notification { mask, pid, records: &event[METADATA..] })
    })
}

/// The bytes at an offset, if there are so many.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
