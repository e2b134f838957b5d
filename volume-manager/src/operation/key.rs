//! The keys of operations, and which keys exclude each other.

use std::fmt;

use api::names::{NodeName, PluginName, PodUid, VolumeName};
use serde::{Deserialize, Serialize};

use super::Operation;

/// The volume that an operation locks while it runs, for one pod or all, on one node or all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub volume: VolumeName,
    /// The pod; `None` for all.
    pub pod: Option<PodUid>,
    /// The node; `None` for all. Only the attach/detach controller sets it.
    pub node: Option<NodeName>,
}

impl Key {
    /// Excludes all operations on the volume.
    pub fn volume(volume: &VolumeName) -> Self {
        Self { volume: volume.clone(), pod: None, node: None }
    }

    /// The volume in one pod.
    pub fn pod(volume: &VolumeName, pod: &PodUid) -> Self {
        Self { volume: volume.clone(), pod: Some(pod.clone()), node: None }
    }

    /// The volume on one node.
    pub fn node(volume: &VolumeName, node: &NodeName) -> Self {
        Self { volume: volume.clone(), pod: None, node: Some(node.clone()) }
    }

    /// Whether two operations with these keys must not run at the same time: the volume is the same, and
    /// neither the pods nor the nodes differ. A key without a pod or a node excludes every pod or node.
    pub fn excludes(&self, other: &Self) -> bool {
        fn meet<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        self.volume == other.volume
            && meet(self.pod.as_ref(), other.pod.as_ref())
            && meet(self.node.as_ref(), other.node.as_ref())
    }

    /// The key of an operation.
    ///
    /// A mount excludes every operation on the volume if several pods can share it: it may stage, and the stage
    /// is theirs, too. An unmount excludes operations for its pod and for the whole volume: pods leave a volume
    /// in parallel, but never while it is mounted for another, staged, expanded or unstaged.
    pub fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Attach(attach) => {
                Self::on_node(&attach.volume, &attach.node, attach.spec.may_attach_to_many())
            }
            Operation::Detach(detach) => Self::on_node(&detach.volume, &detach.node, {
                detach.spec.as_ref().is_none_or(|spec| spec.may_attach_to_many())
            }),
            Operation::Mount(mount) | Operation::Map(mount)
                if belongs_to_pod(&mount.volume, &mount.plugin, &mount.uid) =>
            {
                Self::pod(&mount.volume, &mount.uid)
            }
            Operation::Mount(mount) | Operation::Map(mount) => Self::volume(&mount.volume),
            Operation::Unmount(unmount) | Operation::Unmap(unmount) => {
                Self::pod(&unmount.volume, &unmount.pod)
            }
            Operation::Verify(_)
            | Operation::UnmountDevice(_)
            | Operation::UnmapDevice(_)
            | Operation::Expand(_) => Self::volume(operation.volume()),
        }
    }

    fn on_node(volume: &VolumeName, node: &NodeName, many: bool) -> Self {
        if many { Self::node(volume, node) } else { Self::volume(volume) }
    }
}

/// Whether the unique name contains the pod's UID: such a volume is not shared by pods.
fn belongs_to_pod(volume: &VolumeName, plugin: &PluginName, pod: &PodUid) -> bool {
    let name = volume.as_str().strip_prefix(plugin.as_str()).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| name.strip_prefix(pod.as_str()).is_some_and(|rest| rest.starts_with('-')))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationName {
    /// `verify_controller_attached_volume`
    #[serde(rename = "verify_controller_attached_volume")]
    Verify,
    /// `volume_attach`
    #[serde(rename = "volume_attach")]
    Attach,
    /// `volume_detach`
    #[serde(rename = "volume_detach")]
    Detach,
    /// `volume_mount`
    #[serde(rename = "volume_mount")]
    Mount,
    /// `map_volume`
    #[serde(rename = "map_volume")]
    Map,
    /// `volume_unmount`
    #[serde(rename = "volume_unmount")]
    Unmount,
    /// `unmap_volume`
    #[serde(rename = "unmap_volume")]
    Unmap,
    /// `unmount_device`
    UnmountDevice,
    /// `unmap_device`
    UnmapDevice,
    /// `volume_fs_resize`
    #[serde(rename = "volume_fs_resize")]
    Expand,
}

impl OperationName {
    /// The name in metrics and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verify => "verify_controller_attached_volume",
            Self::Attach => "volume_attach",
            Self::Detach => "volume_detach",
            Self::Mount => "volume_mount",
            Self::Map => "map_volume",
            Self::Unmount => "volume_unmount",
            Self::Unmap => "unmap_volume",
            Self::UnmountDevice => "unmount_device",
            Self::UnmapDevice => "unmap_device",
            Self::Expand => "volume_fs_resize",
        }
    }
}

impl fmt::Display for OperationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(volume: &str, pod: Option<&str>, node: Option<&str>) -> Key {
        Key { volume: volume.into(), pod: pod.map(PodUid::from), node: node.map(NodeName::from) }
    }

    #[test]
    fn a_wildcard_excludes_everything_of_its_volume() {
        let all = key("v", None, None);
        let (a, b) = (key("v", Some("a"), None), key("v", Some("b"), None));
        assert!(all.excludes(&a) && a.excludes(&all) && a.excludes(&a));
        assert!(!a.excludes(&b), "pods leave a volume in parallel");
        assert!(!all.excludes(&key("w", None, None)), "volumes have nothing to do with each other");
    }

    #[test]
    fn keys_distinguish_nodes_like_pods() {
        let (one, two) = (key("v", None, Some("1")), key("v", None, Some("2")));
        assert!(!one.excludes(&two));
        assert!(key("v", None, None).excludes(&two));
        assert!(key("v", Some("a"), None).excludes(&two), "each leaves open what the other names");
    }

    #[test]
    fn only_volumes_named_after_their_pod_belong_to_it() {
        let (plugin, pod) = (PluginName::new("kubernetes.io/empty-dir"), PodUid::new("u1"));
        assert!(belongs_to_pod(&"kubernetes.io/empty-dir/u1-cache".into(), &plugin, &pod));
        assert!(!belongs_to_pod(&"kubernetes.io/empty-dir/u12-cache".into(), &plugin, &pod));
        assert!(!belongs_to_pod(&"kubernetes.io/csi/d^u1-h".into(), &"kubernetes.io/csi".into(), &pod));
    }
}
