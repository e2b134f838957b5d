//! Disks of the kernel's test modules, for faults that a loop device cannot have: removal from the machine, and
//! unreadable sectors.
//!
//! They outlive every process and namespace, and are not in the ledger: use them only in a guest that ends with its case.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::configfs::Configfs;
use crate::guard::{self, CloseError, Guard};
use crate::kernel_module;
use crate::observe::Device;
use crate::wait::Deadline;

/// The time for the kernel to find a disk, and for other processes to close it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A disk that cannot be made or changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub struct DiskError {
    what: String,
    #[source]
    source: io::Error,
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError { what: what.into(), source }
}

/// A disk on a bus, which can be removed from the machine (`scsi_debug`).
#[derive(Debug)]
pub struct PluggedDisk {
    name: String,
    dev: Device,
    plugged: bool,
    loaded: bool,
}

impl PluggedDisk {
    /// Adds an empty disk.
    ///
    /// # Errors
    /// When the kernel has no such module, or does not find the disk.
    pub fn create(mebibytes: u64) -> Result<Self, DiskError> {
        // The driver that finds the disk comes first.
        kernel_module::load("sd_mod", &[]).map_err(failed("load the module `sd_mod`"))?;
        kernel_module::load("scsi_debug", &[&format!("dev_size_mb={mebibytes}"), "delay=0"])
            .map_err(failed("load the module `scsi_debug`"))?;
        let mut disk =
            Self { name: String::new(), dev: Device { major: 0, minor: 0 }, plugged: false, loaded: true };
        let found = Deadline::after(PATIENCE).until("there is no disk on the bus", plugged_in);
        disk.name =
            found.map_err(|late| failed("find the disk")(io::Error::new(io::ErrorKind::TimedOut, late)))?;
        disk.dev = number(&disk.name)?;
        disk.plugged = true;
        Ok(disk)
    }

    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    pub fn dev(&self) -> Device {
        self.dev
    }

    /// Removes the disk from the machine, also while it is in use.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pull_out(&mut self) -> Result<(), DiskError> {
        fs::write(format!("/sys/block/{}/device/delete", self.name), "1")
            .map_err(failed(format!("pull out `{}`", self.name)))?;
        self.plugged = false;
        Ok(())
    }

    /// Unloads the disk's module, which removes the disk. `false`: it is in use.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn unload(&mut self) -> Result<bool, DiskError> {
        match kernel_module::unload(c"scsi_debug") {
            Ok(()) => {
                (self.plugged, self.loaded) = (false, false);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(failed("unload the module `scsi_debug`")(error)),
        }
    }

    fn end(&mut self) -> Result<(), CloseError> {
        if !self.loaded {
            return Ok(());
        }
        let gone = || match self.unload() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        };
        let what = || "unload the module `scsi_debug`".to_owned();
        match Deadline::after(PATIENCE).until("its disk is still in use", gone) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(CloseError::Os { what: what(), source: error.source }),
            Err(late) => {
                Err(CloseError::Os { what: what(), source: io::Error::new(io::ErrorKind::TimedOut, late) })
            }
        }
    }
}

impl Guard for PluggedDisk {
    fn close(mut self) -> Result<(), CloseError> {
        self.end()
    }
}

impl Drop for PluggedDisk {
    fn drop(&mut self) {
        let name = self.name.clone();
        guard::undo(format_args!("disk {name}"), || self.end());
    }
}

/// The disk of `scsi_debug`, which is on a bus that no real disk has.
fn plugged_in() -> Option<String> {
    let disks = fs::read_dir("/sys/block").ok()?.flatten();
    let mut made = disks.filter(|disk| {
        let real = fs::canonicalize(disk.path()).unwrap_or_default();
        real.components().any(|part| part.as_os_str().to_string_lossy().starts_with("adapter"))
    });
    made.next().map(|disk| disk.file_name().to_string_lossy().into_owned())
}

fn number(name: &str) -> Result<Device, DiskError> {
    let file = format!("/sys/block/{name}/dev");
    let read = fs::read_to_string(&file).map_err(failed(format!("read `{file}`")))?;
    let number = read
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? }));
    number.ok_or_else(|| failed(format!("parse `{file}`"))(io::ErrorKind::InvalidData.into()))
}

/// A disk in memory whose sectors can go bad (`null_blk`).
#[derive(Debug)]
pub struct SpottyDisk {
    _config: Configfs,
    settings: PathBuf,
    dev: Device,
    made: bool,
}

impl SpottyDisk {
    /// The kernel names the first disk so, also one that is made by configfs.
    const NAME: &str = "nullb0";

    /// Makes an empty disk without bad sectors.
    ///
    /// # Errors
    /// When the kernel has no such module, or refuses the disk.
    pub fn create(mebibytes: u64) -> Result<Self, DiskError> {
        kernel_module::load("null_blk", &["nr_devices=0"]).map_err(failed("load the module `null_blk`"))?;
        let config = Configfs::open().map_err(failed("mount the kernel's configuration"))?;
        let settings = config.path(&format!("nullb/{}", Self::NAME));
        fs::create_dir(&settings).map_err(failed("make a disk of `null_blk`"))?;
        let mut disk = Self { _config: config, settings, dev: Device { major: 0, minor: 0 }, made: true };
        for (key, value) in [("size", mebibytes.to_string().as_str()), ("memory_backed", "1"), ("power", "1")]
        {
            disk.set(key, value)?;
        }
        disk.dev = number(Self::NAME)?;
        Ok(disk)
    }

    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(Self::NAME)
    }

    pub fn dev(&self) -> Device {
        self.dev
    }

    /// Makes sectors fail reads and writes from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn spoil(&self, sectors: Range<u64>) -> Result<(), DiskError> {
        self.set("badblocks", &format!("+{}-{}", sectors.start, sectors.end.saturating_sub(1)))
    }

    /// Makes sectors good again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn mend(&self, sectors: Range<u64>) -> Result<(), DiskError> {
        self.set("badblocks", &format!("-{}-{}", sectors.start, sectors.end.saturating_sub(1)))
    }

    fn set(&self, key: &str, value: &str) -> Result<(), DiskError> {
        fs::write(self.settings.join(key), value)
            .map_err(failed(format!("set `{key}` of `{}` to {value}", Self::NAME)))
    }

    fn end(&mut self) -> Result<(), CloseError> {
        if !self.made {
            return Ok(());
        }
        // Works also for a disk in use: its users get errors from then on.
        let done = fs::write(self.settings.join("power"), "0").and_then(|()| fs::remove_dir(&self.settings));
        done.map_err(|source| CloseError::Os { what: format!("remove the disk `{}`", Self::NAME), source })?;
        self.made = false;
        Ok(())
    }
}

impl Guard for SpottyDisk {
    fn close(mut self) -> Result<(), CloseError> {
        self.end()
    }
}

impl Drop for SpottyDisk {
    fn drop(&mut self) {
        guard::undo(format_args!("disk {}", Self::NAME), || self.end());
    }
}
