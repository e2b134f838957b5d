//! Look-ups that take several calls to the node. Touches a [`Host`].

use std::path::{Path, PathBuf};

use crate::door::{Bind, Host, Propagation};
use crate::error::Result;

/// Whether `path` exists (07 §5): by the kernel's own knowledge, and if that says no, by access(2) too, since
/// some servers confirm by access a path that stat reports as missing.
///
/// It does not ask the file system's server: a dead one would block the caller until it is back. A mount that
/// reports itself as dead gives an error with `is_corrupted_mount`: there is something at the path.
pub async fn path_exists(host: &dyn Host, path: &Path) -> Result<bool> {
    match host.is_likely_mount_point(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => match host.access(path).await {
            Ok(()) => Err(stale(path)),
            Err(_) => Ok(false),
        },
        Err(error) => Err(error),
    }
}

/// The other mounts of the directory or file that `path` shows (07 §8). None if the path is missing or its
/// mount is known to be dead.
pub async fn mount_refs(host: &dyn Host, path: &Path) -> Result<Vec<PathBuf>> {
    // Resolving does not ask the file system's server either.
    match host.canonicalize(path).await {
        Ok(path) => host.references(&path).await,
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) if error.is_corrupted_mount() => {
            tracing::warn!(path = %path.display(), %error, "the mount does not answer; taking it as one without references");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Source of the mount at `path`, and the number of mounts with that source. `None`: nothing is mounted there.
pub async fn device_of_mount(host: &dyn Host, path: &Path) -> Result<Option<(PathBuf, usize)>> {
    // A path that cannot be resolved is looked up as it was written: its mount may be dead.
    let path = host.canonicalize(path).await.unwrap_or_else(|_| path.to_owned());
    let table = host.mount_table().await?;
    Ok(table.device_of(&path).map(|(source, count)| (PathBuf::from(source), count)))
}

/// Makes the mount of the node's root directory shared, binding the directory on itself first if its mount is
/// not shared (07 §10). Otherwise a mount that a driver makes in its container never reaches a pod.
pub async fn make_root_shared(host: &dyn Host, root: &Path) -> Result<()> {
    let path = host.canonicalize(root).await?;
    let table = host.mount_table().await?;
    if table.containing(&path).is_some_and(|entry| entry.shared.is_some()) {
        return Ok(());
    }
    host.bind(&Bind::new(&path, &path)).await?;
    host.set_propagation(&path, Propagation::Shared, true).await
}

/// Whether files below `path` carry SELinux labels of their own (07 §11): SELinux is on, and the path's mount
/// has the option `seclabel`.
pub async fn supports_selinux(host: &dyn Host, path: &Path) -> Result<bool> {
    if !host.selinux_enabled().await {
        return Ok(false);
    }
    Ok(host.mount_of(path).await?.has_option("seclabel"))
}

/// The SELinux label that the file system of `path` was mounted with (`context=`).
pub async fn mount_context(host: &dyn Host, path: &Path) -> Result<Option<String>> {
    Ok(host.mount_of(path).await?.selinux_context().map(str::to_owned))
}

fn stale(path: &Path) -> crate::HostError {
    let source = std::io::Error::from_raw_os_error(crate::errno::ESTALE);
    crate::HostError::os(crate::Action::Stat, path, source)
}
