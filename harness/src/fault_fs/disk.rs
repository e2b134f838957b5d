//! A programmable disk: a loop device over a file of a fault file system.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{FaultFs, FaultFsError, FaultFsOptions};
use crate::guard::{CloseError, Guard};
use crate::loop_device::{LoopDevice, LoopError, LoopOptions};

/// The name of the disk's file, for rules and logs.
const FILE: &str = "disk";

/// A loop device whose every read and write goes through rules.
#[derive(Debug)]
pub struct FaultDisk {
    device: LoopDevice,
    /// Dropped after the device, which has a file of it open.
    fs: FaultFs,
}

/// Why there is no such disk.
#[derive(Debug, thiserror::Error)]
pub enum FaultDiskError {
    /// A directory or a file of it could not be made.
    #[error("cannot prepare `{path}`")]
    Path {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The fault file system.
    #[error("cannot mount a file that fails on order")]
    Fs(#[from] FaultFsError),
    #[error("cannot have a device over it")]
    Device(#[from] LoopError),
}

impl FaultDisk {
    /// A disk of this many bytes, with all that it needs in `dir`.
    pub fn create(dir: &Path, bytes: u64, seed: u64) -> Result<FaultDisk, FaultDiskError> {
        let [backing, target] = ["backing", "fault"].map(|name| dir.join(name));
        for path in [&backing, &target] {
            std::fs::create_dir_all(path)
                .map_err(|source| FaultDiskError::Path { path: path.clone(), source })?;
        }
        let image = backing.join(FILE);
        let made = File::create(&image).and_then(|file| file.set_len(bytes));
        made.map_err(|source| FaultDiskError::Path { path: image, source })?;
        let control = dir.join("fault.sock");
        let fs = FaultFs::start(FaultFsOptions { backing, target, control, seed })?;
        let shown = fs.path().join(FILE);
        let file = File::options().read(true).write(true).open(&shown);
        let file = file.map_err(|source| FaultDiskError::Path { path: shown, source })?;
        // Past the page cache: each write to the device reaches the rules at once and unchanged.
        let options = LoopOptions { direct_io: true, ..LoopOptions::default() };
        Ok(FaultDisk { device: LoopDevice::over(file, &options)?, fs })
    }

    pub fn device(&self) -> &LoopDevice {
        &self.device
    }

    /// The file system below it, which takes the rules.
    pub fn fs(&self) -> &FaultFs {
        &self.fs
    }

    /// The name of the disk's file in rules and log.
    pub fn file(&self) -> &'static Path {
        Path::new(FILE)
    }
}

impl Guard for FaultDisk {
    fn close(self) -> Result<(), CloseError> {
        let FaultDisk { device, fs } = self;
        // The last close of a device writes back: it must not meet a rule that makes it hang.
        let _ = fs.release();
        device.close().and_then(|()| fs.close())
    }
}
