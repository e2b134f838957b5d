//! What is in files and directories: changes in the order in which they are logged, ranges, and names.

use std::ffi::OsStr;
use std::fs::File;
use std::io;

use fuser::INodeNo;
use rustix::fs::{FallocateFlags, Mode, SeekFrom};

use super::super::inodes::kind;
use super::super::write_log::Record;
use super::{Mirror, locked};

impl Mirror {
    /// Changes a file, and writes the change down if the file is one whose changes are.
    ///
    /// Both under one lock, so that the log has them in the order in which they were done.
    pub(super) fn change(
        &self,
        inode: INodeNo,
        record: &Record<'_>,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut log = locked(&self.shared.log);
        match &mut *log {
            Some(log) if log.inode == inode => {
                change()?;
                log.writer.write(record)
            }
            _ => {
                drop(log);
                change()
            }
        }
    }
}

/// Allocates, or makes a range read as zeroes; the latter also where the backing cannot do it in place.
pub(super) fn allocate(file: &File, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, flags, offset, length) {
        Err(rustix::io::Errno::OPNOTSUPP) if flags.contains(FallocateFlags::ZERO_RANGE) => {
            // tmpfs punches holes and zeroes no ranges; both read the same.
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(file, hole, offset, length)?)
        }
        done => Ok(done?),
    }
}

/// The offset of the next data or the next hole.
pub(super) fn seek(file: &File, offset: i64, whence: i32) -> io::Result<i64> {
    let from = u64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let from = match whence {
        libc::SEEK_DATA => SeekFrom::Data(from),
        libc::SEEK_HOLE => SeekFrom::Hole(from),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    i64::try_from(rustix::fs::seek(file, from)?).map_err(io::Error::other)
}

pub(super) struct Listed {
    pub(super) inode: INodeNo,
    pub(super) kind: fuser::FileType,
    pub(super) name: std::ffi::OsString,
}

pub(super) fn list(dir: &std::os::fd::OwnedFd) -> io::Result<Vec<Listed>> {
    use std::os::unix::ffi::OsStrExt;
    let opened = rustix::fs::openat(
        dir,
        ".",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::new(opened)? {
        let entry = entry?;
        found.push(Listed {
            inode: INodeNo(entry.ino()),
            kind: kind(entry.file_type()),
            name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
        });
    }
    Ok(found)
}
