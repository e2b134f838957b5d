//! Directories, files and links by their paths. Touches the file system.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::fence::{Fence, Place};
use crate::effect::Effect;
use crate::error::{Action, HostError, Result};
use crate::file::{DirEntry, FileKind, FsStats, LARGEST, Metadata};
use crate::mount_table::DeviceNumber;

/// Makes missing directories from the top down.
pub(super) fn make_dir_all(fence: &Fence, path: &Path, mode: u32) -> Result<()> {
    match make_dir(path, fence.place(path), mode) {
        Err(error) if error.is_exists() => {
            // Success if it is a directory or a link to one.
            let there = metadata(path)?;
            let not_a_directory = || HostError::os(Action::MakeDir, path, rustix::io::Errno::NOTDIR);
            if there.is_dir() { Ok(()) } else { Err(not_a_directory()) }
        }
        Err(error) if error.is_not_found() => match path.parent() {
            Some(parent) => {
                make_dir_all(fence, parent, mode)?;
                // Another process may have made it in the meantime.
                make_dir(path, fence.place(path), mode)
                    .or_else(|error| if error.is_exists() { Ok(()) } else { Err(error) })
            }
            None => Err(error),
        },
        other => other,
    }
}

pub(super) fn make_dir(path: &Path, place: Result<Place, Errno>, mode: u32) -> Result<()> {
    place
        .and_then(|place| rustix::fs::mkdirat(place.directory(), &place.name, permissions(mode)))
        .map_err(|error| HostError::os(Action::MakeDir, path, error))?;
    Effect::new("mkdir", path).announce();
    Ok(())
}

/// As [`make_dir_all`], where only directories of the node itself are on the way. `None` if they are not.
pub(super) fn make_own_dir_all(fence: &Fence, path: &Path, mode: u32) -> Option<Result<()>> {
    let made =
        fence.own_descent(path)?.make(permissions(mode), |made| Effect::new("mkdir", made).announce())?;
    Some(made.map_err(|error| HostError::os(Action::MakeDir, path, error)))
}

pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_bits_retain(mode & 0o7777)
}

pub(super) fn remove_dir(path: &Path, place: Result<Place, Errno>) -> Result<()> {
    place
        .and_then(|place| rustix::fs::unlinkat(place.directory(), &place.name, AtFlags::REMOVEDIR))
        .map_err(|error| HostError::os(Action::RemoveDir, path, error))?;
    Effect::new("rmdir", path).announce();
    Ok(())
}

pub(super) fn remove_file(path: &Path, place: Result<Place, Errno>) -> Result<()> {
    let remove = |place: Place| {
        let (directory, name) = (place.directory(), &place.name);
        // No server of a volume is asked, even if a mount is there: that it is none is what unlinking says.
        let is_link = rustix::fs::readlinkat_raw(directory, name, &mut [0_u8; 1][..]).is_ok();
        rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        Ok(is_link)
    };
    let was_link = place.and_then(remove).map_err(|error| HostError::os(Action::RemoveFile, path, error))?;
    Effect::new(if was_link { "unlink" } else { "remove" }, path).announce();
    Ok(())
}

/// How a directory is opened to list it.
pub(super) const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(super) fn read_dir(path: &Path, opened: Result<OwnedFd, Errno>) -> Result<Vec<DirEntry>> {
    let failed = |error| HostError::os(Action::ReadDir, path, error);
    let dir = opened.map_err(failed)?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::new(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            // The kind from the directory itself. std would stat an entry of unknown kind, which may hang.
            entries.push(DirEntry { name: name.to_owned(), kind: listed_kind(entry.file_type()) });
        }
    }
    entries.sort();
    Ok(entries)
}

pub(super) fn listed_kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Directory => FileKind::Directory,
        FileType::RegularFile => FileKind::File,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::Socket => FileKind::Socket,
        FileType::Fifo => FileKind::Fifo,
        FileType::Unknown => FileKind::Unknown,
    }
}

/// How a file is opened to read it.
pub(super) const READ: OFlags = OFlags::RDONLY.union(NO_WAITING).union(OFlags::CLOEXEC);

/// Without it, opening a pipe waits for its other end.
const NO_WAITING: OFlags = OFlags::NONBLOCK;

pub(super) fn read_file(path: &Path, opened: Result<OwnedFd, Errno>) -> Result<Vec<u8>> {
    let read = || {
        let (file, length) = regular(opened?)?;
        let mut bytes = Vec::with_capacity(length.min(LARGEST) as usize);
        (&file).take(length.min(LARGEST + 1)).read_to_end(&mut bytes)?;
        // A file of the kernel's own has more, or less, than its length says.
        if bytes.is_empty() || (bytes.len() as u64) < length {
            file.take(LARGEST + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
        }
        if bytes.len() as u64 > LARGEST { Err(Errno::FBIG.into()) } else { Ok(bytes) }
    };
    read().map_err(|error: io::Error| HostError::os(Action::Read, path, error))
}

pub(super) fn read_end(path: &Path, most: u64) -> Result<Vec<u8>> {
    let read = || {
        let (mut file, length) = regular(open(path, READ)?)?;
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        // A bound, since the file may still grow.
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error: io::Error| HostError::os(Action::Read, path, error))
}

/// Opens what is at `path`, following links.
pub(super) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags, Mode::empty())
}

