//! The volumes that plugins reconstruct from disk after a restart.

use std::collections::BTreeSet;
use std::path::PathBuf;

use api::names::{PluginName, PodUid, SpecName};
use api::{ApiSource, VolumeMode};
use serde::{Deserialize, Serialize};

use crate::paths::Paths;
use crate::spec::Spec;

/// The context of reconstruction.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The node. Nothing may be changed through it, except that `find_staged` may remove empty directories.
    pub host: &'a dyn host::Host,
    /// The paths below the root directory.
    pub paths: &'a Paths,
    /// The API, for what the disk does not say. It may be unreachable.
    pub api: &'a dyn ApiSource,
}

/// The directory of a volume in a pod's directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Found {
    /// The pod whose directory it is in.
    pub pod: PodUid,
    /// The plugin whose directory it is in.
    pub plugin: PluginName,
    /// The name of the directory.
    pub inner: SpecName,
    pub path: PathBuf,
    /// Filesystem below `volumes`, block below `volumeDevices`.
    pub mode: VolumeMode,
}

/// A volume that was reconstructed from a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebuilt {
    /// The volume's spec, as far as it is known.
    pub spec: Spec,
    /// The staging path or global map, for plugins that stage.
    pub device_mount_path: Option<PathBuf>,
    /// The SELinux label that it is mounted with; `None` if that is unknown.
    pub selinux_label: Option<String>,
}

/// A volume found in a plugin's own directories.
#[derive(Debug, Clone, PartialEq)]
pub struct Staged {
    pub rebuilt: Rebuilt,
    /// A pod that it may be published for; `None` for the stage alone.
    pub pod: Option<PodUid>,
}

/// A volume that is or may be staged, and whose record is missing or unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnidentifiedStage {
    pub plugin: PluginName,
    /// The staging path or global map; no two volumes share one.
    pub at: PathBuf,
    pub mode: VolumeMode,
    /// The pods that it may be published for.
    pub pods: BTreeSet<PodUid>,
    /// Why the record cannot be used.
    pub why: String,
}
