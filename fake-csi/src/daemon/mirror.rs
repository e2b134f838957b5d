//! The file system: each call of the kernel is done to the file behind it. The harness has another one for disks that fail on
//! order; they share no code, as the driver shares none with what judges it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nix::libc;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, Timespec, Timestamps};

use super::files::{Files, kind};

/// The kernel remembers nothing: another daemon may show the same directory on another node.
const TTL: Duration = Duration::ZERO;

pub(super) struct Mirror {
    files: Files,
    open: Mutex<HashMap<u64, Arc<File>>>,
    last: AtomicU64,
}

impl Mirror {
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        Ok(Self { files: Files::new(root)?, open: Mutex::default(), last: AtomicU64::default() })
    }

    fn keep(&self, file: File) -> FileHandle {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(file));
        FileHandle(number)
    }

    fn handle(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.0).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Gives a new file to the caller, and its group unless the directory has given its own.
    fn owned(&self, request: &Request, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let inherits = self.files.attributes(parent)?.perm & 0o2000 != 0;
        let found = self.files.lookup(parent, name)?;
        let group = (!inherits).then(|| rustix::fs::Gid::from_raw(request.gid()));
        let owner = Some(rustix::fs::Uid::from_raw(request.uid()));
        rustix::fs::chownat(self.files.get(found.ino)?, "", owner, group, AtFlags::EMPTY_PATH)?;
        self.files.attributes(found.ino)
    }

    /// Makes a file in a directory by a call of the kernel.
    fn make(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        reply: ReplyEntry,
        call: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) {
        let made = self.files.get(parent).and_then(|parent| Ok(call(&parent)?));
        entry(made.and_then(|()| self.owned(request, parent, name)), reply);
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, flags: AtFlags, reply: ReplyEmpty) {
        let removed =
            self.files.get(parent).and_then(|parent| Ok(rustix::fs::unlinkat(parent, name, flags)?));
        done(removed, reply);
    }
}

fn done(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn entry(result: io::Result<FileAttr>, reply: ReplyEntry) {
    match result {
        Ok(found) => reply.entry(&TTL, &found, Generation(0)),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn attributes(result: io::Result<FileAttr>, reply: ReplyAttr) {
    match result {
        Ok(found) => reply.attr(&TTL, &found),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn data(result: io::Result<Vec<u8>>, reply: ReplyData) {
    match result {
        Ok(found) => reply.data(&found),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn time(wanted: Option<TimeOrNow>) -> Timespec {
    let special = |nanos: i64| Timespec { tv_sec: 0, tv_nsec: nanos };
    match wanted {
        None => special(libc::UTIME_OMIT),
        Some(TimeOrNow::Now) => special(libc::UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            Timespec { tv_sec: seconds, tv_nsec: since.subsec_nanos().into() }
        }
    }
}

impl Filesystem for Mirror {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.files.lookup(parent, name), reply);
    }

    fn forget(&self, _request: &Request, inode: INodeNo, count: u64) {
        self.files.forget(inode, count);
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        attributes(self.files.attributes(inode), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || -> io::Result<FileAttr> {
            let file = self.files.get(inode)?;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            match (size, handle) {
                (Some(size), Some(handle)) => self.handle(handle)?.set_len(size)?,
                (Some(size), None) => self.files.open(inode, libc::O_WRONLY)?.set_len(size)?,
                (None, _) => {}
            }
            if uid.is_some() || gid.is_some() {
                let (uid, gid) = (uid.map(rustix::fs::Uid::from_raw), gid.map(rustix::fs::Gid::from_raw));
                rustix::fs::chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)?;
            }
            // After the owner, whose change takes bits away.
            if let Some(mode) = mode {
                rustix::fs::chmod(&path, Mode::from_raw_mode(mode & 0o7777))?;
            }
            if atime.is_some() || mtime.is_some() {
                let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
                rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty())?;
            }
            self.files.attributes(inode)
        };
        attributes(set(), reply);
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        let target = self.files.get(inode).and_then(|file| Ok(rustix::fs::readlinkat(file, "", Vec::new())?));
        data(target.map(|target| target.into_bytes()), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let mode = Mode::from_raw_mode(mode & !umask & 0o7777);
        self.make(request, (parent, name), reply, |directory| {
            rustix::fs::mknodat(directory, name, kind, mode, u64::from(rdev))
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = Mode::from_raw_mode(mode & !umask & 0o7777);
        self.make(request, (parent, name), reply, |directory| rustix::fs::mkdirat(directory, name, mode));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.make(request, (parent, name), reply, |directory| rustix::fs::symlinkat(target, directory, name));
    }

    fn link(&self, _request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let both = self.files.get(inode).and_then(|file| {
            Ok(rustix::fs::linkat(file, "", self.files.get(parent)?, name, AtFlags::EMPTY_PATH)?)
        });
        entry(both.and_then(|()| self.files.lookup(parent, name)), reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, AtFlags::empty(), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, AtFlags::REMOVEDIR, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let renamed = self.files.get(parent).and_then(|from| {
            Ok(rustix::fs::renameat_with(from, name, self.files.get(new_parent)?, new_name, flags)?)
        });
        done(renamed, reply);
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.files.open(inode, flags.0) {
            Ok(file) => reply.opened(self.keep(file), FopenFlags::empty()),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = || {
            let made = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(mode & !umask & 0o7777);
            let is_new = match rustix::fs::openat(self.files.get(parent)?, name, made, mode) {
                Err(rustix::io::Errno::EXIST) if flags & libc::O_EXCL == 0 => false,
                made => made.map(|_| true)?,
            };
            let found = match is_new {
                true => self.owned(request, parent, name)?,
                false => self.files.lookup(parent, name)?,
            };
            io::Result::Ok((self.files.open(found.ino, flags)?, found))
        };
        match created() {
            Ok((file, found)) => {
                reply.created(&TTL, &found, Generation(0), self.keep(file), FopenFlags::empty());
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.handle(handle).and_then(|file| {
            let (mut bytes, mut filled) = (vec![0; size as usize], 0);
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            bytes.truncate(filled);
            Ok(bytes)
        });
        data(read, reply);
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.handle(handle).and_then(|file| file.write_all_at(bytes, offset)) {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        done(self.handle(handle).and_then(|file| file.sync_all()), reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        done(self.files.open(inode, libc::O_RDONLY).and_then(|directory| directory.sync_all()), reply);
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let list = || -> io::Result<Vec<rustix::fs::DirEntry>> {
            let directory = rustix::fs::Dir::new(self.files.open(inode, libc::O_RDONLY)?)?;
            Ok(directory.collect::<Result<_, _>>()?)
        };
        let entries = match list() {
            Ok(entries) => entries,
            Err(error) => return reply.error(Errno::from(error)),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, entry) in entries.iter().enumerate().skip(from) {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if reply.add(INodeNo(entry.ino()), index as u64 + 1, kind(entry.file_type()), name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let root = self.files.get(INodeNo::ROOT);
        match root.and_then(|root| Ok(rustix::fs::fstatvfs(root)?)) {
            Ok(found) => reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                u32::try_from(found.f_bsize).unwrap_or(4096),
                u32::try_from(found.f_namemax).unwrap_or(255),
                u32::try_from(found.f_frsize).unwrap_or(4096),
            ),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let file = self.handle(handle);
        done(file.and_then(|file| Ok(rustix::fs::fallocate(&*file, flags, offset, length)?)), reply);
    }
}
