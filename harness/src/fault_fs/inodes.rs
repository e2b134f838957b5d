//! The files that the kernel knows of: each by its inode, held open without access, with its present path.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};

/// The table of inodes.
pub(super) struct Inodes(Mutex<HashMap<u64, Node>>);

struct Node {
    file: Arc<OwnedFd>,
    path: PathBuf,
    lookups: u64,
}

impl Inodes {
    pub(super) fn new(root: &Path) -> io::Result<Inodes> {
        let file = Arc::new(rustix::fs::open(root, anchor(), Mode::empty())?);
        let node = Node { file, path: PathBuf::new(), lookups: 1 };
        Ok(Inodes(Mutex::new(HashMap::from([(INodeNo::ROOT.0, node)]))))
    }

    /// The file and its path below the root.
    pub(super) fn get(&self, inode: INodeNo) -> io::Result<(Arc<OwnedFd>, PathBuf)> {
        let table = self.lock();
        let node = table.get(&inode.0).ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))?;
        Ok((Arc::clone(&node.file), node.path.clone()))
    }

    /// The path of a name in a directory, below the root.
    pub(super) fn path_of(&self, parent: INodeNo, name: &OsStr) -> PathBuf {
        self.get(parent).map(|(_, path)| path.join(name)).unwrap_or_default()
    }

    /// Looks a name up, and counts that the kernel knows it now.
    pub(super) fn enter(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let (dir, path) = self.get(parent)?;
        let file = rustix::fs::openat(&*dir, name, anchor(), Mode::empty())?;
        let attributes = attributes(&rustix::fs::fstat(&file)?);
        let mut table = self.lock();
        let path = path.join(name);
        let known = table.entry(attributes.ino.0);
        let node = known.or_insert_with(|| Node { file: Arc::new(file), path: PathBuf::new(), lookups: 0 });
        node.lookups += 1;
        // The name it was last found by, which after a rename is the new one.
        node.path = path;
        Ok(attributes)
    }

    /// The kernel has forgotten a number of its lookups.
    pub(super) fn forget(&self, inode: INodeNo, count: u64) {
        let mut table = self.lock();
        if let Some(node) = table.get_mut(&inode.0) {
            node.lookups = node.lookups.saturating_sub(count);
            if node.lookups == 0 && inode != INodeNo::ROOT {
                table.remove(&inode.0);
            }
        }
    }

    /// Opens a file for real.
    pub(super) fn open(&self, inode: INodeNo, flags: i32) -> io::Result<File> {
        let (file, _) = self.get(inode)?;
        // The kernel has resolved the offset of an append, and has truncated by a call of its own.
        let plain = flags
            & !(libc::O_ACCMODE
                | libc::O_APPEND
                | libc::O_TRUNC
                | libc::O_CREAT
                | libc::O_EXCL
                | libc::O_DIRECT);
        let (reads, writes) = match flags & libc::O_ACCMODE {
            libc::O_WRONLY => (false, true),
            libc::O_RDWR => (true, true),
            _ => (true, false),
        };
        let mut options = File::options();
        options.read(reads).write(writes).custom_flags(plain);
        options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    pub(super) fn attributes(&self, inode: INodeNo) -> io::Result<FileAttr> {
        let (file, _) = self.get(inode)?;
        let mut found = attributes(&rustix::fs::statat(&*file, "", AtFlags::EMPTY_PATH)?);
        // The root has a number of its own.
        found.ino = inode;
        Ok(found)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refers to a file without opening it.
fn anchor() -> OFlags {
    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn attributes(stat: &Stat) -> FileAttr {
    let time = |seconds: i64, nanos: u64| -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanos as u32)
    };
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        _ => FileType::RegularFile,
    }
}
