//! The words of a trace, as enums: reading a trace fails at an unknown word.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// An unknown word in a field of a trace that has one of a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    pub word: String,
    /// The known word that differs least.
    pub nearest: &'static str,
}

impl UnknownWord {
    /// None if the word is one of those known.
    pub fn check(word: &str, known: &[&'static str]) -> Result<(), Self> {
        if known.contains(&word) { Ok(()) } else { Err(Self::among(word, known)) }
    }

    fn among(word: &str, known: &[&'static str]) -> Self {
        let nearest = known.iter().min_by_key(|other| distance(word, other)).copied().unwrap_or_default();
        Self { word: word.to_owned(), nearest }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown word `{}`, the nearest known is `{}`", self.word, self.nearest)
    }
}

impl std::error::Error for UnknownWord {}

/// The edit distance of two words.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

macro_rules! words {
    ($($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* })*) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            const WORDS: &[&'static str] = &[$($word,)*];

            /// The word in a trace.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(UnknownWord::among(word, Self::WORDS)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Word(std::marker::PhantomData))
            }
        }
    )* };
}

/// Reads a word without a copy of it.
struct Word<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = UnknownWord>> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word of a trace")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
        word.parse().map_err(E::custom)
    }
}

words! {
    /// A change of the node that the manager announces.
    EffectKind {
        Mount = "mount",
        Bind = "bind",
        Remount = "remount",
        Umount = "umount",
        Link = "link",
        Unlink = "unlink",
        /// A loop device holds a file open.
        Lock = "lock",
        Unlock = "unlock",
        Mkdir = "mkdir",
        Rmdir = "rmdir",
        Write = "write",
        Remove = "remove",
        Rename = "rename",
        Chmod = "chmod",
        Chown = "chown",
        /// A file system was made.
        Format = "format",
        /// A file system was made larger.
        Grow = "grow",
    }

    /// What a manager comes to know after its start.
    Recovery {
        /// The volumes that an earlier manager left on disk.
        Volumes = "volumes",
        /// The volumes of all pods that were bound to the node at the start.
        Pods = "pods",
        /// The node's object, which was compared with the volumes on disk.
        Node = "node",
    }

    /// The change of a directory, a record or a link of the node between two calls.
    Meddling {
        Remove = "remove",
        Replace = "replace",
        Link = "link",
    }

    /// The manager's two states.
    World {
        Actual = "actual",
        Desired = "desired",
    }

    /// The two ends of an operation.
    Edge {
        Start = "start",
        End = "end",
    }

    /// An operation as back-off and metrics call it.
    OperationName {
        Verify = "verify_controller_attached_volume",
        Attach = "volume_attach",
        Detach = "volume_detach",
        Mount = "volume_mount",
        Map = "map_volume",
        Unmount = "volume_unmount",
        Unmap = "unmap_volume",
        UnmountDevice = "unmount_device",
        UnmapDevice = "unmap_device",
        Expand = "volume_fs_resize",
    }

    /// A request that changed an object of the API.
    Verb {
        Create = "create",
        Update = "update",
        Patch = "patch",
        Delete = "delete",
        /// A service account's token was asked for.
        Token = "token",
    }

    /// The client of the API that made a request.
    Client {
        Node = "node",
        /// The cluster side.
        Controller = "controller",
        Case = "case",
        /// The driver itself, at the API that it is given.
        Driver = "driver",
    }

    /// A kind of API object.
    ObjectKind {
        Pod = "Pod",
        Claim = "PersistentVolumeClaim",
        Volume = "PersistentVolume",
        Class = "StorageClass",
        CsiDriver = "CSIDriver",
        Node = "Node",
        Attachment = "VolumeAttachment",
        CsiNode = "CSINode",
        Secret = "Secret",
        ConfigMap = "ConfigMap",
        Service = "Service",
        AttributesClass = "VolumeAttributesClass",
        Snapshot = "VolumeSnapshot",
        SnapshotContent = "VolumeSnapshotContent",
        SnapshotClass = "VolumeSnapshotClass",
        GroupSnapshot = "VolumeGroupSnapshot",
        GroupSnapshotContent = "VolumeGroupSnapshotContent",
        GroupSnapshotClass = "VolumeGroupSnapshotClass",
        Event = "Event",
        /// A kind that neither node nor controllers look at; the object's name begins with it.
        Other = "Other",
    }

    /// The end of a wait for a pod's volumes.
    Awaited {
        Mounted = "mounted",
        Unmounted = "unmounted",
        Gone = "gone",
    }

    /// A process of the run.
    Role {
        Node = "node",
        Driver = "driver",
    }

    /// The start or the end of a process.
    Lifecycle {
        Start = "start",
        Exit = "exit",
        Kill = "kill",
        /// The process was asked to end.
        Terminate = "terminate",
        /// The node took the driver's socket for the driver's.
        Registered = "registered",
    }

    /// The phase of a pod, as its container runtime and its owner know it.
    PodPhase {
        Added = "added",
        Running = "running",
        /// The pod's containers were asked to end.
        Terminating = "terminating",
        /// The pod's containers are gone.
        RuntimeGone = "runtime_gone",
        /// The pod's containers are gone, and its object is being deleted.
        Removed = "removed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_word_is_refused_with_the_nearest() {
        for (word, nearest) in [("mont", "mount"), ("umuont", "umount"), ("Lock", "lock"), ("", "bind")] {
            let error = word.parse::<EffectKind>().unwrap_err();
            assert_eq!((error.word.as_str(), error.nearest), (word, nearest));
        }
        let error = serde_json::from_str::<Role>("\"drivr\"").unwrap_err();
        assert!(
            error.to_string().starts_with("unknown word `drivr`, the nearest known is `driver`"),
            "{error}"
        );
    }

    #[test]
    fn each_word_is_read_as_it_is_written() {
        for kind in EffectKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
            let text = serde_json::to_string(kind).unwrap();
            assert_eq!(serde_json::from_str::<EffectKind>(&text).unwrap(), *kind);
        }
    }
}
