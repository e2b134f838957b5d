//! What a manifest says about volumes: how they are made, which exist, and what they cannot do.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::Size;

/// The volumes the suite asks the driver for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSettings {
    /// How large they are made.
    #[serde(default)]
    pub size: Option<Size>,
    /// The file systems to try, the first one by default. Empty: the driver chooses.
    #[serde(default)]
    pub fs_types: Vec<String>,
    /// Mount options of every file system volume, as a StorageClass has them.
    #[serde(default)]
    pub mount_options: Vec<String>,
    /// Handed to `CreateVolume` unchanged.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Volumes that exist, for drivers without `CreateVolume`.
    #[serde(default)]
    pub existing: Vec<ExistingVolume>,
    /// Whether pods may have volumes of the driver's inline, which live as long as they.
    #[serde(default)]
    pub inline: bool,
    /// `volumeAttributes` of the inline volumes.
    #[serde(default)]
    pub inline_attributes: BTreeMap<String, String>,
    /// Whether there are raw block volumes. Asked of the driver when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<bool>,
    /// Whether there are volumes with a file system. Asked of the driver when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<bool>,
    /// Whether a volume begins empty and keeps what pods write until it is deleted. Content drivers (secrets,
    /// images) and scratch space do not.
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
            existing: Vec::new(),
            inline: false,
            inline_attributes: BTreeMap::new(),
            block: None,
            file_system: None,
            persistent: true,
        }
    }
}

/// A volume that was there before the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ExistingVolume {
    /// The driver's id of it.
    pub handle: String,
    /// Its `volume_context`: server, share, target portal …
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// The type of its file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
}

impl ExistingVolume {
    /// A volume of which only the id is known.
    pub fn new(handle: impl Into<String>) -> Self {
        Self { handle: handle.into(), ..Self::default() }
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
                let Table { handle, context, fs_type } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ExistingVolume { handle, context, fs_type })
            }
        }

        deserializer.deserialize_any(HandleOrTable)
    }
}

fn yes() -> bool {
    true
}
