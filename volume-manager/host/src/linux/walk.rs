//! Walking a tree whose content may be hostile: by descriptors and not by paths, never through a link, with
//! a bounded number of open directories and no recursion, however deep it is. Touches nothing itself.

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

/// An entry on the way down.
pub(super) struct Entry<'a> {
    /// The directory it is in.
    pub(super) dir: BorrowedFd<'a>,
    /// Its name there.
    pub(super) name: &'a CStr,
    /// What the directory says it is.
    pub(super) kind: FileType,
    /// Its path, for texts.
    pub(super) path: &'a PathBuf,
}

/// What is done on the way. Children come before their directory.
pub(super) trait Visit {
    /// Looks at an entry. A descriptor means that it is a directory to walk as well.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Option<OwnedFd>>;

    /// Looks at a directory whose entries are all done.
    fn leave(&mut self, entry: &Entry<'_>, dir: BorrowedFd<'_>) -> Result<()>;
}

const OPENED: &str = "a level is opened again before it is used";

/// How many directories are open at once.
const OPEN_AT_MOST: usize = 128;

/// Walks what is below `root`; the root itself is the caller's.
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

/// Opens a directory for a walk: never through a link, and onto another file system only if it may.
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

/// A directory on the way from the root to where the walk is.
struct Level {
    /// `None` while the walk is far below.
    dir: Option<OwnedFd>,
    /// Device and inode: what `..` of a child has to be when the directory is opened again.
    id: (u64, u64),
    /// Its name in the level above.
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

    /// Opens this level by the way back from `child`. Somebody may have moved the child meanwhile.
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

/// The names of one directory, in one piece of memory: kind, name, zero; kind, name, zero; …
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
                // The directory was removed since it was opened, or only a bind still shows it: it is empty.
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

/// All that a walk asks of a kind: is it a directory, a link, or must it be looked at.
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
