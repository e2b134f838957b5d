//! Loop devices as guards. Opens `/dev/loop-control` and `/dev/loopN`, and makes backing files.
//!
//! A device made here disappears by itself: its backing file has no name, and it is attached with autoclear
//! while this process has the only descriptor, so the kernel detaches it when this process ends in any way.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux_raw_sys::loop_device as raw;

use crate::census;
use crate::guard::{self, CloseError, Guard};
use crate::observe::Device;
use crate::wait::Deadline;

mod ioctl;
pub mod table;

/// The major number of every loop device.
pub const LOOP_MAJOR: u32 = 7;

/// The time for the kernel to detach a device after its last close.
const DETACH: Duration = Duration::from_secs(5);

/// The options that a loop device is attached with.
#[derive(Debug, Clone, Default)]
pub struct LoopOptions {
    /// The device refuses writes.
    pub read_only: bool,
    /// The backing file is read and written past its page cache: every write reaches it at once.
    pub direct_io: bool,
    /// The kernel scans the device for partitions.
    pub partitions: bool,
    /// Bytes of a block; the kernel's choice if absent.
    pub block_size: Option<u32>,
    /// Bytes of the backing file to leave out at its beginning.
    pub offset: u64,
}

/// An error of a loop device.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The kernel has no loop devices, or this process may not use them.
    #[error("cannot open `/dev/loop-control`")]
    Control(#[source] io::Error),
    /// The backing file could not be made.
    #[error("cannot make a backing file of {bytes} bytes in `{dir}`")]
    Backing {
        dir: PathBuf,
        bytes: u64,
        #[source]
        source: io::Error,
    },
    /// The kernel refused to attach the file.
    #[error("cannot attach a file to `{device}`")]
    Attach {
        device: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The device did not take its new size.
    #[error("cannot resize `{device}`")]
    Resize {
        device: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Other processes took each free device first.
    #[error("cannot win a free loop device in {attempts} attempts")]
    Crowded { attempts: u32 },
}

/// An attached loop device.
#[derive(Debug)]
pub struct LoopDevice {
    number: u32,
    /// Dropped first: the device is detached at its last close.
    device: Option<loopdev::LoopDevice>,
    backing: File,
}

impl LoopDevice {
    /// A device of this many bytes, over a nameless file in `dir`.
    pub fn create(dir: &Path, bytes: u64, options: &LoopOptions) -> Result<LoopDevice, LoopError> {
        let backing = tempfile::tempfile_in(dir)
            .and_then(|file| file.set_len(bytes).map(|()| file))
            .map_err(|source| LoopError::Backing { dir: dir.to_owned(), bytes, source })?;
        LoopDevice::over(backing, options)
    }

    /// A device over an open file, which must be open for writing unless the device is read-only.
    pub fn over(backing: File, options: &LoopOptions) -> Result<LoopDevice, LoopError> {
        const ATTEMPTS: u32 = 2000;
        let control = loopdev::LoopControl::open().map_err(LoopError::Control)?;
        for _ in 0..ATTEMPTS {
            // The free number is a hint: the first process that configures the device gets it.
            let Some(device) = or_lost_race(control.next_free()).map_err(LoopError::Control)? else {
                continue;
            };
            let Some(path) = device.path() else { continue };
            let config = ioctl::config(backing.as_raw_fd(), flags(options), options);
            match or_lost_race(ioctl::configure(device.as_raw_fd(), &config)) {
                Ok(Some(())) => {
                    let number =
                        number_of(&device).map_err(|source| LoopError::Attach { device: path, source })?;
                    return Ok(LoopDevice { number, device: Some(device), backing });
                }
                Ok(None) => {}
                Err(source) => return Err(LoopError::Attach { device: path, source }),
            }
        }
        Err(LoopError::Crowded { attempts: ATTEMPTS })
    }

    /// Its number: the N of `/dev/loopN`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its device node.
    pub fn path(&self) -> PathBuf {
        node(self.number)
    }

    pub fn dev(&self) -> Device {
        Device { major: LOOP_MAJOR, minor: self.number }
    }

    /// The file behind it.
    pub fn backing(&self) -> &File {
        &self.backing
    }

    /// Gives the backing file another length, and the device with it.
    pub fn resize(&self, bytes: u64) -> Result<(), LoopError> {
        let Some(device) = &self.device else { return Ok(()) };
        self.backing
            .set_len(bytes)
            .and_then(|()| device.set_capacity())
            .map_err(|source| LoopError::Resize { device: self.path(), source })
    }

    /// Switches direct I/O on the backing file, past its page cache, on or off.
    pub fn set_direct_io(&self, on: bool) -> io::Result<()> {
        match &self.device {
            Some(device) => ioctl::set_direct_io(device.as_raw_fd(), on),
            None => Ok(()),
        }
    }

    fn detach(&mut self) -> Result<(), CloseError> {
        if let Some(device) = self.device.take() {
            clear(device.as_raw_fd())
                .map_err(|source| os(format!("detach `loop{}`", self.number), source))?;
            // The kernel detaches at the last close of the device, which is this one.
            drop(device);
            wait_detached(self.number)?;
        }
        Ok(())
    }
}

impl Guard for LoopDevice {
    fn close(mut self) -> Result<(), CloseError> {
        self.detach()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let number = self.number;
        guard::undo(format_args!("loop{number}"), || self.detach());
    }
}

/// The device node of loop device `number`.
pub fn node(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// Asks the kernel to detach the device behind this descriptor at its last close.
pub(crate) fn clear(device: RawFd) -> io::Result<()> {
    match ioctl::clear(device) {
        // Nothing is attached any more: another process detached it, or an earlier clear got through.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
        done => done,
    }
}

/// Waits until the kernel has detached the device.
pub(crate) fn wait_detached(number: u32) -> Result<(), CloseError> {
    let gone = || (!table::is_bound(number)).then_some(());
    Deadline::after(DETACH).until(format_args!("loop{number} is still attached"), gone).map_err(|source| {
        CloseError::Attached { number, holders: census::holders_of_loop(number).to_string(), source }
    })
}

fn number_of(device: &loopdev::LoopDevice) -> io::Result<u32> {
    Ok(ioctl::status(device.as_raw_fd())?.lo_number)
}

fn flags(options: &LoopOptions) -> u32 {
    let chosen = [
        (options.read_only, raw::LO_FLAGS_READ_ONLY as u32),
        (options.direct_io, raw::LO_FLAGS_DIRECT_IO as u32),
        (options.partitions, raw::LO_FLAGS_PARTSCAN as u32),
    ];
    let autoclear = raw::LO_FLAGS_AUTOCLEAR as u32;
    chosen.iter().filter(|(on, _)| *on).fold(autoclear, |flags, (_, flag)| flags | flag)
}

/// `None` for the answers that mean another process was faster.
fn or_lost_race<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EBUSY | libc::ENXIO | libc::ENODEV | libc::ENOENT) => Ok(None),
            _ => Err(error),
        },
    }
}

fn os(what: String, source: io::Error) -> CloseError {
    CloseError::Os { what, source }
}
