//! Whether the kernel shows the volumes that the node reports as mounted. Reads the mount table and looks at paths.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::Result;
use api::VolumeMode;
use harness::observe;

use super::world::World;

/// The plugins whose file systems are a mount of their own at the pod's path.
const MOUNTED: [&str; 3] = ["kubernetes.io/csi", "kubernetes.io/local-volume", "kubernetes.io/nfs"];

impl World {
    /// The volumes of pods that the node has and the kernel does not show, a line each.
    pub(super) async fn unseen_volumes(&self) -> Result<Vec<String>> {
        let table = observe::snapshot()?;
        let is_mounted = |path: &Path| table.iter().any(|mount| mount.target == path);
        let mut unseen = Vec::new();
        for pod in &self.pods {
            for (name, volume) in self.node_of(pod).mounted_volumes(pod).await? {
                let path = volume.mounted.path.as_path();
                let lacks = match (volume.mode, volume.plugin.as_str()) {
                    (VolumeMode::Block, _) if !is_block_device(path) => "there is no block device",
                    (VolumeMode::Filesystem, plugin) if MOUNTED.contains(&plugin) && !is_mounted(path) => {
                        "nothing is mounted"
                    }
                    // The runtime mounts images, and not the node.
                    (VolumeMode::Filesystem, _) if !path.as_os_str().is_empty() && !path.exists() => {
                        "there is nothing"
                    }
                    _ => continue,
                };
                unseen.push(format!("{pod}/{name}: {lacks} at {}", path.display()));
            }
        }
        Ok(unseen)
    }
}

/// Whether a path, or the device that its link leads to, is one.
fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}
