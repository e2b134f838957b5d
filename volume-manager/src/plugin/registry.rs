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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pod::InlineCsi;
    use crate::api::{PersistentSource, PodVolume, Volume, VolumeSource};
    use crate::plugin::Facts;
    use crate::plugin::testing::persistent_spec;

    fn inline(source: VolumeSource) -> Spec {
        Spec::inline(Arc::new(PodVolume { name: "v".into(), source }))
    }

    fn persistent(source: PersistentSource) -> Spec {
        Spec::persistent(Arc::new(Volume { source, ..Volume::default() }), false)
    }

    #[test]
    fn each_kind_has_one_plugin_with_its_abilities() {
        let registry = Registry::kubelet();
        let content = crate::api::pod::Content::default;
        let path = || "/x".to_owned();
        let rows = [
            (inline(VolumeSource::EmptyDir { medium: String::new(), size_limit: None }), "empty-dir", ""),
            (inline(VolumeSource::HostPath { path: path(), kind: String::new() }), "host-path", ""),
            (persistent(PersistentSource::HostPath { path: path(), kind: String::new() }), "host-path", ""),
            (inline(VolumeSource::Nfs { server: path(), path: path(), read_only: false }), "nfs", "options"),
            (
                persistent(PersistentSource::Nfs { server: path(), path: path(), read_only: false }),
                "nfs",
                "options",
            ),
            (
                persistent(PersistentSource::Local { path: path(), fs_type: String::new() }),
                "local-volume",
                "device map grow options",
            ),
            (inline(VolumeSource::ConfigMap(content())), "configmap", "remount"),
            (inline(VolumeSource::Secret(content())), "secret", "remount"),
            (
                inline(VolumeSource::Projected { sources: Vec::new(), default_mode: 0 }),
                "projected",
                "remount",
            ),
            (
                inline(VolumeSource::DownwardApi { items: Vec::new(), default_mode: 0 }),
                "downward-api",
                "remount",
            ),
            (persistent_spec("pv", "d", "h"), "csi", "attach device map grow options"),
            (inline(VolumeSource::Csi(InlineCsi::default())), "csi", "options"),
            (inline(VolumeSource::Image { reference: path(), pull_policy: String::new() }), "image", ""),
        ];
        // With every driver known, none attaches that does not say so.
        let facts = Facts { csi_drivers_known: true, ..Facts::default() };
        for (spec, name, abilities) in rows {
            let plugin = registry.pick(&spec).unwrap();
            assert_eq!(plugin.name().as_str(), format!("kubernetes.io/{name}"));
            let device = plugin.can_device_mount(&spec);
            let has = [
                (plugin.can_attach(&spec, &facts), "attach"),
                (device, "device"),
                (plugin.block_mapper().is_some() && device, "map"),
                (plugin.expander().is_some() && device, "grow"),
                (plugin.requires_remount(&spec, &facts), "remount"),
                (plugin.takes_mount_options(), "options"),
            ];
            let has: Vec<&str> = has.iter().filter(|(has, _)| *has).map(|(_, word)| *word).collect();
            assert_eq!(has.join(" "), abilities, "{name}");
        }
    }

    #[test]
    fn every_plugin_that_would_take_a_volume_is_named() {
        let registry = Registry::kubelet().with(Arc::new(EmptyDirPlugin)).with(Arc::new(NfsPlugin));
        let spec = inline(VolumeSource::EmptyDir { medium: String::new(), size_limit: None });
        let text = "multiple volume plugins matched: kubernetes.io/empty-dir,kubernetes.io/empty-dir";
        assert_eq!(registry.pick(&spec).unwrap_err().to_string(), text);
        let nobodys = inline(VolumeSource::Other { kind: "paper".into() });
        assert_eq!(registry.pick(&nobodys).unwrap_err().to_string(), "no volume plugin matched");
    }

    #[test]
    fn a_plugin_is_found_by_its_name_which_is_a_qualified_one_and_nobody_elses() {
        let registry = Registry::kubelet();
        let mut names = std::collections::BTreeSet::new();
        for plugin in registry.all() {
            let name = plugin.name();
            assert_eq!(registry.by_name(&name).unwrap().name(), name);
            let (domain, own) = name.as_str().split_once('/').unwrap();
            let plain = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            assert!(domain == "kubernetes.io" && !own.is_empty() && own.chars().all(plain), "{name}");
            assert!(names.insert(name.clone()), "{name} twice");
        }
        let error = registry.by_name(&PluginName::new("kubernetes.io/paper")).unwrap_err();
        assert_eq!(error.to_string(), "no volume plugin matched name: kubernetes.io/paper");
    }
}
