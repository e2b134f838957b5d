//! Disk file systems on loop devices, as guards. Runs `mkfs`, mounts and unmounts.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::MsFlags;

pub use crate::disk_format::DiskFormat;
use crate::guard::{CloseError, Guard};
use crate::loop_device::{LoopDevice, LoopError, LoopOptions};

mod mounted;

pub use mounted::{MountError, Mounted, Propagation};

impl DiskFormat {
    /// Arguments of mkfs. ext4 gets no lazy initialisation: its background writes would disturb faults and
    /// measurements.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            DiskFormat::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            DiskFormat::Xfs => &["-q", "-f"],
            DiskFormat::Btrfs => &["-q", "-f"],
        }
    }

    /// Runs mkfs on a device.
    pub fn make(self, device: &Path) -> Result<(), FilesystemError> {
        let program = format!("mkfs.{}", self.name());
        let failed = |cause: io::Error| FilesystemError::Make {
            program: program.clone(),
            device: device.to_owned(),
            cause,
        };
        // In the `sbin` directories too: the PATH of an ordinary user lacks them.
        let path = crate::facts::program(&program).unwrap_or_else(|| PathBuf::from(&program));
        let output = Command::new(path).args(self.arguments()).arg(device).output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())))
    }
}

/// A file system that could not be made or mounted.
#[derive(Debug, thiserror::Error)]
pub enum FilesystemError {
    #[error("cannot attach a loop device for the file system")]
    Device(#[from] LoopError),
    #[error("cannot run `{program}` on `{device}`")]
    Make {
        program: String,
        device: PathBuf,
        /// Why it did not start, or its output.
        #[source]
        cause: io::Error,
    },
    #[error("cannot mount the new file system")]
    Mount(#[from] MountError),
}

/// A mounted file system on a loop device.
#[derive(Debug)]
pub struct Filesystem {
    mounted: Mounted,
    // Dropped after the mount: a device in use cannot be detached.
    device: LoopDevice,
}

impl Filesystem {
    /// Makes a file system of this many bytes on an unlinked file in `dir` and mounts it at `target`.
    pub fn create(
        format: DiskFormat,
        bytes: u64,
        dir: &Path,
        target: &Path,
    ) -> Result<Filesystem, FilesystemError> {
        let device = LoopDevice::create(dir, bytes, &LoopOptions::default())?;
        Filesystem::on(device, format, target)
    }

    /// Makes a file system on this device and mounts it at `target`.
    pub fn on(device: LoopDevice, format: DiskFormat, target: &Path) -> Result<Filesystem, FilesystemError> {
        format.make(&device.path())?;
        Filesystem::mount(device, format, target, "")
    }

    /// Mounts the file system that is on this device at `target`.
    pub fn mount(
        device: LoopDevice,
        format: DiskFormat,
        target: &Path,
        options: &str,
    ) -> Result<Filesystem, FilesystemError> {
        let mounted = Mounted::mount(format.name(), &device.path(), target, MsFlags::empty(), options)?;
        Ok(Filesystem { mounted, device })
    }

    pub fn path(&self) -> &Path {
        self.mounted.target()
    }

    pub fn device(&self) -> &LoopDevice {
        &self.device
    }

    /// Unmounts the file system and returns its device.
    pub fn unmount(self) -> Result<LoopDevice, CloseError> {
        let Filesystem { mounted, device } = self;
        mounted.close().map(|()| device)
    }
}

impl Guard for Filesystem {
    fn close(self) -> Result<(), CloseError> {
        self.unmount()?.close()
    }
}
