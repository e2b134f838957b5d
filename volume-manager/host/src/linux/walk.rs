//! Walks a tree whose content may be hostile: by descriptors instead of paths, never through a link, with a
//! bounded number of open directories and without recursion. Touches nothing itself.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Action, HostError, Result};

pub(super) mod own;
pub(super) mod remove;
pub(super) mod usage;

/// An entry of the tree.
pub(super) struct Entry<'a> {
    /// The directory that contains it.
    pub(super) dir: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    /// As the directory lists it.
    pub(super) kind: FileType,
    /// The full path, for error texts.
    pub(super) path: &'a PathBuf,
}

/// The work at each entry. Children come before their directory.
pub(super) trait Visit {
    /// Called on the way down. Returns a descriptor if the entry is a directory to walk as well.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Option<OwnedFd>>;

    /// Called for a directory after all its entries.
    fn leave(&mut self, entry: &Entry<'_>, dir: BorrowedFd<'_>) -> Result<()>;
}

const OPENED: &str = "a level is reopened before it is used";

/// Limit of directories that are open at once.
const OPEN_AT_MOST: usize = 128;

/// Visits everything below `root`, but not `root` itself.
pub(super) fn walk(root: OwnedFd, path: &mut PathBuf, visit: &mut impl Visit) -> Result<()> {
    let mut levels = vec![Level::read(root, CString::default(), path)?];
    while let Some(level) = levels.last_mut() {
        let Level { dir, names, .. } = level;
        let opened = dir.as_ref().map(AsFd::as_fd);
        if let Some((kind, name)) = names.next() {
            path.push(OsStr::from_bytes(name.to_bytes()));
            let entry = Entry { dir: opened.expect(OPENED), name, kind, path };
            if let Some(below) = visit.entry(&entry)? {
                let name = name.to_owned();
                levels.push(Level::read(below, name, path)?);
                if let Some(far) = levels.len().checked_sub(OPEN_AT_MOST + 1) {
                    levels[far].dir = None;
                }
            } else {
                path.pop();
            }
        } else {
            let done = levels.pop().expect("the loop has just seen it");
            if let Some(parent) = levels.last_mut() {
                parent.reopen(&done, path)?;
                let (dir, kind) = (parent.dir(), FileType::Directory);
                visit.leave(&Entry { dir, name: &done.name, kind, path }, done.dir())?;
                path.pop();
            }
        }
    }
    Ok(())
}

/// Opens a directory for a walk: never through a link, and on another file system only if `cross`.
pub(super) fn enter(dir: BorrowedFd<'_>, name: &CStr, cross: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if cross {
        return rustix::fs::openat(dir, name, flags, Mode::empty());
    }
    loop {
        match rustix::fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

/// A directory between the root and the current entry.
struct Level {
    /// `None` while the walk is more than [`OPEN_AT_MOST`] levels below.
    dir: Option<OwnedFd>,
    /// Device and inode. `..` of a child must have them when the directory is reopened.
    id: (u64, u64),
    /// The name in the level above.
    name: CString,
    names: Names,
}

impl Level {
    fn read(dir: OwnedFd, name: CString, path: &Path) -> Result<Self> {
        let failed = |error| HostError::os(Action::ReadDir, path, error);
        let stat = rustix::fs::fstat(&dir).map_err(failed)?;
        let names = Names::read(dir.as_fd()).map_err(failed)?;
        Ok(Self { dir: Some(dir), id: (stat.st_dev, stat.st_ino), name, names })
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().expect(OPENED).as_fd()
    }

    /// Reopens this level through `..` of `child`. ESTALE if the child was moved meanwhile.
    fn reopen(&mut self, child: &Self, path: &Path) -> Result<()> {
        if self.dir.is_some() {
            return Ok(());
        }
        let failed = |error| HostError::os(Action::ReadDir, path, error);
        let dir = enter(child.dir(), c"..", true).map_err(failed)?;
        let stat = rustix::fs::fstat(&dir).map_err(failed)?;
        if (stat.st_dev, stat.st_ino) != self.id {
            return Err(failed(Errno::STALE));
        }
        self.dir = Some(dir);
        Ok(())
    }
}

/// The names of a directory in one buffer: kind, name, zero; kind, name, zero; …
struct Names {
    packed: Vec<u8>,
    next: usize,
}

impl Names {
    fn read(dir: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        let mut packed = Vec::new();
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // The directory was removed, and only this descriptor or a bind still shows it: it is empty.
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error),
            };
            let name = entry.file_name();
            if name != c"." && name != c".." {
                packed.push(pack(entry.file_type()));
                packed.extend_from_slice(name.to_bytes_with_nul());
            }
        }
        Ok(Self { packed, next: 0 })
    }

    fn next(&mut self) -> Option<(FileType, &CStr)> {
        let (kind, rest) = self.packed.get(self.next..)?.split_first()?;
        let name = CStr::from_bytes_until_nul(rest).ok()?;
        self.next += 1 + name.count_bytes() + 1;
        Some((unpack(*kind), name))
    }
}

/// Keeps of a kind only what a walk needs: a directory, a link, unknown, or any other file.
fn pack(kind: FileType) -> u8 {
    match kind {
        FileType::Directory => b'd',
        FileType::Symlink => b'l',
        FileType::Unknown => b'?',
        _ => b'f',
    }
}

fn unpack(kind: u8) -> FileType {
    match kind {
        b'd' => FileType::Directory,
        b'l' => FileType::Symlink,
        b'?' => FileType::Unknown,
        _ => FileType::RegularFile,
    }
}
