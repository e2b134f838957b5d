//! A disk that outlives its guest and not this process: a file without a name.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// A sparse, empty disk.
#[derive(Debug)]
pub struct Disk(File);

impl Disk {
    /// A disk of a size in bytes.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let file = tempfile::tempfile()?;
        file.set_len(bytes)?;
        Ok(Self(file))
    }

    /// The place where the emulator finds it, for as long as this is held.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }
}
