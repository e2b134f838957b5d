//! Removing what the node made around a driver's mount, once the driver's undo has succeeded.
//!
//! Touches a mount directory, the `vol_data.json` beside it and the directory of both.

use std::path::Path;

use host::errno::EISDIR;
use host::{Host, HostError};
use plugin_api::Undo;

use super::volume_data;

/// What became of a mount directory that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountDir {
    /// It is gone, with the record beside it.
    Removed,
    /// Something is still mounted there, so nothing was touched.
    StillMounted,
}

/// Removes the directory `mount`, the `vol_data.json` beside it, and the directory that holds both.
///
/// While something is mounted there, nothing is touched: a later clean-up needs the metadata. Each part may be
/// missing, so this can be repeated.
pub(crate) async fn remove_mount_dir(host: &dyn Host, mount: &Path) -> Result<MountDir, HostError> {
    match host.is_likely_mount_point(mount).await {
        Ok(true) => return Ok(MountDir::StillMounted),
        Ok(false) => absent_is_fine(host.remove_dir(mount).await)?,
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    let Some(parent) = mount.parent() else { return Ok(MountDir::Removed) };
    // The metadata goes after the mount directory: as long as that one stays, so does the knowledge whose it is.
    let record = parent.join(volume_data::FILE_NAME);
    match host.remove_file(&record).await {
        // A directory in the place of the record: if it is empty, it must not keep the volume for ever.
        Err(error) if error.errno() == Some(EISDIR) => host.remove_dir(&record).await?,
        removed => absent_is_fine(removed)?,
    }
    absent_is_fine(host.remove_dir(parent).await)?;
    Ok(MountDir::Removed)
}

/// Whether nothing of a failed call is left at `mount`. A mount there says that the call had its effect, whatever
/// code it answered, so its undo has to be called.
pub(crate) async fn remove_after_failure(host: &dyn Host, mount: &Path) -> Result<Undo, HostError> {
    Ok(match remove_mount_dir(host, mount).await? {
        MountDir::Removed => Undo::Complete,
        MountDir::StillMounted => Undo::Needed,
    })
}

fn absent_is_fine(outcome: Result<(), HostError>) -> Result<(), HostError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}
