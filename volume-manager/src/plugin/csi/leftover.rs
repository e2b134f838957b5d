//! Removes the directories that the node made for a driver's mount, after the driver's undo succeeded.
//!
//! Touches a mount directory, the `vol_data.json` beside it and their parent directory.

use std::path::Path;

use host::errno::EISDIR;
use host::{Host, HostError};
use plugin_api::Undo;

use super::volume_data;

/// The outcome of removing a mount directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountDir {
    /// The directory and the record beside it are removed.
    Removed,
    /// Something is still mounted there; nothing was touched.
    StillMounted,
}

/// Removes the directory `mount`, the `vol_data.json` beside it, and their parent directory.
///
/// Nothing is touched while something is mounted there: a later attempt needs the record. Missing parts are no
/// error, so this can be repeated.
pub(crate) async fn remove_mount_dir(host: &dyn Host, mount: &Path) -> Result<MountDir, HostError> {
    if let Err(error) = absent_is_fine(host.remove_dir(mount).await) {
        // A mount there is one cause of many.
        return match host.is_likely_mount_point(mount).await {
            Ok(true) => Ok(MountDir::StillMounted),
            Err(unknown) if !unknown.is_not_found() => Err(unknown),
            _ => Err(error),
        };
    }
    let Some(parent) = mount.parent() else { return Ok(MountDir::Removed) };
    // The record goes after the mount directory: as long as the directory exists, its volume is known.
    let record = parent.join(volume_data::FILE_NAME);
    match host.remove_file(&record).await {
        // A directory instead of the record: removed if it is empty, so that it does not keep the volume for
        // ever.
        Err(error) if error.errno() == Some(EISDIR) => host.remove_dir(&record).await?,
        removed => absent_is_fine(removed)?,
    }
    absent_is_fine(host.remove_dir(parent).await)?;
    Ok(MountDir::Removed)
}

/// Removes the mount directory after a failed call. A mount there shows that the call had its effect, with any code it
/// answered, so its undo has to be called.
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
