//! Disk file systems on loop devices, as guards. Runs `mkfs`, mounts and unmounts.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::MsFlags;

use crate::guard::{CloseError, Guard};
use crate::loop_device::{LoopDevice, LoopError, LoopOptions};

mod mounted;

pub use mounted::{MountError, Mounted, Propagation};

/// A type of disk file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFormat {
    /// ext4.
    Ext4,
    /// xfs.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl DiskFormat {
    /// Its name, as mount and mkfs know it.
    pub fn name(self) -> &'static str {
        match self {
            DiskFormat::Ext4 => "ext4",
            DiskFormat::Xfs => "xfs",
            DiskFormat::Btrfs => "btrfs",
        }
    }

    /// The least bytes its mkfs accepts.
    pub fn least_bytes(self) -> u64 {
        match self {
            DiskFormat::Ext4 => 8 << 20,
            DiskFormat::Xfs => 300 << 20,
            DiskFormat::Btrfs => 128 << 20,
        }
    }

    /// Everything is written when mkfs returns: ext4 would go on in the background and disturb what is
    /// injected or measured.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            DiskFormat::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            DiskFormat::Xfs => &["-q", "-f"],
            DiskFormat::Btrfs => &["-q", "-f"],
        }
    }

    /// Makes a file system on a device.
    pub fn make(self, device: &Path) -> Result<(), FilesystemError> {
        let program = format!("mkfs.{}", self.name());
        let failed = |cause: io::Error| FilesystemError::Make {
            program: program.clone(),
            device: device.to_owned(),
            cause,
        };
        // By its name alone an ordinary PATH would not find it.
        let path = crate::facts::program(&program).unwrap_or_else(|| PathBuf::from(&program));
        let output = Command::new(path).args(self.arguments()).arg(device).output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())))
    }
}

/// Why a file system could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FilesystemError {
    /// The device below.
    #[error("cannot have a device for it")]
    Device(#[from] LoopError),
    /// mkfs failed.
    #[error("cannot run `{program}` on `{device}`")]
    Make {
        /// Which mkfs.
        program: String,
        /// On which device.
        device: PathBuf,
        /// Why not, or what it said.
        #[source]
        cause: io::Error,
    },
    /// It could not be mounted.
    #[error("cannot use the new file system")]
    Mount(#[from] MountError),
}

/// A mounted file system on a loop device.
#[derive(Debug)]
pub struct Filesystem {
    mounted: Mounted,
    /// Dropped after the mount: a device in use cannot be detached.
    device: LoopDevice,
}

impl Filesystem {
    /// Makes a file system of this many bytes over a nameless file in `dir` and mounts it at `target`.
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
        let mounted = Mounted::mount(format.name(), &device.path(), target, MsFlags::empty(), "")?;
        Ok(Filesystem { mounted, device })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mounted.target()
    }

    /// The device it is on.
    pub fn device(&self) -> &LoopDevice {
        &self.device
    }

    /// Unmounts it and keeps the device.
    pub fn unmount(self) -> Result<LoopDevice, CloseError> {
        let Filesystem { mounted, device } = self;
        mounted.close().map(|()| device)
    }
}

impl Guard for Filesystem {
    /// Unmounts, detaches the device, and says what stood in the way.
    fn close(self) -> Result<(), CloseError> {
        self.unmount()?.close()
    }
}
