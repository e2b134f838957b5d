//! Reads and writes the file `vol_data.json`; touches nothing else.

use std::path::{Path, PathBuf};

use api::names::{PodUid, SpecName, VolumeHandle, escape};
use host::{Host, HostError};

use super::volume_data::{FILE_NAME, Lifecycle, VolumeData, VolumeDataError};

/// The path of the record in a directory.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}

/// Writes the record, replacing an older one. A record with the same content is left alone: writing truncates
/// the file first, and a crash right then would lose the ids of a volume that may be staged or published.
pub(crate) async fn write(host: &dyn Host, dir: &Path, data: &VolumeData) -> Result<(), HostError> {
    let (path, content) = (path(dir), data.to_bytes());
    if host.read_file(&path).await.is_ok_and(|there| there == content) {
        return Ok(());
    }
    host.write_file(&path, &content, 0o666).await
}

/// Reads the record in a directory.
pub(crate) async fn read(host: &dyn Host, dir: &Path) -> Result<VolumeData, VolumeDataError> {
    let path = path(dir);
    match host.read_file(&path).await {
        Ok(content) => VolumeData::parse(&path, &content),
        Err(error) if error.is_not_found() => Err(VolumeDataError::Missing { path }),
        Err(source) if source.is_no_file() => Err(VolumeDataError::NoFile { path, source }),
        Err(source) => Err(VolumeDataError::Unreadable { path, source }),
    }
}

/// Reads the record in the directory of the volume `inner`. Fails if it names another volume.
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

/// Reads the record of the volume `inner` of a pod. The handle of an inline volume is made of the pod's UID and
/// the volume's name: another handle belongs to another pod.
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
