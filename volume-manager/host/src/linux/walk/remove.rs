//! Removes a tree, or as much of it as is permitted. Touches the file system.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::{Entry, Visit, enter, walk};
use crate::door::Removal;
use crate::effect::Effect;
use crate::error::{Action, HostError, Result};
use crate::linux::fence::{Fence, Place};

/// Removes `path` and everything below it. An entry that cannot be removed does not stop the rest; the first
/// such entry is the error.
pub(in crate::linux) fn remove_tree(fence: &Fence, path: &Path, removal: Removal) -> Result<()> {
    let failed = |error| HostError::os(Action::RemoveTree, path, error);
    let place = match fence.place(path) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        place => place.map_err(failed)?,
    };
    let (directory, name) = (place.directory(), &place.name);
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        if removal != Removal::Everything
            && crate::linux::mount_point::is_root_of_mount(path).map_err(failed)?
        {
            return Err(HostError::IsMountPoint { path: path.to_owned() });
        }
        remove_dir(&place, path, removal)?;
    } else if removal == Removal::DirsOnly {
        return Err(failed(Errno::NOTDIR));
    } else {
        rustix::fs::unlinkat(directory, name, AtFlags::empty()).map_err(failed)?;
    }
    Effect::new("remove", path).announce();
    Ok(())
}

fn remove_dir(place: &Place, path: &Path, removal: Removal) -> Result<()> {
    let failed = |error| HostError::os(Action::RemoveTree, path, error);
    let (directory, name) = (place.directory(), &place.name);
    let remove = || rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR);
    // The common case is an empty directory.
    match remove() {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    let name =
        std::ffi::CString::new(name.as_os_str().as_encoded_bytes()).map_err(|_| failed(Errno::INVAL))?;
    let root = enter(directory, &name, true).map_err(failed)?;
    let mut walker = Remove { removal, first_error: None };
    walk(root, &mut path.to_owned(), &mut walker)?;
    match (walker.first_error, remove()) {
        // The first error inside says more than "not empty".
        (Some(error), Err(_)) => Err(error),
        (_, Ok(()) | Err(Errno::NOENT)) => Ok(()),
        (None, Err(error)) => Err(failed(error)),
    }
}

struct Remove {
    removal: Removal,
    first_error: Option<HostError>,
}

impl Remove {
    fn keep(&mut self, error: HostError) {
        self.first_error.get_or_insert(error);
    }

    fn failed(&mut self, path: &Path, error: Errno) {
        if error != Errno::NOENT {
            self.keep(HostError::os(Action::RemoveTree, path, error));
        }
    }
}

impl Visit for Remove {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Option<OwnedFd>> {
        let known = entry.kind != FileType::Directory && entry.kind != FileType::Unknown;
        if known && self.removal == Removal::DirsOnly {
            self.failed(entry.path, Errno::NOTDIR);
            return Ok(None);
        }
        if entry.kind != FileType::Directory {
            let flags = if self.removal == Removal::DirsOnly { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            match rustix::fs::unlinkat(entry.dir, entry.name, flags) {
                Ok(()) => return Ok(None),
                // The kind was unknown, and it is a directory.
                Err(Errno::ISDIR) => {}
                Err(Errno::NOTEMPTY) if self.removal == Removal::DirsOnly => {}
                Err(error) => {
                    self.failed(entry.path, error);
                    return Ok(None);
                }
            }
        }
        match enter(entry.dir, entry.name, self.removal == Removal::Everything) {
            Ok(dir) => return Ok(Some(dir)),
            Err(Errno::XDEV) => self.keep(HostError::IsMountPoint { path: entry.path.clone() }),
            Err(error) => self.failed(entry.path, error),
        }
        Ok(None)
    }

    fn leave(&mut self, entry: &Entry<'_>, _: BorrowedFd<'_>) -> Result<()> {
        if let Err(error) = rustix::fs::unlinkat(entry.dir, entry.name, AtFlags::REMOVEDIR) {
            self.failed(entry.path, error);
        }
        Ok(())
    }
}
