//! The meaning of a path below a kubelet's root: target, staging path, and the files beside them.
//!
//! The root differs from run to run, so a path in a trace is recognised by its last components.

/// The plugin directory that CSI volumes live in below a pod.
const CSI: &str = "kubernetes.io~csi";

/// A path that a CSI call may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place<'a> {
    /// `pods/<uid>/volumes/kubernetes.io~csi/<inner>/mount`
    Target(Of<'a>),
    /// `plugins/kubernetes.io/csi/volumeDevices/publish/<inner>/<uid>`
    BlockTarget(Of<'a>),
    /// `plugins/kubernetes.io/csi/<driver>/<hash>/globalmount`
    Staging {
        /// The directory of `globalmount` and of its `vol_data.json`.
        parent: &'a str,
    },
    /// `plugins/kubernetes.io/csi/volumeDevices/staging/<inner>`
    BlockStaging {
        /// The kubelet's root.
        root: &'a str,
        /// The volume's directory name.
        inner: &'a str,
    },
}

/// The pod and the volume of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Of<'a> {
    /// The kubelet's root.
    pub root: &'a str,
    pub pod: &'a str,
    /// The volume's directory name.
    pub inner: &'a str,
}

impl<'a> Place<'a> {
    /// Parses a path; `None` if the manager gives no such path to a call.
    pub fn of(path: &'a str) -> Option<Place<'a>> {
        let (mut parts, mut length) = ([""; 7], 0);
        for (at, part) in path.rsplitn(7, '/').enumerate() {
            (parts[at], length) = (part, at + 1);
        }
        match &parts[..length] {
            ["mount", inner, plugin, "volumes", pod, "pods", root] if *plugin == CSI => {
                Some(Place::Target(Of { root, pod, inner }))
            }
            [pod, inner, "publish", "volumeDevices", "csi", "kubernetes.io", root] => {
                let root = root.strip_suffix("/plugins")?;
                Some(Place::BlockTarget(Of { root, pod, inner }))
            }
            [inner, "staging", "volumeDevices", "csi", "kubernetes.io", "plugins", root] => {
                Some(Place::BlockStaging { root, inner })
            }
            ["globalmount", _hash, _driver, "csi", "kubernetes.io", "plugins", _root] => {
                Some(Place::Staging { parent: path.strip_suffix("/globalmount")? })
            }
            _ => None,
        }
    }

    /// The pod of a target; a staging path has none.
    pub fn pod(self) -> Option<&'a str> {
        match self {
            Place::Target(target) | Place::BlockTarget(target) => Some(target.pod),
            Place::Staging { .. } | Place::BlockStaging { .. } => None,
        }
    }

    /// The path of the record (`vol_data.json`) from which the manager undoes the step.
    pub fn metadata(self) -> String {
        match self {
            Place::Target(Of { root, pod, inner }) => {
                format!("{root}/pods/{pod}/volumes/{CSI}/{inner}/vol_data.json")
            }
            Place::Staging { parent } => format!("{parent}/vol_data.json"),
            Place::BlockTarget(Of { root, inner, .. }) | Place::BlockStaging { root, inner } => {
                format!("{}/{inner}/data/vol_data.json", devices(root))
            }
        }
    }
}

impl Of<'_> {
    /// The bind of the device in the global map, one for each pod, which the manager keeps open with a loop device.
    pub fn map_entry(&self) -> String {
        format!("{}/{}/dev/{}", devices(self.root), self.inner, self.pod)
    }

    /// The pod's link to its block volume.
    pub fn link(&self) -> String {
        format!("{}/pods/{}/volumeDevices/{CSI}/{}", self.root, self.pod, self.inner)
    }

    /// The directory of the pod's sub-path mounts of this volume.
    pub fn subpaths(&self) -> String {
        format!("{}/pods/{}/volume-subpaths/{}/", self.root, self.pod, self.inner)
    }
}

/// The global map of a block volume, with a trailing slash; it has an entry for each pod.
pub fn map_directory(root: &str, inner: &str) -> String {
    format!("{}/{inner}/dev/", devices(root))
}

fn devices(root: &str) -> String {
    format!("{root}/plugins/kubernetes.io/csi/volumeDevices")
}

/// Everything before the last name of a path.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_of_a_call_is_recognised() {
        let target = Of { root: "/r/kl", pod: "uid-a", inner: "pv-v1" };
        assert_eq!(
            Place::of("/r/kl/pods/uid-a/volumes/kubernetes.io~csi/pv-v1/mount"),
            Some(Place::Target(target))
        );
        assert_eq!(
            Place::of("/r/kl/plugins/kubernetes.io/csi/volumeDevices/publish/pv-v1/uid-a"),
            Some(Place::BlockTarget(target))
        );
        assert_eq!(
            Place::of("$ROOT/kl/plugins/kubernetes.io/csi/d.example.com/$SHA256/globalmount"),
            Some(Place::Staging { parent: "$ROOT/kl/plugins/kubernetes.io/csi/d.example.com/$SHA256" })
        );
        assert_eq!(
            Place::of("/r/kl/plugins/kubernetes.io/csi/volumeDevices/staging/pv-v1"),
            Some(Place::BlockStaging { root: "/r/kl", inner: "pv-v1" })
        );
        for other in ["", "/", "/srv/target", "/r/kl/pods/uid-a/volumes/kubernetes.io~nfs/x/mount"] {
            assert_eq!(Place::of(other), None, "{other}");
        }
    }
}
