//! Files in the driver's container. A sabotage relies on one of them, and fails once the container is replaced.

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

    pub(crate) fn exists(&self) -> bool {
        self.0.exists()
    }

    pub(crate) fn create(&self) -> io::Result<()> {
        self.0.parent().map(std::fs::create_dir_all).transpose()?;
        std::fs::write(&self.0, "")
    }
}
