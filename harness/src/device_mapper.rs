//! A disk that fails on order: a loop device below a device of the kernel's device-mapper.
//!
//! Uses `/dev/mapper/control` directly, without `dmsetup` or udev; the device's node is the kernel's own, `/dev/dm-N`. A
//! mapping outlives every process and every namespace, and is in no ledger: use it only in a guest, which ends with its
//! case.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::guard::{self, CloseError, Guard};
use crate::loop_device::{LoopDevice, LoopError, LoopOptions};
use crate::observe::Device;
use crate::wait::Deadline;

mod call;
pub mod write_log;

use call::Call;

/// Bytes of a sector, which tables are written in.
const SECTOR: u64 = 512;

/// The time for other processes to close a device.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The behaviour of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// All requests work.
    Sound,
    /// Each read and each write is an error.
    Fails,
    /// Reads work, and each write is an error.
    FailsWrites,
    /// Reads work, and writes are lost without an error.
    LosesWrites,
    /// All requests work, each after this time.
    Slow(Duration),
}

/// A disk cannot be made, or its behaviour cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The loop device below it failed.
    #[error(transparent)]
    Below(#[from] LoopError),
    #[error("cannot {step} the mapped device `{name}`")]
    Kernel {
        step: &'static str,
        name: String,
        #[source]
        source: io::Error,
    },
}

/// A mapped device, over loop devices of its own.
#[derive(Debug)]
pub struct MappedDisk {
    name: String,
    minor: u32,
    major: u32,
    sectors: u64,
    mapped: bool,
    suspended: bool,
    below: LoopDevice,
    /// The loop device with the log of its writes.
    log: Option<LoopDevice>,
}

impl MappedDisk {
    /// A sound disk of a size in bytes, whose image is in a directory.
    ///
    /// # Errors
    /// When there is no loop device, or the kernel refuses the mapping.
    pub fn create(name: &str, directory: &Path, bytes: u64) -> Result<Self, MapError> {
        Self::over(name, LoopDevice::create(directory, bytes, &LoopOptions::default())?, None)
    }

    /// Makes a disk with a log of all writes, which has `log_bytes`.
    ///
    /// # Errors
    /// As above.
    pub fn logged(name: &str, directory: &Path, bytes: u64, log_bytes: u64) -> Result<Self, MapError> {
        let options = LoopOptions::default();
        let log = LoopDevice::create(directory, log_bytes, &options)?;
        Self::over(name, LoopDevice::create(directory, bytes, &options)?, Some(log))
    }

    fn over(name: &str, below: LoopDevice, log: Option<LoopDevice>) -> Result<Self, MapError> {
        let length = below.backing().metadata().map_err(|source| failed("measure", name, source))?.len();
        let call = Call::named(name);
        let (major, minor) = call.create().map_err(|source| failed("create", name, source))?;
        let mut disk = Self {
            name: name.to_owned(),
            minor,
            major,
            sectors: length / SECTOR,
            mapped: true,
            suspended: true,
            below,
            log,
        };
        disk.behave(Manner::Sound)?;
        Ok(disk)
    }

    /// Its device node.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/dm-{}", self.minor))
    }

    pub fn dev(&self) -> Device {
        Device { major: self.major, minor: self.minor }
    }

    /// Changes the disk's behaviour. Earlier requests are completed first.
    ///
    /// # Errors
    /// When the kernel refuses, for example because it has no such target.
    pub fn behave(&mut self, manner: Manner) -> Result<(), MapError> {
        let (target, arguments) = self.table(manner);
        let call = Call::named(&self.name);
        call.load(self.sectors, target, &arguments)
            .map_err(|source| failed("load a table into", &self.name, source))?;
        self.suspend()?;
        self.resume()
    }

    /// Suspends the disk: requests get no answer until it is resumed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn suspend(&mut self) -> Result<(), MapError> {
        if !self.suspended {
            Call::named(&self.name).suspend().map_err(|source| failed("suspend", &self.name, source))?;
            self.suspended = true;
        }
        Ok(())
    }

    /// Resumes the disk: it answers the requests of the time when it was suspended, too.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn resume(&mut self) -> Result<(), MapError> {
        Call::named(&self.name).resume().map_err(|source| failed("resume", &self.name, source))?;
        self.suspended = false;
        Ok(())
    }

    /// Writes a mark into the log, after all earlier writes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn mark(&self, word: &str) -> Result<(), MapError> {
        let message = Call::named(&self.name).message(&format!("mark {word}"));
        message.map_err(|source| failed("send a message to", &self.name, source))
    }

    /// Ends a disk with a log, and returns the log.
    ///
    /// # Errors
    /// When a process still has it open, or the log cannot be read.
    pub fn into_log(mut self) -> Result<write_log::WriteLog, CloseError> {
        self.unmap()?;
        let Some(log) = self.log.take() else {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(CloseError::Os { what: format!("find the log of `{}`", self.name), source });
        };
        let path = log.path();
        let read = write_log::WriteLog::read(&path, self.sectors * SECTOR);
        read.map_err(|source| CloseError::Os {
            what: format!("read the log in `{}`", path.display()),
            source,
        })
    }

    fn table(&self, manner: Manner) -> (&'static str, String) {
        let below = self.below.path().display().to_string();
        // From sector 0, up for 0 s and down for 60 s: always down, with one feature.
        let flakey = |feature: &str| ("flakey", format!("{below} 0 0 60 1 {feature}"));
        match manner {
            Manner::Sound => match &self.log {
                Some(log) => ("log-writes", format!("{below} {}", log.path().display())),
                None => ("linear", format!("{below} 0")),
            },
            Manner::Fails => ("error", String::new()),
            Manner::FailsWrites => flakey("error_writes"),
            Manner::LosesWrites => flakey("drop_writes"),
            Manner::Slow(time) => ("delay", format!("{below} 0 {}", time.as_millis())),
        }
    }

    fn unmap(&mut self) -> Result<(), CloseError> {
        if !self.mapped {
            return Ok(());
        }
        let os =
            |source| CloseError::Os { what: format!("remove the mapped device `{}`", self.name), source };
        if self.suspended {
            // A process that waits for the disk would keep it open. Without a table it cannot be resumed, and nothing
            // waits.
            drop(Call::named(&self.name).resume());
        }
        let mut last = io::Error::from_raw_os_error(libc::EBUSY);
        let gone = || match Call::named(&self.name).remove() {
            Ok(()) => Some(()),
            Err(error) => {
                last = error;
                None
            }
        };
        match Deadline::after(CLOSE_LIMIT).until("the device is still in use", gone) {
            Ok(()) => {
                self.mapped = false;
                Ok(())
            }
            Err(_) => Err(os(last)),
        }
    }
}

impl Guard for MappedDisk {
    fn close(mut self) -> Result<(), CloseError> {
        self.unmap()
    }
}

impl Drop for MappedDisk {
    fn drop(&mut self) {
        let name = self.name.clone();
        guard::undo(format_args!("mapped device {name}"), || self.unmap());
    }
}

fn failed(step: &'static str, name: &str, source: io::Error) -> MapError {
    MapError::Kernel { step, name: name.to_owned(), source }
}
