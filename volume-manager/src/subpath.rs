//! Sub-paths: showing a container one directory or file of a volume, and nothing outside of it.
//!
//! What is in the volume belongs to the user, who may swap links while we look. So the path is opened
//! once, below the volume's root, by the kernel's own rules, and what was opened is bound: no name is
//! followed twice. Touches the volume (missing directories are made) and `pods/<uid>/volume-subpaths`.

use std::path::{Component, Path, PathBuf};

use api::names::{ContainerName, PodUid, SpecName};
use host::cleanup::Check;
use host::{Host, HostError, OpenedBeneath};
use plugin_api::paths::Paths;

/// One sub-path of one volume mount of one container.
#[derive(Debug, Clone)]
pub struct SubPath<'a> {
    pub pod: &'a PodUid,
    /// The volume.
    pub inner: &'a SpecName,
    /// Where the volume is on this node.
    pub volume_path: &'a Path,
    pub container: &'a ContainerName,
    /// Which of the container's volume mounts.
    pub index: usize,
    /// The path below the volume's root.
    pub sub_path: &'a Path,
}

/// Why a sub-path is not to be had. The texts name no path of the host: users see them.
#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    /// It begins with a slash.
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    /// It contains `..`.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Backwards(String),
    /// Its missing directories could not be made.
    #[error("failed to create subPath directory")]
    Create(#[source] HostError),
    /// It could not be opened below the volume, or not be bound.
    #[error("failed to prepare subPath")]
    Prepare(#[source] HostError),
}

/// Refuses what cannot be a path below a volume, before anything is touched.
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

/// Binds the sub-path where the container will get it from, and says where that is.
///
/// A missing sub-path becomes a directory with the mode of the volume's root, setgid and all, so that a
/// pod with an fsGroup can write to it. An earlier bind of the same file is used again; one of another
/// file (the path was replaced since) is taken away first.
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
        // What is left of an attempt that failed must not look like a sub-path in use. The first error
        // is the one to tell.
        let _ = host::cleanup::mount_point(host, target, Check::Extensive).await;
        if let Some(container) = target.parent() {
            let _ = host.remove_dir(container).await;
        }
    }
    bound
}

/// Whether the target is a bind of that very file. A bind of another one is unmounted.
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

/// Makes the empty directory or file that the bind goes onto; the leaf of an earlier bind may be of the
/// other kind.
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

/// Takes away every sub-path of one volume of a pod. It runs before the volume's own tear-down, which
/// must not find a bind of it anywhere.
///
/// It goes no deeper than the binds: what they show is the user's. Stale binds (of a server that is gone,
/// of a FUSE daemon that died) are unmounted without being asked.
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
        // Other volumes have sub-paths there still.
        Err(error) if error.is_not_empty() || error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}
