//! Unmounts and removes a mount point in any state (07 §6 and §7). Touches a [`Host`].

use std::future::Future;
use std::path::Path;

use crate::door::Host;
use crate::error::{HostError, Result};

/// The check for a mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// By statx alone ([`Host::is_likely_mount_point`]).
    Likely,
    /// With certainty ([`Host::is_mount_point`]), as for bind mounts on old kernels.
    Extensive,
}

/// Unmounts `path` and removes its directory, or the file it was bound over. Missing: success.
///
/// A call unmounts one layer of stacked mounts; with another below it the directory is busy, which is the
/// error. A plain directory is removed only if it is empty. A mount that no longer answers is unmounted too.
///
/// No mount-point check precedes the unmount: on every kind of host, unmounting a directory that is no mount
/// is success, as in the kubelet where `umount` reports "not mounted". `check` is used afterwards, to distinguish
/// a busy directory from one with another mount below.
pub async fn mount_point(host: &dyn Host, path: &Path, check: Check) -> Result<()> {
    if !must_go(host, path).await? {
        return Ok(());
    }
    host.unmount(path).await?;
    remove_unmounted(host, path, check).await
}

/// As [`mount_point`], with force if the unmount has not ended when `deadline` does. Only NFS needs it.
pub async fn mount_point_with_force(
    host: &dyn Host,
    path: &Path,
    check: Check,
    deadline: impl Future<Output = ()> + Send,
) -> Result<()> {
    if !must_go(host, path).await? {
        return Ok(());
    }
    unmount_with_force(host, path, deadline).await?;
    remove_unmounted(host, path, check).await
}

/// Unmounts; if that has not ended when `deadline` does, gives it up and unmounts with force, without a
/// deadline. A failure before the deadline is returned, and force is not used.
pub async fn unmount_with_force(
    host: &dyn Host,
    path: &Path,
    deadline: impl Future<Output = ()> + Send,
) -> Result<()> {
    tokio::select! {
        biased;
        result = host.unmount(path) => result,
        () = deadline => host.unmount_forced(path).await,
    }
}

/// Whether there is anything to clean up. A stat that fails like that of a dead mount means yes.
async fn must_go(host: &dyn Host, path: &Path) -> Result<bool> {
    match crate::lookup::path_exists(host, path).await {
        Ok(exists) => {
            if !exists {
                tracing::warn!(path = %path.display(), "mount point does not exist; nothing to clean up");
            }
            Ok(exists)
        }
        Err(error) if error.is_corrupted_mount() => Ok(true),
        Err(error) => Err(error),
    }
}

async fn remove_unmounted(host: &dyn Host, path: &Path, check: Check) -> Result<()> {
    match remove(host, path).await {
        Err(error) if error.is_not_found() => Ok(()),
        // A bind over a file leaves a file behind.
        Err(error) if error.is_not_a_directory() => host.remove_file(path).await,
        // Busy has two causes with different errors: another layer of mounts, or another mount namespace or
        // process that uses the directory.
        Err(error) if error.is_busy() && still_mounted(host, path, check).await => {
            Err(HostError::StillMounted { path: path.to_owned() })
        }
        other => other,
    }
}

/// Removes an empty directory, or the file that was the target of a bind.
async fn remove(host: &dyn Host, path: &Path) -> Result<()> {
    match host.remove_dir(path).await {
        Err(error) if error.is_not_a_directory() => host.remove_file(path).await,
        other => other,
    }
}

async fn still_mounted(host: &dyn Host, path: &Path, check: Check) -> bool {
    match check {
        Check::Likely => host.is_likely_mount_point(path).await,
        Check::Extensive => host.is_mount_point(path).await,
    }
    .unwrap_or(false)
}
