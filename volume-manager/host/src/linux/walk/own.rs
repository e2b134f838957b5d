//! Changes the group and the modes of a directory tree (06 §8). Touches nothing else.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Entry, Visit, enter, walk};
use crate::effect::Effect;
use crate::error::{Action, HostError, Result};
use crate::linux::file::listed_kind;
use crate::ownership::{OwnershipChange, WalkProgress};

/// Changes `root` and everything below it.
pub(in crate::linux) fn change_ownership(
    root: &Path,
    change: OwnershipChange,
    progress: &WalkProgress,
) -> Result<()> {
    let failed = |error| HostError::os(Action::Chown, root, error);
    let name = CString::new(root.as_os_str().as_encoded_bytes()).map_err(|_| failed(Errno::INVAL))?;
    let mut own = OwnershipWalk { change, progress };
    let stat = rustix::fs::lstat(root).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let dir = enter(CWD, &name, true).map_err(failed)?;
        walk(dir, &mut root.to_owned(), &mut own)?;
        own.check_stop(root)?;
    }
    // Last: after an unfinished walk the root still has its old group, so that the next mount walks again.
    own.apply(CWD, &name, &stat, root);
    Effect::new("chown", root).to(&format!(":{}", change.gid)).announce();
    Ok(())
}

struct OwnershipWalk<'a> {
    change: OwnershipChange,
    progress: &'a WalkProgress,
}

impl OwnershipWalk<'_> {
    fn check_stop(&self, path: &Path) -> Result<()> {
        if self.progress.is_stopped() {
            return Err(HostError::Stopped { path: path.to_owned() });
        }
        Ok(())
    }

    /// Changes one entry. A failure is only logged, as by the kubelet: one bad file does not keep a pod from starting.
    fn apply(&self, dir: BorrowedFd<'_>, name: &CStr, stat: &Stat, path: &Path) {
        let kind = listed_kind(FileType::from_raw_mode(stat.st_mode));
        let chown = stat.st_gid != self.change.gid;
        if chown {
            let gid = Some(Gid::from_raw(self.change.gid));
            if let Err(error) = rustix::fs::chownat(dir, name, None, gid, AtFlags::SYMLINK_NOFOLLOW) {
                tracing::error!(path = %path.display(), %error, "cannot change the group; going on with the next file");
            }
        }
        let mode = stat.st_mode & 0o7777;
        if let Some(wanted) = self.change.mode_of(kind, mode) {
            // After chown, which clears the setuid and setgid bits.
            let stripped = chown && mode & 0o6000 != 0;
            if (wanted != mode || stripped)
                && let Err(error) = chmod_no_follow(dir, name, wanted)
            {
                tracing::error!(path = %path.display(), %error, "cannot change the mode; going on with the next file");
            }
        }
        self.progress.count();
    }

    fn stat_entry(entry: &Entry<'_>) -> Result<Stat> {
        rustix::fs::statat(entry.dir, entry.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| HostError::os(Action::Stat, entry.path, error))
    }
}

impl Visit for OwnershipWalk<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Option<OwnedFd>> {
        self.check_stop(entry.path)?;
        let failed = |error| HostError::os(Action::ReadDir, entry.path, error);
        if entry.kind == FileType::Directory {
            return enter(entry.dir, entry.name, true).map(Some).map_err(failed);
        }
        let stat = Self::stat_entry(entry)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return enter(entry.dir, entry.name, true).map(Some).map_err(failed);
        }
        self.apply(entry.dir, entry.name, &stat, entry.path);
        Ok(None)
    }

    fn leave(&mut self, entry: &Entry<'_>, _: BorrowedFd<'_>) -> Result<()> {
        self.check_stop(entry.path)?;
        let stat = Self::stat_entry(entry)?;
        self.apply(entry.dir, entry.name, &stat, entry.path);
        Ok(())
    }
}

/// chmod that follows no link: a file that was swapped for a link since its stat cannot lead out of the volume.
fn chmod_no_follow(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<(), Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW.bits();
    // SAFETY: the name is a C string that outlives the call, and the descriptor is open.
    let result = unsafe {
        let number = libc::c_long::from(linux_raw_sys::general::__NR_fchmodat2.cast_signed());
        libc::syscall(number, dir.as_raw_fd(), name.as_ptr(), mode, flags)
    };
    if result == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSYS) => chmod_by_descriptor(dir, name, mode),
        Some(error) => Err(error),
        None => Err(Errno::IO),
    }
}

/// As [`chmod_no_follow`], for kernels before 6.6: through a descriptor opened without following links.
fn chmod_by_descriptor(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    let link = PathBuf::from(format!("/proc/thread-self/fd/{}", held.as_raw_fd()));
    rustix::fs::chmod(link, Mode::from_bits_retain(mode))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn chmod_does_not_follow_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, link) = (scratch.path().join("file"), scratch.path().join("link"));
        fs::write(&file, b"").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let name = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
        type Change = fn(BorrowedFd<'_>, &CStr, u32) -> Result<(), Errno>;
        let changes: [(Change, u32); 2] = [(chmod_no_follow, 0o604), (chmod_by_descriptor, 0o4710)];
        for (change, wanted) in changes {
            change(CWD, &name(&file), wanted).unwrap();
            assert_eq!(mode(), wanted);
            assert!(change(CWD, &name(&link), 0o777).is_err());
            assert_eq!(mode(), wanted);
        }
    }
}
