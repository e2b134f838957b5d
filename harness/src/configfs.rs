//! The kernel's file system for settings (configfs), as a detached mount: it appears in no mount table.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// An open configfs.
#[derive(Debug)]
pub(crate) struct Configfs(OwnedFd);

impl Configfs {
    pub(crate) fn open() -> io::Result<Self> {
        let context = fsopen("configfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        Ok(Self(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?))
    }

    /// The path of a file or directory in it, for this process.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{inside}", self.0.as_raw_fd()))
    }
}
