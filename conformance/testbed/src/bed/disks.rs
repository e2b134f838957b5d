//! Disks of the node's machine: sound ones, and ones with faults that the case orders.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::device_mapper::write_log::{Cut, WriteLog};
use harness::device_mapper::{Manner, MapError, MappedDisk};
use harness::guard::{CloseError, Guard};
use harness::loop_device::{LoopDevice, LoopOptions};
use harness::module_disk::{DiskError, PluggedDisk, SpottyDisk};
use harness::observe::Device;

use super::{Bed, Result, StepError};

/// The size of a disk of the machine: enough for ext4, and quick to make.
pub(super) const DISK: u64 = 16 << 20;

/// The most bytes of a disk's log. Unwritten parts take no space.
const LOG: u64 = 64 << 20;

/// The disks of the node's machine, which outlive every volume on them.
#[derive(Debug, Default)]
pub(super) struct Disks {
    sound: RefCell<Vec<LoopDevice>>,
    /// Disks whose faults the case orders. The entry of a disk that was ended is `None`.
    mapped: RefCell<Vec<Option<MappedDisk>>>,
    plugged: RefCell<Option<PluggedDisk>>,
    spotty: RefCell<Option<SpottyDisk>>,
}

impl Disks {
    /// Removes all disks. Returns the result for each.
    pub(super) fn close(&self) -> impl Iterator<Item = std::result::Result<(), CloseError>> {
        let mapped = self.mapped.take().into_iter().flatten().map(Guard::close);
        let sound = self.sound.take().into_iter().map(Guard::close);
        let by_module =
            self.plugged.take().map(Guard::close).into_iter().chain(self.spotty.take().map(Guard::close));
        mapped.chain(sound).chain(by_module)
    }

    /// The numbers of the loop devices that are sound disks.
    pub(super) fn loop_numbers(&self) -> Vec<u32> {
        self.sound.borrow().iter().map(LoopDevice::number).collect()
    }

    fn nodes(&self) -> Vec<(Device, PathBuf)> {
        let (sound, mapped) = (self.sound.borrow(), self.mapped.borrow());
        let sound = sound.iter().map(|disk| (disk.dev(), disk.path()));
        let mapped = mapped.iter().flatten().map(|disk| (disk.dev(), disk.path()));
        let plugged = self.plugged.borrow().as_ref().map(|disk| (disk.dev(), disk.path()));
        let spotty = self.spotty.borrow().as_ref().map(|disk| (disk.dev(), disk.path()));
        sound.chain(mapped).chain(plugged).chain(spotty).collect()
    }
}

impl Bed {
    /// Adds a disk to the node's machine until the end of the case.
    pub(crate) fn add_disk(&self) -> Result<PathBuf> {
        let earlier = self.driver_loops();
        let disk = LoopDevice::create(&directory(), DISK, &LoopOptions::default());
        self.remember_loops(&earlier);
        let disk = disk.map_err(|error| StepError::ours(&error))?;
        let path = disk.path();
        self.disks.sound.borrow_mut().push(disk);
        Ok(path)
    }

    /// Adds a disk with an ext4 that fsck does not repair without confirmation: it has lost its root directory.
    pub(crate) fn add_corrupt_disk(&self) -> Result<PathBuf> {
        let disk = self.add_disk()?;
        let run = |program: &str, arguments: &[&str]| {
            let done = Command::new(program).args(arguments).arg(&disk).output();
            let done =
                done.map_err(|error| StepError::Ours(vec![format!("cannot run `{program}`: {error}")]))?;
            match done.status.success() {
                true => Ok(()),
                false => Err(StepError::Ours(vec![String::from_utf8_lossy(&done.stderr).into_owned()])),
            }
        };
        run("mkfs.ext4", &["-q", "-F"])?;
        // Marked as having errors, since fsck skips a clean file system.
        run("debugfs", &["-w", "-R", "set_super_value state 2"])?;
        run("debugfs", &["-w", "-R", "clri <2>"])?;
        Ok(disk)
    }

