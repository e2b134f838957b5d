//! The driver's own directory on a file system that fails on order: the images behind its loop devices are the disks
//! that a driver of disks has, and go wrong without its knowing. So do the tools that it runs on them.
//!
//! This needs no part of the driver: only that it keeps the bytes of a volume in one large file below `{state}`.

use std::collections::BTreeSet;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use harness::fault_fs::{FaultFs, FaultFsOptions, Rule};
use harness::guard::Guard;
use harness::observe;

use super::{Bed, Result, StepError};
use crate::failure::chain;

/// From this size in bytes on, a file is the image of a volume, and not a driver's own record.
const IMAGE: u64 = 8 << 20;

/// The cache of `blkid` in `/run`, which is the sandbox's own.
const BLKID_CACHE: &str = "/run/blkid";

/// A driver's directory that can fail.
#[derive(Debug)]
pub(super) struct FailingState {
    fs: FaultFs,
    backing: PathBuf,
    /// Images that were handed out.
    known: BTreeSet<PathBuf>,
    device: u64,
}

impl Bed {
    /// Moves the driver's directory with its files to a file system that fails on order. The driver is restarted, because it
    /// may have files of the directory open.
    ///
    /// A directory with a disk of its own, which the driver or `prepare` of its manifest has mounted, stays as it is: a driver
    /// may insist on that disk, and would not find it in a copy of the directory.
    pub(crate) async fn make_state_fail_on_order(&self) -> Result {
        if self.has_own_disk()? {
            return Ok(());
        }
        self.kill_driver().await;
        let (state, backing) = (self.layout.driver_state(), self.layout.state().join("drv-below"));
        let moved = fs::rename(&state, &backing).and_then(|()| fs::create_dir(&state));
        moved.map_err(|error| StepError::ours(&error))?;
        let control = self.layout.sockets().join("drv-below.sock");
        let options =
            FaultFsOptions { backing: backing.clone(), target: state.clone(), control, seed: self.seed };
        let fs = FaultFs::start(options).map_err(|error| StepError::ours(&error))?;
        let device = fs::metadata(&state).map_err(|error| StepError::ours(&error))?.st_dev();
        // Before the driver can attach a file that lies on it.
        self.ownership.also(device).map_err(|error| StepError::ours(&error))?;
        let failing = FailingState { fs, backing, known: BTreeSet::new(), device };
        self.failing_state.replace(Some(failing));
        self.start_driver().await.map_err(|error| StepError::of_testbed(&error))
    }

    /// The device of the file system below the driver's directory, if it is one of its own.
    pub(super) fn failing_device(&self) -> Option<u64> {
        self.failing_state.borrow().as_ref().map(|failing| failing.device)
    }

    fn has_own_disk(&self) -> Result<bool> {
        let state = self.layout.driver_state();
        let mounts = observe::snapshot().map_err(|error| StepError::ours(&error))?;
        Ok(mounts.iter().any(|mount| mount.target.starts_with(&state) && mount.target != state))
    }

    /// An image that has come since the last question; its path below the driver's directory. None if the directory cannot
    /// fail.
    pub(crate) fn new_image(&self) -> Result<Option<PathBuf>> {
        if !self.state_can_fail() {
            return Ok(None);
        }
        self.with_failing_state(|failing| {
            let mut images = Vec::new();
            find_images(&failing.backing, &failing.backing, &mut images);
            let new = images.into_iter().find(|image| !failing.known.contains(image));
            failing.known.extend(new.clone());
            Ok(new)
        })
    }

    /// Has calls to files of the driver's directory go wrong.
    pub(crate) fn fail_state(&self, rule: Rule) -> Result {
        // The cache of `blkid` has what was staged before, and would answer without a read. A node that the volume comes to
        // has no such entry.
        drop(fs::remove_dir_all(BLKID_CACHE));
        self.with_failing_state(|failing| {
            failing.fs.arm(rule).map(drop).map_err(|error| StepError::ours(&error))
        })
    }

    /// The number of file operations that rules have spoilt so far.
    pub(crate) fn state_failures(&self) -> Result<u64> {
        self.with_failing_state(|failing| {
            let status = failing.fs.control().status().map_err(|error| StepError::ours(&error))?;
            Ok(status.struck.values().sum::<u64>() + status.hanging as u64)
        })
    }

    /// Has nothing go wrong any more, and answers what hangs.
    pub(crate) fn mend_state(&self) -> Result {
        self.with_failing_state(|failing| failing.fs.release().map_err(|error| StepError::ours(&error)))
    }

    /// Ends all faults at the end of a case, if it had any.
    pub(super) fn state_recovers(&self) {
        if let Some(failing) = &*self.failing_state.borrow() {
            // A server that does not answer is killed when the case ends.
            drop(failing.fs.release());
        }
    }

    /// Takes the file system away, after the driver.
    pub(super) fn end_failing_state(&self) -> Option<String> {
        let closed = self.failing_state.take().map(|failing| failing.fs.close());
        closed.and_then(std::result::Result::err).map(|error| chain(&error).join(": "))
    }

    /// Whether the driver's directory is on a file system that fails on order.
    pub fn state_can_fail(&self) -> bool {
        self.failing_state.borrow().is_some()
    }

    fn with_failing_state<T>(&self, with: impl FnOnce(&mut FailingState) -> Result<T>) -> Result<T> {
        let none = || StepError::Ours(vec!["the driver's directory cannot fail".to_owned()]);
        with(self.failing_state.borrow_mut().as_mut().ok_or_else(none)?)
    }
}

fn find_images(root: &Path, below: &Path, images: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else { continue };
        if metadata.is_dir() {
            find_images(root, &path, images);
        } else if metadata.is_file() && metadata.len() >= IMAGE {
            images.extend(path.strip_prefix(root).ok().map(Path::to_owned));
        }
    }
}