/// The file and its length. Refuses pipes and devices: they could block the reader or writer, or never end.
fn regular(opened: OwnedFd) -> Result<(File, u64), Errno> {
    let stat = rustix::fs::fstat(&opened)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((opened.into(), stat.st_size.cast_unsigned())),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::NXIO),
    }
}

/// How a file is opened to write it.
pub(super) const WRITE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::NOFOLLOW).union(NO_WAITING);

pub(super) fn write_file(path: &Path, opened: Result<OwnedFd, Errno>, bytes: &[u8]) -> Result<()> {
    let write = || {
        let (mut file, length) = regular(opened?)?;
        if length > 0 {
            file.set_len(0)?;
        }
        file.write_all(bytes)
    };
    write().map_err(|error: io::Error| HostError::os(Action::Write, path, error))?;
    Effect::new("write", path).announce();
    Ok(())
}

pub(super) fn create_file(path: &Path, place: Result<Place, Errno>, mode: u32) -> Result<()> {
    place
        .and_then(|place| open_at(&place, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode))
        .map_err(|error| HostError::os(Action::Create, path, error))?;
    Effect::new("write", path).announce();
    Ok(())
}

pub(super) fn open_at(place: &Place, flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(place.directory(), &place.name, flags | OFlags::CLOEXEC, permissions(mode))
}

pub(super) fn symlink(fence: &Fence, target: &Path, link: &Path) -> Result<()> {
    let make = || {
        let place = fence.place(link)?;
        rustix::fs::symlinkat(target, place.directory(), &place.name)
    };
    make().map_err(|error| HostError::pair(Action::Link, target, link, error))?;
    Effect::new("link", link).to(&target.to_string_lossy()).announce();
    Ok(())
}

pub(super) fn read_link(path: &Path) -> Result<PathBuf> {
    fs::read_link(path).map_err(|error| HostError::os(Action::ReadLink, path, error))
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| HostError::pair(Action::Rename, from, to, error))?;
    Effect::new("rename", from).to(&to.to_string_lossy()).announce();
    Ok(())
}

pub(super) fn metadata(path: impl AsRef<Path>) -> Result<Metadata> {
    let stat = fs::metadata(&path).map_err(|error| HostError::os(Action::Stat, &path, error))?;
    Ok(describe(&stat))
}

pub(super) fn symlink_metadata(path: &Path) -> Result<Metadata> {
    let stat = fs::symlink_metadata(path).map_err(|error| HostError::os(Action::Stat, path, error))?;
    Ok(describe(&stat))
}

/// The metadata of what was opened, also if only as a path.
pub(super) fn metadata_of(path: &Path, opened: Result<OwnedFd, Errno>) -> Result<Metadata> {
    let stat = || File::from(opened?).metadata();
    let stat = stat().map_err(|error: io::Error| HostError::os(Action::Stat, path, error))?;
    Ok(describe(&stat))
}

pub(super) fn describe(stat: &fs::Metadata) -> Metadata {
    let device = |number: u64| DeviceNumber::new(rustix::fs::major(number), rustix::fs::minor(number));
    Metadata {
        kind: listed_kind(FileType::from_raw_mode(stat.mode())),
        mode: stat.mode() & 0o7777,
        uid: stat.uid(),
        gid: stat.gid(),
        dev: device(stat.dev()),
        ino: stat.ino(),
        born: stat.created().ok(),
        rdev: device(stat.rdev()),
        nlink: stat.nlink(),
        size: stat.size(),
    }
}

pub(super) fn access(path: &Path) -> Result<()> {
    rustix::fs::accessat(CWD, path, Access::EXISTS, AtFlags::empty())
        .map_err(|error| HostError::os(Action::Access, path, error))
}

pub(super) fn chmod(path: &Path, mode: u32) -> Result<()> {
    rustix::fs::chmod(path, Mode::from_bits_retain(mode & 0o7777))
        .map_err(|error| HostError::os(Action::Chmod, path, error))?;
    Effect::new("chmod", path).to(&format!("{mode:04o}")).announce();
    Ok(())
}

pub(super) fn lchown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    std::os::unix::fs::lchown(path, uid, gid).map_err(|error| HostError::os(Action::Chown, path, error))?;
    let id = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
    Effect::new("chown", path).to(&format!("{}:{}", id(uid), id(gid))).announce();
    Ok(())
}

pub(super) fn canonicalize(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| HostError::os(Action::Resolve, path, error))
}

pub(super) fn statfs(path: &Path) -> Result<FsStats> {
    let failed = |error| HostError::os(Action::StatFs, path, error);
    // Two calls: statvfs has no magic number, statfs no portable flags.
    let magic = rustix::fs::statfs(path).map_err(failed)?.f_type;
    let stats = rustix::fs::statvfs(path).map_err(failed)?;
    Ok(FsStats {
        magic: magic.cast_unsigned(),
        bytes: stats.f_blocks * stats.f_frsize,
        bytes_free: stats.f_bfree * stats.f_frsize,
        bytes_available: stats.f_bavail * stats.f_frsize,
        inodes: stats.f_files,
        inodes_free: stats.f_ffree,
        flags: stats.f_flag.bits(),
    })
}
