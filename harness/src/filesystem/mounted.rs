//! Mounts as guards: a file system, a bind, a bind with its own propagation.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::census::holders_of_mount;
use crate::guard::{self, CloseError, Guard};
use crate::observe;
use crate::wait::Deadline;

/// How long a busy unmount is retried: a process that was just killed uses the mount for a moment.
const BUSY: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
#[error("cannot mount {what} at `{target}`")]
pub struct MountError {
    /// The file system or the source of the bind.
    pub what: String,
    pub target: PathBuf,
    #[source]
    pub source: io::Error,
}

/// Propagation of mounts between a mount and its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Private,
    /// Receives mounts, and sends none.
    Slave,
    /// Receives and sends mounts.
    Shared,
}

/// A mount that is unmounted when this is closed.
#[derive(Debug)]
pub struct Mounted {
    target: PathBuf,
    open: bool,
}

impl Mounted {
    /// Mounts a file system.
    pub fn mount(
        fstype: &str,
        source: &Path,
        target: &Path,
        flags: MsFlags,
        options: &str,
    ) -> Result<Mounted, MountError> {
        mount(Some(source), target, Some(fstype), flags, Some(options)).map_err(|errno| MountError {
            what: format!("{fstype} from `{}`", source.display()),
            target: target.to_owned(),
            source: errno.into(),
        })?;
        Ok(Mounted { target: target.to_owned(), open: true })
    }

    /// Binds a directory or a file.
    pub fn bind(source: &Path, target: &Path) -> Result<Mounted, MountError> {
        let failed = |errno: Errno| MountError {
            what: format!("`{}`", source.display()),
            target: target.to_owned(),
            source: errno.into(),
        };
        mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(failed)?;
        Ok(Mounted { target: target.to_owned(), open: true })
    }

    /// Makes this mount read-only, but not its file system.
    pub fn read_only(self) -> Result<Mounted, MountError> {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        self.change("a read-only view", flags)
    }

    pub fn propagate(self, propagation: Propagation) -> Result<Mounted, MountError> {
        let flags = match propagation {
            Propagation::Private => MsFlags::MS_PRIVATE,
            Propagation::Slave => MsFlags::MS_SLAVE,
            Propagation::Shared => MsFlags::MS_SHARED,
        };
        self.change("with another propagation", flags)
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    fn change(self, what: &str, flags: MsFlags) -> Result<Mounted, MountError> {
        mount(None::<&str>, &self.target, None::<&str>, flags, None::<&str>).map_err(|errno| MountError {
            what: what.to_owned(),
            target: self.target.clone(),
            source: errno.into(),
        })?;
        Ok(self)
    }

    fn unmount(&mut self) -> Result<(), CloseError> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        let attempt = || match umount2(&self.target, MntFlags::UMOUNT_NOFOLLOW) {
            Err(Errno::EBUSY) => None,
            done => Some(done),
        };
        let failed = match Deadline::after(BUSY).until("", attempt) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(errno)) => CloseError::Unmount { target: self.target.clone(), source: errno.into() },
            Err(_) => CloseError::Busy { target: self.target.clone(), holders: self.holders() },
        };
        // Detached after its holders were found: it ends with its last user.
        let _ = umount2(&self.target, MntFlags::MNT_DETACH);
        Err(failed)
    }

    fn holders(&self) -> String {
        let mounts = observe::snapshot().unwrap_or_default();
        let top = mounts.iter().rfind(|mount| mount.target == self.target);
        top.map(holders_of_mount).unwrap_or_default().to_string()
    }
}

impl Guard for Mounted {
    /// Unmounts. A busy mount is detached instead, which is an error.
    fn close(mut self) -> Result<(), CloseError> {
        self.unmount()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let target = self.target.clone();
        guard::undo(target.display(), || self.unmount());
    }
}
