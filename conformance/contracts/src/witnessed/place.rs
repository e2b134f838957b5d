//! The meaning of a path for a node: the volume by the name of its directory, and whether mounts there are the node's or
//! the driver's.

use std::path::Path;

/// Whether a path is in a directory in which volumes are mounted by contract between node and driver.
pub(super) fn is_contract(root: &str, path: &str) -> bool {
    let Some(below) = path.strip_prefix(root) else { return false };
    // `kubernetes.io/csi`, `kubernetes.io~local-volume`.
    below.starts_with("/pods/") || below.starts_with("/plugins/kubernetes.io")
}

/// Whether all of those directories are below a path: a mount there covers them.
pub(super) fn is_above_contract(root: &str, path: &str) -> bool {
    let (root, path) = (Path::new(root), Path::new(path));
    path != Path::new("/") && (root.starts_with(path) || path == root.join("plugins"))
}

/// Whether a mount at a path is never the node's doing: where drivers stage and publish, and above all volumes.
pub(super) fn is_mounted_by_drivers(root: &str, path: &str) -> bool {
    let below = path.strip_prefix(root).unwrap_or_default();
    let parts: Vec<&str> = below.split('/').skip(1).collect();
    let is_drivers = matches!(
        parts.as_slice(),
        ["pods", _, "volumes", "kubernetes.io~csi", _, "mount"]
            | ["plugins", "kubernetes.io", "csi", "volumeDevices", "staging", _]
            | ["plugins", "kubernetes.io", "csi", "volumeDevices", "publish", _, _]
            | ["plugins", "kubernetes.io", "csi", _, _, "globalmount"]
    );
    is_drivers || is_above_contract(root, path)
}

/// The name of the volume that a path is of: that of its PersistentVolume, or for a staging path the hash in it.
pub(super) fn volume_in(path: &str) -> Option<&str> {
    let parts =
        |rest: &'static str| path.find(rest).map(|at| path[at + 1..].split('/').collect::<Vec<&str>>());
    let pod = parts("/pods/").and_then(|parts| match parts.as_slice() {
        ["pods", _, "volumes", "kubernetes.io~csi", name, "mount"]
        | ["pods", _, "volumes" | "volumeDevices", _, name]
        | ["pods", _, "volume-subpaths", name, _, _] => Some(*name),
        _ => None,
    });
    let plugin = || {
        parts("/plugins/kubernetes.io").and_then(|parts| match parts.as_slice() {
            ["plugins", "kubernetes.io", "csi", "volumeDevices", "staging", name]
            | ["plugins", "kubernetes.io", "csi", "volumeDevices", "publish", name, _]
            | ["plugins", "kubernetes.io", "csi", "volumeDevices", name, "dev"]
            | ["plugins", "kubernetes.io", "csi", "volumeDevices", name, "dev", _]
            | ["plugins", "kubernetes.io", "local-volume", "mounts", name]
            | ["plugins", "kubernetes.io~local-volume", "volumeDevices", name]
            | ["plugins", "kubernetes.io~local-volume", "volumeDevices", name, _] => Some(*name),
            ["plugins", "kubernetes.io", "csi", _, hash, "globalmount"] => Some(*hash),
            _ => None,
        })
    };
    pod.or_else(plugin)
}
