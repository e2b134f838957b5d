//! The mirror: every call of the kernel, put to the rules, and done to the backing file if they let it pass.

mod attributes;
mod contents;
mod gate;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags, Mode, RenameFlags as Rename};

use super::held::Held;
use super::inodes::Inodes;
use super::rule::{Fate, Operation, RuleBook};
use super::write_log::{LogWriter, Record};
use attributes::{Wanted, WantedTime};
use contents::{allocate, list, seek};
use gate::answer;

/// Nothing is remembered by the kernel: every look reaches the rules.
const TTL: Duration = Duration::ZERO;

/// The state that the server shares with its control socket.
pub(super) struct Shared {
    pub(super) inodes: Inodes,
    pub(super) rules: Mutex<RuleBook>,
    pub(super) held: Held,
    pub(super) calls: Mutex<BTreeMap<Operation, u64>>,
    pub(super) log: Mutex<Option<Log>>,
}

/// A file whose changes are written down.
pub(super) struct Log {
    pub(super) inode: INodeNo,
    pub(super) writer: LogWriter,
}

/// The file system itself.
pub(super) struct Mirror {
    shared: Arc<Shared>,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    last_handle: AtomicU64,
}

struct Handle {
    inode: INodeNo,
    file: File,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mirror {
    pub(super) fn new(shared: Arc<Shared>) -> Mirror {
        Mirror { shared, handles: Mutex::default(), last_handle: AtomicU64::new(0) }
    }

    fn handle(&self, fh: FileHandle) -> io::Result<Arc<Handle>> {
        locked(&self.handles).get(&fh.0).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn keep(&self, inode: INodeNo, file: File) -> FileHandle {
        let fh = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        locked(&self.handles).insert(fh, Arc::new(Handle { inode, file }));
        FileHandle(fh)
    }
}

impl Filesystem for Mirror {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Files are opened past the page cache, and a driver may still want to map one.
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(reply) = self.admit_name(Operation::Look, parent, name, reply) else { return };
        answer(reply, self.shared.inodes.enter(parent, name), give_entry);
    }

    fn forget(&self, _request: &Request, inode: INodeNo, count: u64) {
        self.shared.inodes.forget(inode, count);
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let Some(reply) = self.admit_inode(Operation::Look, inode, reply) else { return };
        answer(reply, self.shared.inodes.attributes(inode), |reply, found| reply.attr(&TTL, &found));
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
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let operation = if size.is_some() { Operation::Allocate } else { Operation::Change };
        let Some(reply) = self.admit_inode(operation, inode, reply) else { return };
        let wanted = Wanted { mode, uid, gid, atime: WantedTime(atime), mtime: WantedTime(mtime) };
        let resized = size.map_or(Ok(()), |length| self.set_length(inode, fh, length));
        let result = resized
            .and_then(|()| self.set_attributes(inode, &wanted))
            .and_then(|()| self.shared.inodes.attributes(inode));
        answer(reply, result, |reply, found| reply.attr(&TTL, &found));
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        let Some(reply) = self.admit_inode(Operation::Look, inode, reply) else { return };
        let target =
            self.shared.inodes.get(inode).and_then(|(file, _)| {
                rustix::fs::readlinkat(&*file, "", Vec::new()).map_err(io::Error::from)
            });
        answer(reply, target, |reply, target| reply.data(target.as_bytes()));
    }

    fn mknod(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(reply) = self.admit_name(Operation::Create, parent, name, reply) else { return };
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let mode = Mode::from_raw_mode(mode & !umask & 0o7777);
        let made = self
            .shared
            .inodes
            .get(parent)
            .and_then(|(dir, _)| Ok(rustix::fs::mknodat(&*dir, name, kind, mode, rdev.into())?));
        answer(reply, made.and_then(|()| self.shared.inodes.enter(parent, name)), give_entry);
    }

    fn mkdir(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let Some(reply) = self.admit_name(Operation::Create, parent, name, reply) else { return };
        let mode = Mode::from_raw_mode(mode & !umask & 0o7777);
        let made =
            self.shared.inodes.get(parent).and_then(|(dir, _)| Ok(rustix::fs::mkdirat(&*dir, name, mode)?));
        answer(reply, made.and_then(|()| self.shared.inodes.enter(parent, name)), give_entry);
    }

    fn symlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let Some(reply) = self.admit_name(Operation::Create, parent, name, reply) else { return };
        let dir = self.shared.inodes.get(parent);
        let made = dir.and_then(|(dir, _)| Ok(rustix::fs::symlinkat(target, &*dir, name)?));
        answer(reply, made.and_then(|()| self.shared.inodes.enter(parent, name)), give_entry);
    }

