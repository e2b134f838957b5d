//! Secrets of a driver, read from the files that the manifest names, and never printed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ManifestError, invalid};

/// A secret value: its `Debug` is `<masked>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive<T>(T);

impl<T> Sensitive<T> {
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The secret in clear, for a request to the driver.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<masked>")
    }
}

/// The files with the secrets of each kind of call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// For `CreateVolume` and `DeleteVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<PathBuf>,
    /// For `ControllerPublishVolume` and its undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_publish: Option<PathBuf>,
    /// For `NodeStageVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_stage: Option<PathBuf>,
    /// For `NodePublishVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_publish: Option<PathBuf>,
    /// For `ControllerExpandVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_expand: Option<PathBuf>,
    /// For `NodeExpandVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_expand: Option<PathBuf>,
    /// For `CreateSnapshot`, `DeleteSnapshot` and the calls of group snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<PathBuf>,
}

impl Secrets {
    /// Reads a file of keys and strings, `user = "…"`.
    ///
    /// # Errors
    /// When it cannot be read, or has other values.
    pub fn load(file: Option<&Path>) -> Result<BTreeMap<String, Sensitive<String>>, ManifestError> {
        let Some(path) = file else { return Ok(BTreeMap::new()) };
        let text = fs::read_to_string(path)
            .map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
        let pairs: BTreeMap<String, String> =
            toml::from_str(&text).map_err(|error| invalid(&text, path, &error))?;
        Ok(pairs.into_iter().map(|(key, value)| (key, Sensitive::new(value))).collect())
    }

    /// As [`Secrets::load`], in clear, for a request.
    ///
    /// # Errors
    /// As [`Secrets::load`].
    pub fn revealed<M: FromIterator<(String, String)>>(file: Option<&Path>) -> Result<M, ManifestError> {
        Ok(Self::load(file)?.into_iter().map(|(key, value)| (key, value.reveal().clone())).collect())
    }

    /// The files that are named.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let Self { provision, controller_publish, node_stage, node_publish, .. } = self;
        let Self { controller_expand, node_expand, snapshot, .. } = self;
        let files = [
            provision,
            controller_publish,
            node_stage,
            node_publish,
            controller_expand,
            node_expand,
            snapshot,
        ];
        files.into_iter().flatten()
    }

    pub(super) fn resolve(&mut self, directory: &Path) {
        let files = [
            &mut self.provision,
            &mut self.controller_publish,
            &mut self.node_stage,
            &mut self.node_publish,
            &mut self.controller_expand,
            &mut self.node_expand,
            &mut self.snapshot,
        ];
        for file in files.into_iter().flatten() {
            *file = directory.join(&*file);
        }
    }
}
