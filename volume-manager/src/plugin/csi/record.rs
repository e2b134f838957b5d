//! Reading and writing `vol_data.json` in its place. Touches that file alone.

use std::path::{Path, PathBuf};

use api::names::{PodUid, SpecName, VolumeHandle, escape};
use host::{Host, HostError};

use super::volume_data::{FILE_NAME, Lifecycle, VolumeData, VolumeDataError};

/// The file in a directory.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}

/// Writes the file, over an older one. One that says the same already is left alone: whoever writes empties the file
/// first, and a crash right then would lose the ids of a volume that may be staged or published.
pub(crate) async fn write(host: &dyn Host, dir: &Path, data: &VolumeData) -> Result<(), HostError> {
    let (path, content) = (path(dir), data.to_bytes());
    if host.read_file(&path).await.is_ok_and(|there| there == content) {
        return Ok(());
    }
    host.write_file(&path, &content, 0o666).await
}

/// Reads the file.
pub(crate) async fn read(host: &dyn Host, dir: &Path) -> Result<VolumeData, VolumeDataError> {
    let path = path(dir);
    match host.read_file(&path).await {
        Ok(content) => VolumeData::parse(&path, &content),
        Err(error) if error.is_not_found() => Err(VolumeDataError::Missing { path }),
        Err(source) if source.is_no_file() => Err(VolumeDataError::NoFile { path, source }),
        Err(source) => Err(VolumeDataError::Unreadable { path, source }),
    }
}

/// Reads the file in the directory of a volume with that inner name, which must not say that it is another's.
pub(crate) async fn read_of(
    host: &dyn Host,
    dir: &Path,
    inner: &SpecName,
) -> Result<VolumeData, VolumeDataError> {
    let data = read(host, dir).await?;
    match &data.spec_name {
        Some(name) if escape(name.as_str()) != escape(inner.as_str()) => {
            Err(VolumeDataError::AnothersVolume { path: path(dir) })
        }
        _ => Ok(data),
    }
}

/// Reads the file of a pod's volume with that inner name. A volume that is written in a pod has an id that is
/// made of both: one that differs is another pod's.
pub(crate) async fn read_of_pod(
    host: &dyn Host,
    dir: &Path,
    pod: &PodUid,
    inner: &SpecName,
) -> Result<VolumeData, VolumeDataError> {
    let data = read_of(host, dir, inner).await?;
    let name = data.spec_name.as_ref().unwrap_or(inner);
    if data.lifecycle() == Lifecycle::Ephemeral && data.handle != VolumeHandle::ephemeral(pod, name) {
        return Err(VolumeDataError::AnothersVolume { path: path(dir) });
    }
    Ok(data)
}
