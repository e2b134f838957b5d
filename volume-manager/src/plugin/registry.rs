//! Finds the plugin of a volume.

use std::sync::Arc;

use super::config_map::ConfigMapSource;
use super::content::ContentPlugin;
use super::csi::CsiPlugin;
use super::downward_api::DownwardApiSource;
use super::empty_dir::EmptyDirPlugin;
use super::host_path::HostPathPlugin;
use super::image::ImagePlugin;
use super::local::LocalPlugin;
use super::nfs::NfsPlugin;
use super::projected::ProjectedSource;
use super::secret::SecretSource;
use super::{Spec, VolumePlugin};
use crate::error::Unfit;
use crate::names::PluginName;

/// The plugins of a manager.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    plugins: Vec<Arc<dyn VolumePlugin>>,
}

/// Why no plugin could be picked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// None takes it.
    #[error("no volume plugin matched")]
    None,
    /// Several would take it.
    #[error("multiple volume plugins matched: {}", names.join(","))]
    Several {
        /// Which.
        names: Vec<String>,
    },
}

impl Registry {
    /// A registry of these plugins.
    pub fn new(plugins: Vec<Arc<dyn VolumePlugin>>) -> Self {
        Self { plugins }
    }

    /// Every kind of volume a kubelet knows.
    pub fn kubelet() -> Self {
        Self::new(vec![
            Arc::new(CsiPlugin::new()),
            Arc::new(EmptyDirPlugin),
            Arc::new(HostPathPlugin),
            Arc::new(NfsPlugin),
            Arc::new(LocalPlugin),
            Arc::new(ImagePlugin),
            Arc::new(ContentPlugin::<ConfigMapSource>::new()),
            Arc::new(ContentPlugin::<SecretSource>::new()),
            Arc::new(ContentPlugin::<DownwardApiSource>::new()),
            Arc::new(ContentPlugin::<ProjectedSource>::new()),
        ])
    }

    /// Adds a plugin.
    #[must_use]
    pub fn with(mut self, plugin: Arc<dyn VolumePlugin>) -> Self {
        self.plugins.push(plugin);
        self
    }

    /// The one plugin that takes a volume.
    pub fn pick(&self, spec: &Spec) -> Result<&Arc<dyn VolumePlugin>, PickError> {
        let mut takers = self.plugins.iter().filter(|plugin| plugin.supports(spec));
        let first = takers.next().ok_or(PickError::None)?;
        let mut names: Vec<_> = takers.map(|plugin| plugin.name().to_string()).collect();
        if names.is_empty() {
            return Ok(first);
        }
        names.insert(0, first.name().to_string());
        Err(PickError::Several { names })
    }

    /// The plugin of a name.
    pub fn by_name(&self, name: &PluginName) -> Result<&Arc<dyn VolumePlugin>, Unfit> {
        let found = self.plugins.iter().find(|plugin| &plugin.name() == name);
        found.ok_or_else(|| Unfit::NoPlugin { plugin: name.to_string() })
    }

    /// All of them, in the order they were added.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn VolumePlugin>> {
        self.plugins.iter()
    }
}
