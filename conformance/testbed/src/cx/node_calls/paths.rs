//! Staging paths and targets that a case changes behind the driver's back: mounts lost or stacked, links in their place.

use std::panic::Location;
use std::path::{Path, PathBuf};

use harness::observe::mode_below_mounts;
use nix::mount::MsFlags;

use super::NodeCalls;
use crate::bed::StepError;
use crate::bed::node_calls::mounts_at;
use crate::failure::Result;

impl NodeCalls {
    /// Unmounts every mount exactly at a path, behind the driver's back, as a reboot of the machine does.
    #[track_caller]
    pub fn loses_mount(&self, path: &Path) -> Result {
        let doing = self.begin("losing the mount", path, Location::caller());
        let there = doing.done(mounts_at(path))?;
        let unmount = |_| nix::mount::umount(path).map_err(|error| StepError::ours(&error));
        doing.done(there.into_iter().try_for_each(unmount))
    }

    /// Bind-mounts a path over itself, as a caller that has lost count of its mounts does.
    #[track_caller]
    pub fn stacks(&self, path: &Path) -> Result {
        let doing = self.begin("binding once more", path, Location::caller());
        let bound = nix::mount::mount(Some(path), path, None::<&str>, MsFlags::MS_BIND, None::<&str>);
        doing.done(bound.map_err(|error| StepError::ours(&error)))
    }

    /// Replaces a path by a symbolic link to an empty directory, and returns that directory.
    #[track_caller]
    pub fn links(&self, path: &Path) -> Result<PathBuf> {
        let doing = self.begin("linking", path, Location::caller());
        let elsewhere = self.directory.join("elsewhere");
        let link = || {
            std::fs::create_dir_all(&elsewhere)?;
            path.parent().map(std::fs::create_dir_all).transpose()?;
            if path.exists() {
                std::fs::remove_dir(path)?;
            }
            std::os::unix::fs::symlink(&elsewhere, path)
        };
        doing.done(link().map_err(|error| StepError::ours(&error)))?;
        Ok(elsewhere)
    }

    /// Replaces a symbolic link by a directory.
    #[track_caller]
    pub fn unlinks(&self, path: &Path) -> Result {
        let doing = self.begin("unlinking", path, Location::caller());
        self.unlink_if_there(path);
        doing.done(std::fs::create_dir_all(path).map_err(|error| StepError::ours(&error)))
    }

    /// Removes a file or a symbolic link, unless the driver has removed it already.
    pub fn unlink_if_there(&self, path: &Path) {
        if path.is_symlink() || path.is_file() {
            drop(std::fs::remove_file(path));
        }
    }

    /// The mode of the directory or file at a path, underneath the mounts there.
    #[track_caller]
    pub fn mode_below(&self, path: &Path) -> Result<Option<u32>> {
        let doing = self.begin("what lies below the mount", path, Location::caller());
        doing.done(mode_below_mounts(path).map_err(|error| StepError::ours(&error)))
    }
}
