//! The files that the kernel has looked up. Each is held open with `O_PATH`, by its inode number.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use nix::libc;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};

/// Open files by inode number, each with the kernel's lookup count: FORGET lowers it, and at zero the file is closed.
pub(super) struct Files(Mutex<HashMap<u64, (Arc<OwnedFd>, u64)>>);

impl Files {
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(root, path_flags(), Mode::empty())?;
        Ok(Self(Mutex::new(HashMap::from([(INodeNo::ROOT.0, (Arc::new(root), 1))]))))
    }

    pub(super) fn get(&self, inode: INodeNo) -> io::Result<Arc<OwnedFd>> {
        let table = self.lock();
        let (file, _) = table.get(&inode.0).ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))?;
        Ok(Arc::clone(file))
    }

    /// Answers a LOOKUP: opens the file of this name and raises its lookup count.
    pub(super) fn lookup(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let file = rustix::fs::openat(self.get(parent)?, name, path_flags(), Mode::empty())?;
        let found = attributes(&rustix::fs::fstat(&file)?);
        self.lock().entry(found.ino.0).or_insert_with(|| (Arc::new(file), 0)).1 += 1;
        Ok(found)
    }

    pub(super) fn forget(&self, inode: INodeNo, count: u64) {
        let mut table = self.lock();
        if let Some((_, lookups)) = table.get_mut(&inode.0) {
            *lookups = lookups.saturating_sub(count);
            if *lookups == 0 && inode != INodeNo::ROOT {
                table.remove(&inode.0);
            }
        }
    }

    /// Opens a file for reading, or for reading and writing: the descriptor in the table allows neither.
    pub(super) fn open(&self, inode: INodeNo, flags: i32) -> io::Result<File> {
        let file = self.get(inode)?;
        // Always for reading: the kernel reads a page before it writes a part of it. Never with `O_APPEND`: the kernel
        // sends the offset of each write.
        let access = flags & libc::O_ACCMODE;
        File::options()
            .read(true)
            .write(access != libc::O_RDONLY)
            .custom_flags(flags & libc::O_SYNC)
            .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    pub(super) fn attributes(&self, inode: INodeNo) -> io::Result<FileAttr> {
        let found = rustix::fs::statat(self.get(inode)?, "", AtFlags::EMPTY_PATH)?;
        // The kernel knows the root by the number 1, not by the number of its directory.
        Ok(FileAttr { ino: inode, ..attributes(&found) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Arc<OwnedFd>, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path_flags() -> OFlags {
    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn attributes(stat: &Stat) -> FileAttr {
    let time = |seconds: i64, nanos: u64| -> SystemTime {
        let since = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
        UNIX_EPOCH + since
    };
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
        blksize: 4096,
        flags: 0,
    }
}

pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Found;
    match kind {
        Found::Directory => FileType::Directory,
        Found::Symlink => FileType::Symlink,
        Found::BlockDevice => FileType::BlockDevice,
        Found::CharacterDevice => FileType::CharDevice,
        Found::Fifo => FileType::NamedPipe,
        Found::Socket => FileType::Socket,
        _ => FileType::RegularFile,
    }
}
