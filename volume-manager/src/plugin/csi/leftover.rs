//! Removing what the node made around a driver's mount, once the driver's undo has succeeded.
//!
//! Touches a mount directory, the `vol_data.json` beside it and the directory of both.

use std::path::Path;

use host::errno::EISDIR;
use host::{Host, HostError};

use super::volume_data;

/// Removes the directory `mount`, the `vol_data.json` beside it, and the directory that holds both.
///
/// While something is mounted there, nothing is touched and that counts as success: the metadata is what
/// a later clean-up needs. Each part may be missing, so this can be repeated. The metadata goes after the
/// mount directory: as long as that one stays, so does the knowledge whose it is.
pub(crate) async fn remove_mount_dir(host: &dyn Host, mount: &Path) -> Result<(), HostError> {
    match host.is_likely_mount_point(mount).await {
        Ok(true) => return Ok(()),
        Ok(false) => absent_is_fine(host.remove_dir(mount).await)?,
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    let Some(parent) = mount.parent() else { return Ok(()) };
    let record = parent.join(volume_data::FILE_NAME);
    match host.remove_file(&record).await {
        // Nobody knows who made it; empty, it is not worth a volume that never leaves.
        Err(error) if error.errno() == Some(EISDIR) => host.remove_dir(&record).await?,
        removed => absent_is_fine(removed)?,
    }
    absent_is_fine(host.remove_dir(parent).await)
}

fn absent_is_fine(outcome: Result<(), HostError>) -> Result<(), HostError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}
