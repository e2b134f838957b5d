//! Reading and writing `vol_data.json` in its place. Touches that file alone.

use std::path::{Path, PathBuf};

use host::{Host, HostError};

use super::volume_data::{FILE_NAME, VolumeData, VolumeDataError};

/// The file in a directory.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}

/// Writes the file, over an older one.
pub(crate) async fn write(host: &dyn Host, dir: &Path, data: &VolumeData) -> Result<(), HostError> {
    host.write_file(&path(dir), &data.to_bytes(), 0o666).await
}

/// Reads the file.
pub(crate) async fn read(host: &dyn Host, dir: &Path) -> Result<VolumeData, VolumeDataError> {
    let path = path(dir);
    match host.read_file(&path).await {
        Ok(content) => VolumeData::parse(&path, &content),
        Err(error) if error.is_not_found() => Err(VolumeDataError::Missing { path }),
        Err(source) => Err(VolumeDataError::Unreadable { path, source }),
    }
}
