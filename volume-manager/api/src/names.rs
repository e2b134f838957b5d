//! A type for each kind of name, so that they cannot be mixed up, and the computed names among them. Copies of a name
//! share its text.
//!
//! Nothing here reads or writes anything. A name that becomes part of a path is checked once, with
//! [`is_path_component`], when the manager takes in its object, and not each time a path is made.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

macro_rules! name {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The string is not checked.
            pub fn new(name: impl AsRef<str>) -> Self {
                Self(name.as_ref().into())
            }

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
                Self(name.into())
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                Self(name.into())
            }
        }
    };
}

name! {
    /// The UID of a pod. The manager identifies pods by it, and names their directories after it.
    PodUid
}
name! {
    /// The name of this node in the API.
    NodeName
}
name! {
    /// The unique name of a volume on this node: `<plugin>/<the plugin's name for it>`, or
    /// `<plugin>/<pod uid>-<inner name>` for a volume of one pod.
    VolumeName
}
name! {
    /// The inner name of a volume, the kubelet's `Spec.Name()`: the name of the PersistentVolume, or of an inline
    /// volume in the pod. Directories are named after it.
    SpecName
}
name! {
    /// The name of a volume in `pod.spec.volumes`, which containers refer to.
    OuterName
}
name! {
    /// The name of a CSI driver, in its CSIDriver object and its registration.
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
    /// The name of the plugin's directories: every `/` becomes `~`.
    pub fn escaped(&self) -> String {
        escape(&self.0)
    }

    /// The plugin of a directory, from the directory's [`escaped`](Self::escaped) name.
    pub fn from_escaped(directory: &str) -> Self {
        Self::new(directory.replace('~', "/"))
    }
}

impl VolumeName {
    /// The name of a volume that is the same for every pod on this node.
    pub fn shared(plugin: &PluginName, volume: &str) -> Self {
        Self::new(format!("{plugin}/{volume}"))
    }

    /// The name of a volume that belongs to one pod: neither attachable nor device-mountable.
    pub fn of_pod(plugin: &PluginName, pod: &PodUid, inner: &SpecName) -> Self {
        Self::new(format!("{plugin}/{pod}-{inner}"))
    }

    /// The plugin (`a/b`), and the plugin's name for the volume, which may contain further slashes. `None` if there
    /// are fewer than two slashes.
    pub fn split(&self) -> Option<(PluginName, &str)> {
        let second = self.0.match_indices('/').nth(1)?.0;
        Some((PluginName::new(&self.0[..second]), &self.0[second + 1..]))
    }
}

impl AttachmentName {
    /// The name of the VolumeAttachment of a volume to a node: a hash of handle, driver and node without separators,
    /// as the external attacher and the kubelet both compute it.
    pub fn of(handle: &VolumeHandle, driver: &DriverName, node: &NodeName) -> Self {
        Self::new(format!("csi-{}", sha256_hex(&[handle.as_str(), driver.as_str(), node.as_str()])))
    }
}

impl VolumeHandle {
    /// The handle that the node gives to an inline ephemeral volume.
    pub fn ephemeral(pod: &PodUid, inner: &SpecName) -> Self {
        Self::new(format!("csi-{}", sha256_hex(&[pod.as_str(), inner.as_str()])))
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

/// Replaces every `/` by `~`, so that the name is one component of a path.
pub fn escape(name: &str) -> String {
    name.replace('/', "~")
}

/// Whether a name is exactly one component of a path, and cannot lead out of its directory: not empty, not `.` or
/// `..`, and without a slash or a zero byte.
pub fn is_path_component(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

pub(crate) fn sha256_hex(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
    }
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    hash.finalize().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_is_known_from_its_directory() {
        let plugin = PluginName::new("kubernetes.io/empty-dir");
        assert_eq!(plugin.escaped(), "kubernetes.io~empty-dir");
        assert_eq!(PluginName::from_escaped(&plugin.escaped()), plugin);
    }

    #[test]
    fn volume_name_splits_at_its_second_slash() {
        let name = VolumeName::new("kubernetes.io/nfs/server/export/a");
        assert_eq!(name.split(), Some((PluginName::new("kubernetes.io/nfs"), "server/export/a")));
        assert_eq!(VolumeName::new("kubernetes.io/nfs").split(), None);
    }

    #[test]
    fn hashes_have_no_separator_between_the_parts() {
        let one = AttachmentName::of(&"ab".into(), &"c".into(), &"d".into());
        let other = AttachmentName::of(&"a".into(), &"bc".into(), &"d".into());
        assert_eq!(one, other);
        // sha256("abcd")
        assert_eq!(one.as_str(), "csi-88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589");
        assert_eq!(VolumeHandle::ephemeral(&"ab".into(), &"cd".into()).as_str(), one.as_str());
    }

    #[test]
    fn path_component_stays_in_its_directory() {
        for good in ["a", "a.b", "...", "pvc-1"] {
            assert!(is_path_component(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "/", "a\0"] {
            assert!(!is_path_component(bad), "{bad:?}");
        }
    }
}
