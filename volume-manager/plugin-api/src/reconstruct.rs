//! What is found on disk after a restart, as plugins tell of it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use api::names::{PluginName, PodUid, SpecName};
use api::{ApiSource, VolumeMode};
use serde::{Deserialize, Serialize};

use crate::paths::Paths;
use crate::spec::Spec;

/// What reconstruction may look at.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The node. Nothing may be changed through it; only `find_staged` may remove empty directories.
    pub host: &'a dyn host::Host,
    /// The layout.
    pub paths: &'a Paths,
    /// The API, for what the disk does not say. It may be unreachable.
    pub api: &'a dyn ApiSource,
}

/// A directory of a pod that stands for a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Found {
    /// The pod whose directory it is in.
    pub pod: PodUid,
    /// The plugin whose directory it is in.
    pub plugin: PluginName,
    /// Its name.
    pub inner: SpecName,
    pub path: PathBuf,
    /// A directory under `volumes` or one under `volumeDevices`.
    pub mode: VolumeMode,
}

/// What a directory turned out to stand for.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebuilt {
    /// The volume, as far as it is known.
    pub spec: Spec,
    /// Where its step per node is or would be, for kinds that have one.
    pub device_mount_path: Option<PathBuf>,
    /// The SELinux label it was mounted with; `None` if that is unknown.
    pub selinux_label: Option<String>,
}

/// A volume that a plugin's own directories tell of.
#[derive(Debug, Clone, PartialEq)]
pub struct Staged {
    /// The volume, as far as it is known.
    pub rebuilt: Rebuilt,
    /// A pod that it may be published for; `None` if all that is known is that it may be staged.
    pub pod: Option<PodUid>,
}

/// A volume that is, or may be, on the node, while nothing there says any more which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnidentifiedStage {
    pub plugin: PluginName,
    /// Where its step per node is or would be, which is the place of no other volume.
    pub at: PathBuf,
    /// How it is used.
    pub mode: VolumeMode,
    /// The pods that it may be published for.
    pub pods: BTreeSet<PodUid>,
    /// Why it is lost.
    pub why: String,
}
