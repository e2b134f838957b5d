//! A layer over a directory of the machine: an overlay whose writes are kept in memory.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{Mode, OFlags};

use super::mode_of;
use crate::sandbox::SandboxError;
use crate::sandbox::furnish::{make_dir, path_error};

/// A directory of the machine with its layer.
#[derive(Debug)]
pub(super) struct Layer {
    /// The mount point of the overlay.
    pub(super) at: PathBuf,
    /// The machine's directory, without the mounts below it.
    pub(super) lower: OwnedFd,
    /// The directory with the writes.
    pub(super) upper: OwnedFd,
}

/// Options of the overlay: the mode of a large file can change without a copy, a directory can be renamed, and all files
/// have the overlay's device number, which identifies a loop device over one of them as this sandbox's.
const OF_ROOT: &str = "metacopy=on,redirect_dir=on,index=off,xino=on";

/// Options in a user namespace: the overlay's marks are in `user.` attributes, and the other features are not available.
const OF_USER: &str = "userxattr,index=off";

impl Layer {
    /// Lays one over `lower`, which is the directory `at` of the machine. Its own files go into the directory `own`.
    pub(super) fn lay(
        at: &Path,
        lower: OwnedFd,
        own: &Path,
        place: &Path,
        flags: MsFlags,
        user_namespace: bool,
    ) -> Result<Layer, SandboxError> {
        let (upper, work) = (own.join("upper"), own.join("work"));
        make_dir(own, 0o700)?;
        let below = PathBuf::from(format!("/proc/self/fd/{}", lower.as_raw_fd()));
        make_dir(&upper, mode_of(&below.join(".")))?;
        make_dir(&work, 0o700)?;
        let owner = fs::metadata(&below).map_err(|source| path_error(at, source))?;
        // In a user namespace most owners have no number, and then the layer is its user's.
        let _ = std::os::unix::fs::chown(&upper, Some(owner.uid()), Some(owner.gid()));
        let ways = [if user_namespace { OF_USER } else { OF_ROOT }, "index=off"];
        let lay = |way: &&str| {
            let options = format!(
                "lowerdir={},upperdir={},workdir={},{way}",
                below.display(),
                upper.display(),
                work.display()
            );
            mount(Some("machine"), place, Some("overlay"), flags, Some(options.as_str()))
        };
        // An older kernel does not know every word.
        let mut laid = ways.iter().map(lay);
        let first = laid.next().unwrap_or(Ok(()));
        first.or_else(|errno| laid.next().unwrap_or(Err(errno))).map_err(|errno| SandboxError::Mount {
            what: "a layer over the machine's files",
            target: at.to_owned(),
            source: io::Error::from(errno),
        })?;
        let upper = opened(&upper)?;
        Ok(Layer { at: at.to_owned(), lower, upper })
    }

    /// Whether nothing more can be written.
    pub(super) fn is_full(&self) -> bool {
        let upper = format!("/proc/self/fd/{}/.", self.upper.as_raw_fd());
        nix::sys::statvfs::statvfs(upper.as_str()).is_ok_and(|disk| disk.blocks_available() == 0)
    }
}

/// Opens a directory, to be reached even after something is mounted over it.
pub(super) fn opened(path: &Path) -> Result<OwnedFd, SandboxError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| path_error(path, errno.into()))
}
