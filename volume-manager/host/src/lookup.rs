//! Questions that take more than one look at the node. Touches a [`Host`].

use std::path::{Path, PathBuf};

use crate::door::{Bind, Host, Propagation};
use crate::error::Result;

/// Whether there is something at `path` (07 §5): by what the kernel knows of it, and where that says no, by
/// access as well, since some servers know a path there that they deny.
///
/// Whoever serves it is not asked: a server that is dead would keep the asker waiting until it is back. A mount
/// that says so itself is an error for which `is_corrupted_mount` is true: something is there.
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

/// Where else what `path` shows is mounted (07 §8). Missing or known to be dead: nowhere.
pub async fn mount_refs(host: &dyn Host, path: &Path) -> Result<Vec<PathBuf>> {
    // Resolving asks nobody who serves it either.
    match host.canonicalize(path).await {
        Ok(path) => host.references(&path).await,
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) if error.is_corrupted_mount() => {
            tracing::warn!(path = %path.display(), %error, "a mount that does not answer has no references");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The source of what is mounted at `path`, and how many mounts it has. `None`: nothing is mounted there.
pub async fn device_of_mount(host: &dyn Host, path: &Path) -> Result<Option<(PathBuf, usize)>> {
    // A path that cannot be resolved is looked for as it was written: its mount may be dead.
    let path = host.canonicalize(path).await.unwrap_or_else(|_| path.to_owned());
    let table = host.mount_table().await?;
    Ok(table.device_of(&path).map(|(source, count)| (PathBuf::from(source), count)))
}

/// Makes the mount that holds the node's root directory shared, making it a mount first if it is none of
/// its own (07 §10): without it, what a driver mounts in its container never reaches a pod.
pub async fn make_root_shared(host: &dyn Host, root: &Path) -> Result<()> {
    let path = host.canonicalize(root).await?;
    let table = host.mount_table().await?;
    if table.containing(&path).is_some_and(|entry| entry.shared.is_some()) {
        return Ok(());
    }
    host.bind(&Bind::new(&path, &path)).await?;
    host.set_propagation(&path, Propagation::Shared, true).await
}

/// Whether files below `path` carry SELinux labels of their own (07 §11): SELinux is on, and the mount that
/// holds the path says `seclabel`.
pub async fn supports_selinux(host: &dyn Host, path: &Path) -> Result<bool> {
    if !host.selinux_enabled().await {
        return Ok(false);
    }
    Ok(host.mount_of(path).await?.has_option("seclabel"))
}

/// The SELinux label the file system of `path` was mounted with (`context=`), if any.
pub async fn mount_context(host: &dyn Host, path: &Path) -> Result<Option<String>> {
    Ok(host.mount_of(path).await?.selinux_context().map(str::to_owned))
}

fn stale(path: &Path) -> crate::HostError {
    let source = std::io::Error::from_raw_os_error(crate::errno::ESTALE);
    crate::HostError::os(crate::Action::Stat, path, source)
}
