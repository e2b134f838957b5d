//! Directories of pods that are gone: removed, but never with anything that could be a volume's content.

use std::path::{Path, PathBuf};

use host::{FileKind, Host, Removal};
use volume_manager::names::PodUid;

/// A volume of the pod that still is mounted below its directory, or why that cannot be known.
pub(super) async fn volume_left(host: &dyn Host, root: &Path, pod: &PodUid) -> Option<String> {
    let volumes = root.join("pods").join(pod.as_str()).join("volumes");
    match host.mount_table().await {
        Ok(table) => {
            let below = table.below(&volumes).next();
            below.map(|mount| format!("`{}` is still mounted", mount.mount_point.display()))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Removes a pod's directory. What holds a mount or a file of a volume stays, and the log says so.
pub(super) async fn pod(host: &dyn Host, root: &Path, pod: &PodUid) {
    let directory = root.join("pods").join(pod.as_str());
    if let Err(error) = remove(host, &directory).await {
        tracing::warn!(%error, pod = %pod, "the pod's directory stays");
    }
}

async fn remove(host: &dyn Host, pod: &Path) -> Result<(), host::HostError> {
    // Volumes first, and of them only empty directories: nothing below this point may hold content.
    for volume in grandchildren(host, &pod.join("volumes")).await? {
        let mount = volume.join("mount");
        for directory in [mount, volume] {
            match host.remove_dir(&directory).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
    }
    host.remove_tree(&pod.join("volumes"), Removal::DirsOnly).await?;
    host.remove_tree(pod, Removal::OneFilesystem).await
}

async fn grandchildren(host: &dyn Host, directory: &Path) -> Result<Vec<PathBuf>, host::HostError> {
    let mut found = Vec::new();
    for child in children(host, directory).await? {
        found.extend(children(host, &child).await?);
    }
    Ok(found)
}

async fn children(host: &dyn Host, directory: &Path) -> Result<Vec<PathBuf>, host::HostError> {
    match host.read_dir(directory).await {
        Ok(entries) => {
            let directories = entries.into_iter().filter(|entry| entry.kind == FileKind::Directory);
            Ok(directories.map(|entry| directory.join(entry.name)).collect())
        }
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
