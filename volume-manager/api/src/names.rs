//! Names that must not be mixed up, each a type of its own, and how some of them are made.
//!
//! A name is only a string with a meaning: nothing here reads or writes anything. Names that become part of
//! a path are checked where objects enter (see [`is_path_component`]), not each time a path is made.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

macro_rules! name {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            #[doc = concat!("Takes a string for a [`", stringify!($name), "`].")]
            pub fn new(name: impl Into<String>) -> Self {
                Self(name.into())
            }

            /// The name as it is written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                Self(name)
            }
        }
    };
}

name! {
    /// The UID of a pod, which names its directory and is its identity everywhere in the manager.
    PodUid
}
name! {
    /// The name of this node in the API.
    NodeName
}
name! {
    /// The unique name of a volume on this node: `<plugin>/<what the plugin calls it>`, or
    /// `<plugin>/<pod uid>-<inner name>` for volumes that no two pods share.
    VolumeName
}
name! {
    /// The inner name of a volume, `Spec.Name()`: the name of the PersistentVolume, or for an inline volume
    /// its name in the pod. It names directories.
    SpecName
}
name! {
    /// The name of a volume in `pod.spec.volumes`, which containers refer to.
    OuterName
}
name! {
    /// The name of a CSI driver, as its CSIDriver object and its registration have it.
    DriverName
}
name! {
    /// A driver's own name for a volume: `volume_id` in every CSI call.
    VolumeHandle
}
name! {
    /// The qualified name of a plugin, such as `kubernetes.io/csi`.
    PluginName
}
name! {
    /// The name of a container in its pod.
    ContainerName
}
name! {
    /// The name of a VolumeAttachment.
    AttachmentName
}

impl PluginName {
    /// The name as a directory: every `/` becomes `~`.
    pub fn escaped(&self) -> String {
        escape(&self.0)
    }

    /// The plugin whose [`escaped`](Self::escaped) name a directory has.
    pub fn from_escaped(directory: &str) -> Self {
        Self(directory.replace('~', "/"))
    }
}

impl VolumeName {
    /// The name of a volume that every pod on this node shares.
    pub fn shared(plugin: &PluginName, volume: &str) -> Self {
        Self(format!("{plugin}/{volume}"))
    }

    /// The name of a volume that belongs to one pod: neither attachable nor device-mountable.
    pub fn of_pod(plugin: &PluginName, pod: &PodUid, inner: &SpecName) -> Self {
        Self(format!("{plugin}/{pod}-{inner}"))
    }

    /// Takes the name apart into its plugin (`a/b`) and what the plugin calls the volume, which may hold
    /// further slashes. `None` if there are fewer than two slashes.
    pub fn split(&self) -> Option<(PluginName, &str)> {
        let second = self.0.match_indices('/').nth(1)?.0;
        Some((PluginName::new(&self.0[..second]), &self.0[second + 1..]))
    }
}

impl AttachmentName {
    /// The name of the VolumeAttachment of one volume to one node: a hash of the three, put together
    /// without a separator, as the external attacher and the kubelet both compute it.
    pub fn of(handle: &VolumeHandle, driver: &DriverName, node: &NodeName) -> Self {
        Self(format!("csi-{}", sha256_hex(&[handle.as_str(), driver.as_str(), node.as_str()])))
    }
}

impl VolumeHandle {
    /// The handle the node makes up for an inline ephemeral volume.
    pub fn ephemeral(pod: &PodUid, inner: &SpecName) -> Self {
        Self(format!("csi-{}", sha256_hex(&[pod.as_str(), inner.as_str()])))
    }

    /// The name of the volume's staging directory.
    pub fn hashed(&self) -> String {
        sha256_hex(&[&self.0])
    }
}

/// A namespace and a name in it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Namespaced {
    pub namespace: String,
    pub name: String,
}

impl Namespaced {
    /// Puts a namespace and a name together.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Namespaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for Namespaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Replaces every `/` by `~`, so that a name is one component of a path.
pub fn escape(name: &str) -> String {
    name.replace('/', "~")
}

/// Whether a name is exactly one component of a path and stays in its directory: not empty, not `.` or
/// `..`, and without a slash or a zero byte. Everything that names a directory is asked this once.
pub fn is_path_component(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

pub(crate) fn sha256_hex(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_name_survives_being_a_directory() {
        let plugin = PluginName::new("kubernetes.io/empty-dir");
        assert_eq!(plugin.escaped(), "kubernetes.io~empty-dir");
        assert_eq!(PluginName::from_escaped(&plugin.escaped()), plugin);
    }

    #[test]
    fn a_volume_name_splits_at_its_second_slash() {
        let name = VolumeName::new("kubernetes.io/nfs/server/export/a");
        assert_eq!(name.split(), Some((PluginName::new("kubernetes.io/nfs"), "server/export/a")));
        assert_eq!(VolumeName::new("kubernetes.io/nfs").split(), None);
    }

    #[test]
    fn hashes_are_of_the_parts_without_a_separator() {
        let one = AttachmentName::of(&"ab".into(), &"c".into(), &"d".into());
        let other = AttachmentName::of(&"a".into(), &"bc".into(), &"d".into());
        assert_eq!(one, other);
        // sha256("abcd")
        assert_eq!(one.as_str(), "csi-88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589");
        assert_eq!(VolumeHandle::ephemeral(&"ab".into(), &"cd".into()).as_str(), one.as_str());
    }

    #[test]
    fn a_component_never_leaves_its_directory() {
        for good in ["a", "a.b", "...", "pvc-1"] {
            assert!(is_path_component(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "/", "a\0"] {
            assert!(!is_path_component(bad), "{bad:?}");
        }
    }
}
