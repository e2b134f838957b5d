//! Sub-paths: showing a container one directory or file of a volume, and nothing outside of it.
//!
//! The volume's content belongs to the user, who may replace directories by symlinks at any time. So the path
//! is opened once, beneath the volume's root by the kernel's rules, and the opened file is bound: no name is
//! resolved twice. Touches the volume (missing directories are created) and `pods/<uid>/volume-subpaths`.

use std::path::{Component, Path, PathBuf};

use api::names::{ContainerName, PodUid, SpecName};
use host::cleanup::Check;
use host::{Host, HostError, OpenedBeneath};
use plugin_api::paths::Paths;

/// A sub-path in one volume mount of one container.
#[derive(Debug, Clone)]
pub struct SubPath<'a> {
    pub pod: &'a PodUid,
    /// The volume's name.
    pub inner: &'a SpecName,
    /// The path of the pod's volume on this node.
    pub volume_path: &'a Path,
    pub container: &'a ContainerName,
    /// The index of the container's volume mount.
    pub index: usize,
    /// The path below the volume's root.
    pub sub_path: &'a Path,
}

/// Why a sub-path cannot be shown. The texts name no path of the host: users see them.
#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    /// The path begins with a slash.
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    /// The path contains `..`.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Backwards(String),
    /// The missing directories of a sub-path could not be created.
    #[error("failed to create subPath directory")]
    Create(#[source] HostError),
    /// The path could not be opened beneath the volume, or not be bound.
    #[error("failed to prepare subPath")]
    Prepare(#[source] HostError),
}

/// Refuses an absolute path or one with `..`, before anything is touched.
pub fn check(sub_path: &str) -> Result<&Path, SubPathError> {
    let path = Path::new(sub_path);
    if path.is_absolute() {
        return Err(SubPathError::Absolute(sub_path.to_owned()));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(SubPathError::Backwards(sub_path.to_owned()));
    }
    Ok(path)
}

/// Binds the sub-path for the container and returns the path of the bind.
///
/// A missing sub-path becomes a directory with the mode of the volume's root, including setgid, so that a pod
/// with an fsGroup can write to it. A bind of the same file by an earlier call is reused; a bind of another
/// file (the path was replaced since) is unmounted first.
pub async fn prepare(host: &dyn Host, paths: &Paths, sub: &SubPath<'_>) -> Result<PathBuf, SubPathError> {
    let opened = match host.open_beneath(sub.volume_path, sub.sub_path).await {
        Ok(opened) => opened,
        Err(error) if error.is_not_found() => {
            create(host, sub).await.map_err(SubPathError::Create)?;
            let again = host.open_beneath(sub.volume_path, sub.sub_path).await;
            again.map_err(SubPathError::Prepare)?
        }
        Err(error) => return Err(SubPathError::Prepare(error)),
    };
    let target = paths.subpath(sub.pod, sub.inner, sub.container, sub.index);
    show(host, &opened, &target).await.map_err(SubPathError::Prepare)?;
    Ok(target)
}

async fn create(host: &dyn Host, sub: &SubPath<'_>) -> Result<(), HostError> {
    let mode = host.metadata(sub.volume_path).await?.mode;
    host.make_dirs_beneath(sub.volume_path, sub.sub_path, mode).await
}

async fn show(host: &dyn Host, opened: &OpenedBeneath, target: &Path) -> Result<(), HostError> {
    if shows_already(host, opened, target).await? {
        return Ok(());
    }
    fit_leaf(host, opened, target).await?;
    let bound = host.bind_opened(opened, target).await;
    if bound.is_err() {
        // The remains of a failed attempt must not look like a sub-path in use. The bind's error is the one to
        // return.
        let _ = host::cleanup::mount_point(host, target, Check::Extensive).await;
        if let Some(container) = target.parent() {
            let _ = host.remove_dir(container).await;
        }
    }
    bound
}

/// Whether the target is a bind of that very file. A bind of another file is unmounted.
async fn shows_already(host: &dyn Host, opened: &OpenedBeneath, target: &Path) -> Result<bool, HostError> {
    match host.is_mount_point(target).await {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error),
    }
    if host.symlink_metadata(target).await?.is_same_file(&opened.metadata) {
        return Ok(true);
    }
    host.unmount(target).await?;
    Ok(false)
}

/// Creates the empty directory or file for the bind; one of the other kind, left by an earlier bind, is
/// replaced.
async fn fit_leaf(host: &dyn Host, opened: &OpenedBeneath, target: &Path) -> Result<(), HostError> {
    match host.symlink_metadata(target).await {
        Ok(there) if there.is_dir() && !opened.metadata.is_dir() => host.remove_dir(target).await?,
        Ok(there) if !there.is_dir() && opened.metadata.is_dir() => host.remove_file(target).await?,
        Ok(_) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    host::bind::make_target(host, target, opened.metadata.kind).await
}

/// Unmounts and removes all sub-paths of one volume of a pod. To be called before the volume's own tear-down.
///
/// Nothing below the binds is read: that is the user's content. Stale binds (of an NFS server that is gone, or
/// of a FUSE daemon that died) are unmounted without a stat.
pub async fn clean(host: &dyn Host, paths: &Paths, pod: &PodUid, inner: &SpecName) -> Result<(), HostError> {
    let volume = paths.volume_subpaths(pod, inner);
    let containers = match host.read_dir(&volume).await {
        Ok(containers) => containers,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error),
    };
    for container in containers {
        if container.kind != host::FileKind::Directory {
            continue;
        }
        let container = volume.join(container.name);
        for index in host.read_dir(&container).await? {
            host::cleanup::mount_point(host, &container.join(index.name), Check::Extensive).await?;
        }
        host.remove_dir(&container).await?;
    }
    host.remove_dir(&volume).await?;
    match host.remove_dir(&paths.pod_subpaths(pod)).await {
        // Sub-paths of other volumes of the pod are left.
        Err(error) if error.is_not_empty() || error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}
