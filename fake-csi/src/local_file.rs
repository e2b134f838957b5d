//! Files that only the driver's container has: sabotages rely on them, and so lose them with the container.

use std::io;
use std::path::{Path, PathBuf};

/// A file in the container's directory for temporary files.
#[derive(Debug)]
pub(crate) struct LocalFile(PathBuf);

impl LocalFile {
    /// The file of the driver with this state directory.
    pub(crate) fn new(state: &Path, name: &str) -> Self {
        let directory = format!("fake-csi{}", state.to_string_lossy().replace('/', "-"));
        Self(std::env::temp_dir().join(directory).join(name))
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.exists()
    }

    pub(crate) fn leave(&self) -> io::Result<()> {
        self.0.parent().map(std::fs::create_dir_all).transpose()?;
        std::fs::write(&self.0, "")
    }
}
