//! The plugins of a manager, by volume and by name.

use std::fmt;
use std::sync::Arc;

use api::names::PluginName;
use api::{PersistentSource, VolumeSource};

use crate::error::Unfit;
use crate::plugin::VolumePlugin;
use crate::spec::{Spec, SpecSource};

/// The plugins of a manager.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    plugins: Vec<Arc<dyn VolumePlugin>>,
    families: Vec<Arc<dyn PluginFamily>>,
}

/// Plugins that are made for the drivers that volumes name.
pub trait PluginFamily: fmt::Debug + Send + Sync + 'static {
    /// The plugin of a volume; `None` for a volume of another kind.
    fn of_volume(&self, spec: &Spec) -> Option<Arc<dyn VolumePlugin>>;

    /// The plugin of this name; `None` for a name that is no driver's.
    fn named(&self, name: &PluginName) -> Option<Arc<dyn VolumePlugin>>;
}

/// Why no plugin could be picked for a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// No plugin supports it. The kind is given if it is known and has no plugin here.
    #[error("no volume plugin matched{}", kind.as_ref().map(|kind| format!(": there is none for {kind}")).unwrap_or_default())]
    None {
        /// The field of the volume source, such as `iscsi`.
        kind: Option<String>,
    },
    /// Several plugins support it.
    #[error("multiple volume plugins matched: {}", names.join(","))]
    Several { names: Vec<String> },
}

impl Registry {
    pub fn new(plugins: Vec<Arc<dyn VolumePlugin>>) -> Self {
        Self { plugins, families: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, plugin: Arc<dyn VolumePlugin>) -> Self {
        self.plugins.push(plugin);
        self
    }

    #[must_use]
    pub fn with_family(mut self, family: Arc<dyn PluginFamily>) -> Self {
        self.families.push(family);
        self
    }

    /// The one plugin that supports a volume.
    pub fn pick(&self, spec: &Spec) -> Result<Arc<dyn VolumePlugin>, PickError> {
        let single = self.plugins.iter().filter(|plugin| plugin.supports(spec)).cloned();
        let mut takers = single.chain(self.families.iter().filter_map(|family| family.of_volume(spec)));
        let first = takers.next().ok_or_else(|| PickError::None { kind: kind_without_plugin(spec) })?;
        let mut names: Vec<_> = takers.map(|plugin| plugin.name().to_string()).collect();
        if names.is_empty() {
            return Ok(first);
        }
        names.insert(0, first.name().to_string());
        Err(PickError::Several { names })
    }

    pub fn by_name(&self, name: &PluginName) -> Result<Arc<dyn VolumePlugin>, Unfit> {
        let single = self.plugins.iter().find(|plugin| &plugin.name() == name).cloned();
        let found = single.or_else(|| self.families.iter().find_map(|family| family.named(name)));
        found.ok_or_else(|| Unfit::NoPlugin { plugin: name.to_string() })
    }

    /// All plugins that need no driver of their own, in the order they were added.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn VolumePlugin>> {
        self.plugins.iter()
    }
}

fn kind_without_plugin(spec: &Spec) -> Option<String> {
    let kind = match &spec.source {
        SpecSource::Inline(volume) => match &volume.source {
            VolumeSource::Other { kind } => kind.as_str(),
            VolumeSource::GitRepo { .. } => "gitRepo",
            _ => return None,
        },
        SpecSource::Persistent(volume) => match &volume.source {
            PersistentSource::Other { kind } => kind.as_str(),
            _ => return None,
        },
    };
    (!kind.is_empty()).then(|| kind.to_owned())
}
