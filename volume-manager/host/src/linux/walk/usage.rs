//! Measures a tree. Touches nothing.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Stat};
use rustix::io::Errno;

use super::{Entry, Visit, enter, walk};
use crate::error::{Action, HostError, Result};
use crate::file::Usage;

/// Counts `path` and everything below it on its file system.
pub(in crate::linux) fn disk_usage(path: &Path) -> Result<Usage> {
    let failed = |error| HostError::os(Action::Measure, path, error);
    let stat = rustix::fs::lstat(path).map_err(failed)?;
    let mut count = Count { usage: Usage::default(), seen: BTreeSet::new() };
    count.add(&stat);
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let bytes = path.as_os_str().as_encoded_bytes();
        let name = CString::new(bytes).map_err(|_| failed(Errno::INVAL))?;
        let root = enter(CWD, &name, true).map_err(failed)?;
        walk(root, &mut path.to_owned(), &mut count)?;
    }
    Ok(count.usage)
}

struct Count {
    usage: Usage,
    /// Inodes of files with several names. The numbers suffice, since the walk stays on one file system.
    seen: BTreeSet<u64>,
}

impl Count {
    fn add(&mut self, stat: &Stat) {
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_dir || stat.st_nlink < 2 || self.seen.insert(stat.st_ino) {
            self.usage.inodes += 1;
            self.usage.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
    }
}

impl Visit for Count {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Option<OwnedFd>> {
        let failed = |error| HostError::os(Action::Measure, entry.path, error);
        let stat = match rustix::fs::statat(entry.dir, entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // A pod may remove files while they are counted.
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            self.add(&stat);
            return Ok(None);
        }
        match enter(entry.dir, entry.name, false) {
            Ok(dir) => {
                self.add(&stat);
                Ok(Some(dir))
            }
            Err(Errno::XDEV | Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn leave(&mut self, _: &Entry<'_>, _: BorrowedFd<'_>) -> Result<()> {
        Ok(())
    }
}
