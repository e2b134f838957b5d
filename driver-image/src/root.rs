//! The directory that an image is unpacked into. Every path is resolved below it by the kernel, as if it were `/`:
//! neither `..` nor a link leads out of it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, chmodat, chownat, fchmod,
    futimens, linkat, mkdirat, mknodat, openat, openat2, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

/// Mode, owner and time of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) modified: u64,
}

#[derive(Debug)]
pub(crate) struct Root {
    top: OwnedFd,
    is_superuser: bool,
}

impl Root {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let top = File::open(directory)?.into();
        Ok(Self { top, is_superuser: rustix::process::geteuid().is_root() })
    }

    /// The directory of a path in the image, made if it is missing, and the last part of the path.
    fn parent<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Opens a directory, which is made if it is missing.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let found = self.opened(path);
        if !matches!(found, Err(Errno::NOENT)) {
            return Ok(found?);
        }
        let (parent, name) = self.parent(path)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            // A link that leads nowhere.
            Err(Errno::EXIST) => {
                unlinkat(&parent, name, AtFlags::empty())?;
                mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
            }
            made => made?,
        }
        Ok(self.opened(path)?)
    }

    fn opened(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.top, path, flags, Mode::empty(), resolve)
    }

    pub(crate) fn make_directory(&self, path: &Path, attributes: Attributes) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(fchmod(&self.top, self.mode_of_directory(attributes.mode))?);
        }
        let (parent, name) = self.parent(path)?;
        if kind(&parent, name)? != Some(FileType::Directory) {
            clear(&parent, name)?;
            mkdirat(&parent, name, Mode::from_raw_mode(0o700))?;
        }
        self.give(&parent, name, attributes)?;
        Ok(chmodat(&parent, name, self.mode_of_directory(attributes.mode), AtFlags::empty())?)
    }

    pub(crate) fn write_file(
        &self,
        path: &Path,
        attributes: Attributes,
        size: u64,
        content: &mut dyn io::Read,
    ) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        clear(&parent, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&parent, name, flags, Mode::from_raw_mode(0o600))?);
        if io::copy(content, &mut file)? != size {
            // The archive ends in the middle of the file.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.give(&parent, name, attributes)?;
        // After the owner: a change of that takes the set-user-id bit away.
        fchmod(&file, Mode::from_raw_mode(attributes.mode & 0o7777))?;
        // Compiled files of interpreters are only used if their source has the right time.
        let seconds = i64::try_from(attributes.modified).unwrap_or(0);
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        Ok(futimens(&file, &Timestamps { last_access: time, last_modification: time })?)
    }

    pub(crate) fn make_link(&self, path: &Path, target: &Path, attributes: Attributes) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        clear(&parent, name)?;
        symlinkat(target, &parent, name)?;
        self.give(&parent, name, attributes)
    }

    /// Makes another name of a file that is there.
    pub(crate) fn make_name(&self, path: &Path, of: &Path) -> io::Result<()> {
        let (from, old) = self.parent(of)?;
        if kind(&from, old)?.is_none() {
            return Err(Errno::NOENT.into());
        }
        let (parent, name) = self.parent(path)?;
        if path != of {
            clear(&parent, name)?;
            linkat(&from, old, &parent, name, AtFlags::empty())?;
        }
        Ok(())
    }

    pub(crate) fn make_pipe(&self, path: &Path, attributes: Attributes) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        clear(&parent, name)?;
        Ok(mknodat(&parent, name, FileType::Fifo, Mode::from_raw_mode(attributes.mode & 0o777), 0)?)
    }

    /// Removes what a lower layer has there, if anything.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        clear(&parent, name)
    }

    /// The paths of a directory's entries, and whether each is a directory itself.
    pub(crate) fn entries(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let directory = match self.opened(path) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(vec![]),
            opened => opened?,
        };
        let entries = fs::read_dir(by_number(&directory))?;
        entries
            .map(|entry| {
                entry.and_then(|entry| Ok((path.join(entry.file_name()), entry.file_type()?.is_dir())))
            })
            .collect()
    }

    /// Sets the owner. Only the superuser can, and in a user namespace only to owners that it knows.
    fn give(&self, parent: &OwnedFd, name: &OsStr, attributes: Attributes) -> io::Result<()> {
        if !self.is_superuser {
            return Ok(());
        }
        let Attributes { user, group, .. } = attributes;
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        match chownat(parent, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::INVAL | Errno::PERM) => Ok(()),
            given => Ok(given?),
        }
    }

    /// Without the superuser's rights, a directory that its owner may not write to could neither be filled nor removed.
    fn mode_of_directory(&self, mode: u32) -> Mode {
        Mode::from_raw_mode(mode & 0o7777 | if self.is_superuser { 0 } else { 0o700 })
    }
}

fn kind(parent: &OwnedFd, name: &OsStr) -> io::Result<Option<FileType>> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes an entry of a directory with all that is in it.
fn clear(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match kind(parent, name)? {
        None => Ok(()),
        Some(FileType::Directory) => fs::remove_dir_all(by_number(parent).join(name)),
        Some(_) => Ok(unlinkat(parent, name, AtFlags::empty())?),
    }
}

fn by_number(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()))
}
