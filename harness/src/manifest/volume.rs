//! Volumes in a manifest: how to create them, existing ones, and their limits.

use std::collections::BTreeMap;
use std::fmt;

use api::AccessMode;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Secrets, Size};

/// The volumes that the suite creates or uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSettings {
    /// The size to create them with.
    #[serde(default)]
    pub size: Option<Size>,
    /// File systems to test; the first is the default. Empty: the driver chooses.
    #[serde(default)]
    pub fs_types: Vec<String>,
    /// Mount options of every volume with a file system, as in a StorageClass.
    #[serde(default)]
    pub mount_options: Vec<String>,
    /// Parameters of `CreateVolume`.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// More parameters of `CreateVolume`, for a volume that a daemon of the driver's own serves through FUSE. Not needed
    /// if all volumes are such.
    #[serde(default)]
    pub fuse_parameters: BTreeMap<String, String>,
    /// Parameters that `ControllerModifyVolume` takes, with a value that each may have.
    #[serde(default)]
    pub mutable_parameters: BTreeMap<String, String>,
    /// Existing volumes, for drivers without `CreateVolume`.
    #[serde(default)]
    pub existing: Vec<ExistingVolume>,
    /// Whether the driver supports inline volumes, which live as long as their pod.
    #[serde(default)]
    pub inline: bool,
    /// `volumeAttributes` of the inline volumes.
    #[serde(default)]
    pub inline_attributes: BTreeMap<String, String>,
    /// Whether inline volumes are published read-only, for drivers that refuse any other use of their content. No case
    /// writes to them if `persistent` is false.
    #[serde(default)]
    pub inline_read_only: bool,
    /// Whether the driver has block volumes. By default the driver is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<bool>,
    /// Whether the driver has volumes with a file system. By default the driver is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<bool>,
    /// Whether a volume is empty at first and keeps data until it is deleted. Not so for drivers that provide content
    /// (secrets, images) or scratch space.
    #[serde(default = "yes")]
    pub persistent: bool,
}

impl Default for VolumeSettings {
    fn default() -> Self {
        Self {
            size: None,
            fs_types: Vec::new(),
            mount_options: Vec::new(),
            parameters: BTreeMap::new(),
            fuse_parameters: BTreeMap::new(),
            mutable_parameters: BTreeMap::new(),
            existing: Vec::new(),
            inline: false,
            inline_attributes: BTreeMap::new(),
            inline_read_only: false,
            block: None,
            file_system: None,
            persistent: true,
        }
    }
}

/// A volume that exists before the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ExistingVolume {
    /// The driver's id.
    pub handle: String,
    /// Its `volume_context`: server, share, target portal …
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// The access modes it may be used with, as in a PersistentVolume. Empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<AccessMode>,
    /// Files with the secrets of this volume, instead of those for all volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Secrets>,
}

impl ExistingVolume {
    pub fn new(handle: impl Into<String>) -> Self {
        Self { handle: handle.into(), ..Self::default() }
    }

    /// Whether the volume may be used with all of these access modes.
    pub fn offers(&self, modes: &[AccessMode]) -> bool {
        self.access_modes.is_empty() || modes.iter().all(|mode| self.access_modes.contains(mode))
    }
}

/// `"vol-a"`, or a table with `handle` and more.
impl<'de> Deserialize<'de> for ExistingVolume {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            handle: String,
            #[serde(default)]
            context: BTreeMap<String, String>,
            #[serde(default)]
            fs_type: Option<String>,
            #[serde(default)]
            access_modes: Vec<AccessMode>,
            #[serde(default)]
            secrets: Option<Secrets>,
        }

        struct HandleOrTable;

        impl<'de> Visitor<'de> for HandleOrTable {
            type Value = ExistingVolume;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a volume id such as \"vol-a\", or a table with `handle` and `context`")
            }

            fn visit_str<E: Error>(self, handle: &str) -> Result<Self::Value, E> {
                Ok(ExistingVolume::new(handle))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                let Table { handle, context, fs_type, access_modes, secrets } = table;
                Ok(ExistingVolume { handle, context, fs_type, access_modes, secrets })
            }
        }

        deserializer.deserialize_any(HandleOrTable)
    }
}

fn yes() -> bool {
    true
}