    /// Adds a disk with faults on order. Returns its number and its path.
    pub(crate) fn add_faulty_disk(&self, logged: bool) -> Result<(usize, PathBuf)> {
        let mut mapped = self.disks.mapped.borrow_mut();
        let number = mapped.len();
        let name = format!("volproof-{number}");
        let earlier = self.driver_loops();
        let disk = match logged {
            true => MappedDisk::logged(&name, &directory(), DISK, LOG),
            false => MappedDisk::create(&name, &directory(), DISK),
        };
        self.remember_loops(&earlier);
        let disk = disk.map_err(|error| StepError::ours(&error))?;
        let path = disk.path();
        mapped.push(Some(disk));
        Ok((number, path))
    }

    /// Changes a disk with faults on order.
    pub(crate) fn with_disk(
        &self,
        number: usize,
        action: impl FnOnce(&mut MappedDisk) -> std::result::Result<(), MapError>,
    ) -> Result {
        let mut mapped = self.disks.mapped.borrow_mut();
        let disk = mapped.get_mut(number).and_then(Option::as_mut).ok_or_else(ended)?;
        action(disk).map_err(|error| StepError::ours(&error))
    }

    /// Ends a disk that has a log, and returns the log.
    pub(crate) fn end_logged_disk(&self, number: usize) -> Result<WriteLog> {
        let disk = self.disks.mapped.borrow_mut().get_mut(number).and_then(Option::take).ok_or_else(ended)?;
        disk.into_log().map_err(|error| StepError::ours(&error))
    }

    /// Adds a disk with the content that another one has after a power cut.
    pub(crate) fn add_disk_of(&self, log: &WriteLog, cut: Cut) -> Result<PathBuf> {
        let path = self.add_disk()?;
        log.replay(cut, &path).map_err(|error| StepError::ours(&error))?;
        Ok(path)
    }

    /// Adds a disk that can be unplugged. Returns its path.
    pub(crate) fn add_plugged_disk(&self) -> Result<PathBuf> {
        let disk = PluggedDisk::create(DISK >> 20).map_err(|error| StepError::ours(&error))?;
        let path = disk.path();
        self.disks.plugged.replace(Some(disk));
        Ok(path)
    }

    /// Changes the disk that can be unplugged.
    pub(crate) fn with_plugged_disk<T>(
        &self,
        action: impl FnOnce(&mut PluggedDisk) -> std::result::Result<T, DiskError>,
    ) -> Result<T> {
        let mut plugged = self.disks.plugged.borrow_mut();
        action(plugged.as_mut().ok_or_else(ended)?).map_err(|error| StepError::ours(&error))
    }

    /// Adds a disk with sectors that can go bad. Returns its path.
    pub(crate) fn add_spotty_disk(&self) -> Result<PathBuf> {
        let disk = SpottyDisk::create(DISK >> 20).map_err(|error| StepError::ours(&error))?;
        let path = disk.path();
        self.disks.spotty.replace(Some(disk));
        Ok(path)
    }

    /// Changes the disk with sectors that can go bad.
    pub(crate) fn with_spotty_disk(
        &self,
        action: impl FnOnce(&SpottyDisk) -> std::result::Result<(), DiskError>,
    ) -> Result {
        let spotty = self.disks.spotty.borrow();
        action(spotty.as_ref().ok_or_else(ended)?).map_err(|error| StepError::ours(&error))
    }

    /// The device and the node of the disk that a path, or a link at it, leads to.
    pub(super) fn disk_at(&self, path: &Path) -> Option<(Device, PathBuf)> {
        let real = std::fs::canonicalize(path).ok()?;
        self.disks.nodes().into_iter().find(|(_, at)| *at == real)
    }

    /// Makes each disk sound, so that nothing waits for one that the case has let hang or fail.
    pub(super) fn end_disk_faults(&self) {
        for disk in self.disks.mapped.borrow_mut().iter_mut().flatten() {
            // An error is reported when the disk is closed.
            drop(disk.behave(Manner::Sound));
        }
    }
}

fn directory() -> PathBuf {
    harness::Layout::standard().state().to_owned()
}

fn ended() -> StepError {
    StepError::Ours(vec!["the disk was removed before".to_owned()])
}