    fn link(&self, _request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(reply) = self.admit_name(Operation::Create, parent, name, reply) else { return };
        let both = self.shared.inodes.get(inode).and_then(|(file, _)| {
            let (dir, _) = self.shared.inodes.get(parent)?;
            Ok(rustix::fs::linkat(&*file, "", &*dir, name, AtFlags::EMPTY_PATH)?)
        });
        answer(reply, both.and_then(|()| self.shared.inodes.enter(parent, name)), give_entry);
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
        let Some(reply) = self.admit_name(Operation::Rename, parent, name, reply) else { return };
        let renamed = self.shared.inodes.get(parent).and_then(|(from, _)| {
            let (to, _) = self.shared.inodes.get(new_parent)?;
            let flags = Rename::from_bits_retain(flags.bits());
            Ok(rustix::fs::renameat_with(&*from, name, &*to, new_name, flags)?)
        });
        answer(reply, renamed, |reply, ()| reply.ok());
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some(reply) = self.admit_inode(Operation::Open, inode, reply) else { return };
        answer(reply, self.shared.inodes.open(inode, flags.0), |reply, file| {
            // Past the page cache: a write that the caller has made is a write that the rules have seen.
            reply.opened(self.keep(inode, file), FopenFlags::FOPEN_DIRECT_IO);
        });
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let Some(reply) = self.admit_name(Operation::Create, parent, name, reply) else { return };
        let made = self.shared.inodes.get(parent).and_then(|(dir, _)| {
            let exclusive = flags & libc::O_EXCL;
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC | exclusive;
            let mode = Mode::from_raw_mode(mode & !umask & 0o7777);
            rustix::fs::openat(&*dir, name, rustix::fs::OFlags::from_bits_retain(flags as u32), mode)?;
            let found = self.shared.inodes.enter(parent, name)?;
            Ok((self.shared.inodes.open(found.ino, flags & !libc::O_WRONLY | libc::O_RDWR)?, found))
        });
        answer(reply, made, |reply, (file, found)| {
            let fh = self.keep(found.ino, file);
            reply.created(&TTL, &found, Generation(0), fh, FopenFlags::FOPEN_DIRECT_IO);
        });
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let range = offset..offset + u64::from(size);
        let Some((reply, _)) = self.admit_range(Operation::Read, inode, range, reply) else { return };
        let read = self.handle(fh).and_then(|handle| {
            let mut bytes = vec![0; size as usize];
            let mut filled = 0;
            while filled < bytes.len() {
                match handle.file.read_at(&mut bytes[filled..], offset + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            bytes.truncate(filled);
            Ok(bytes)
        });
        answer(reply, read, |reply, bytes| reply.data(&bytes));
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let range = offset..offset + data.len() as u64;
        let Some((reply, fate)) = self.admit_range(Operation::Write, inode, range, reply) else { return };
        let kept = match fate {
            Fate::Short(bytes) | Fate::Torn(bytes) => &data[..data.len().min(bytes as usize)],
            Fate::Lost => &[],
            _ => data,
        };
        let reported = if matches!(fate, Fate::Short(_)) { kept.len() } else { data.len() };
        let written = self.handle(fh).and_then(|handle| match kept {
            [] => Ok(()),
            kept => self.change(handle.inode, &Record::Write { offset, data: kept.into() }, || {
                handle.file.write_all_at(kept, offset)
            }),
        });
        answer(reply, written, |reply, ()| reply.written(reported as u32));
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // A close, not a flush: nothing becomes safer by it.
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        locked(&self.handles).remove(&fh.0);
        reply.ok();
    }

    fn fsync(&self, _request: &Request, inode: INodeNo, fh: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        let Some(reply) = self.admit_inode(Operation::Sync, inode, reply) else { return };
        let synced = self
            .handle(fh)
            .and_then(|handle| self.change(handle.inode, &Record::Flush, || handle.file.sync_all()));
        answer(reply, synced, |reply, ()| reply.ok());
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let Some(reply) = self.admit_inode(Operation::Sync, inode, reply) else { return };
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        // One look at the directory is many calls; the rules hear of the first.
        if offset == 0 {
            let Some(admitted) = self.admit_inode(Operation::List, inode, reply) else { return };
            reply = admitted;
        }
        let entries = self.shared.inodes.get(inode).and_then(|(dir, _)| list(&dir));
        answer(reply, entries, |mut reply, entries| {
            for (index, entry) in entries.into_iter().enumerate().skip(offset as usize) {
                if reply.add(entry.inode, index as u64 + 1, entry.kind, &entry.name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let found =
            self.shared.inodes.get(INodeNo::ROOT).and_then(|(root, _)| Ok(rustix::fs::fstatvfs(&*root)?));
        match found {
            Ok(fs) => reply.statfs(
                fs.f_blocks,
                fs.f_bfree,
                fs.f_bavail,
                fs.f_files,
                fs.f_ffree,
                fs.f_bsize as u32,
                fs.f_namemax as u32,
                fs.f_frsize as u32,
            ),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // Without this a kernel takes every hole of a file for data, and a driver an empty image for a full one.
        let Some(reply) = self.admit_inode(Operation::Look, inode, reply) else { return };
        let found = self.handle(fh).and_then(|handle| seek(&handle.file, offset, whence));
        answer(reply, found, |reply, found| reply.offset(found));
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let range = offset..offset.saturating_add(length);
        let Some((reply, _)) = self.admit_range(Operation::Allocate, inode, range, reply) else { return };
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        let zeroes = flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        let done = self.handle(fh).and_then(|handle| {
            let allocate = || allocate(&handle.file, flags, offset, length);
            match zeroes {
                true => self.change(handle.inode, &Record::Zero { offset, length }, allocate),
                false => allocate(),
            }
        });
        answer(reply, done, |reply, ()| reply.ok());
    }
}

impl Mirror {
    fn remove(&self, parent: INodeNo, name: &OsStr, flags: AtFlags, reply: ReplyEmpty) {
        let Some(reply) = self.admit_name(Operation::Remove, parent, name, reply) else { return };
        let dir = self.shared.inodes.get(parent);
        let removed = dir.and_then(|(dir, _)| Ok(rustix::fs::unlinkat(&*dir, name, flags)?));
        answer(reply, removed, |reply, ()| reply.ok());
    }
}

fn give_entry(reply: ReplyEntry, found: fuser::FileAttr) {
    reply.entry(&TTL, &found, Generation(0));
}
