//! Removes directories of deleted pods, but never anything that could be a volume's content.

use std::path::{Path, PathBuf};

use api::names::PodUid;
use host::{FileKind, Host, Removal};

/// A volume of the pod that is still mounted below its directory, or why that cannot be known.
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

/// Removes a pod's directory. A mount or a volume's file keeps it, which is logged.
pub(super) async fn pod(host: &dyn Host, root: &Path, pod: &PodUid) {
    let directory = root.join("pods").join(pod.as_str());
    if let Err(error) = remove(host, &directory).await {
        tracing::warn!(%error, pod = %pod, "cannot remove the pod's directory; it stays");
    }
}

async fn remove(host: &dyn Host, pod: &Path) -> Result<(), host::HostError> {
    // Volumes first, and only their empty directories: anything below may be content.
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

#[cfg(test)]
mod tests {
    use host::linux::LinuxHost;

    use super::*;

    /// The files, links and (with a slash at the end) directories of pods that are left below a root after the pod `gone` was
    /// swept.
    async fn swept(made: &[&str]) -> Vec<String> {
        let root = tempfile::tempdir().expect("a directory");
        let (host, pods) = (LinuxHost::new(), root.path().join("pods"));
        for name in made {
            let path = pods.join(name);
            let directory =
                if name.ends_with('/') { path.as_path() } else { path.parent().expect("it has one") };
            host.make_dir_all(directory, 0o750).await.expect("it is empty");
            if name.ends_with(".link") {
                host.symlink(root.path(), &path).await.expect("its directory is there");
            } else if directory != path {
                host.write_file(&path, b"", 0o640).await.expect("its directory is there");
            }
        }
        pod(&host, root.path(), &"gone".into()).await;
        let mut left: Vec<String> = made.iter().map(ToString::to_string).collect();
        for (index, name) in made.iter().enumerate().rev() {
            if host.symlink_metadata(&pods.join(name.trim_end_matches('/'))).await.is_err() {
                left.remove(index);
            }
        }
        left
    }

    #[tokio::test]
    async fn empty_directories_of_volumes_go_and_with_them_all_that_is_the_pods_own() {
        let made = [
            "gone/volumes/kubernetes.io~csi/pv/mount/",
            "gone/volumes/kubernetes.io~nfs/data/",
            "gone/volume-subpaths/data/main/0",
            "gone/plugins/kubernetes.io~empty-dir/wrapped_data/ready",
            "gone/etc-hosts",
            "other/volumes/kubernetes.io~nfs/data/",
        ];
        assert_eq!(swept(&made).await, ["other/volumes/kubernetes.io~nfs/data/"]);
    }

    #[tokio::test]
    async fn pod_directory_with_a_volume_file_is_kept() {
        for kept in [
            "gone/volumes/kubernetes.io~csi/pv/vol_data.json",
            "gone/volumes/kubernetes.io~csi/pv/mount/file",
            "gone/volumes/kubernetes.io~nfs/data/deep/file",
            "gone/volumes/kubernetes.io~nfs/data.link",
            "gone/volumes/file",
        ] {
            assert_eq!(swept(&[kept, "gone/etc-hosts"]).await, [kept, "gone/etc-hosts"]);
        }
    }
}
