//! Image volumes: the container runtime mounts them. Touches nothing.

use std::path::PathBuf;

use api::VolumeSource;
use api::names::{PluginName, PodUid, SpecName};
use async_trait::async_trait;
use plugin_api::error::{Failure, Unfit};
use plugin_api::paths::Paths;
use plugin_api::{Found, Mounted, OperationContext, Rebuilt, Scene, SetUp, Spec, TearDown, VolumePlugin};

pub const NAME: &str = "kubernetes.io/image";

/// The plugin for image volumes.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImagePlugin;

#[async_trait]
impl VolumePlugin for ImagePlugin {
    fn name(&self) -> PluginName {
        PluginName::new(NAME)
    }

    fn supports(&self, spec: &Spec) -> bool {
        matches!(spec.pod_volume().map(|volume| &volume.source), Some(VolumeSource::Image { .. }))
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        match spec.pod_volume().map(|volume| &volume.source) {
            Some(VolumeSource::Image { reference, .. }) => Ok(reference.clone()),
            _ => Err(wrong_source(&spec.name())),
        }
    }

    fn target(&self, _paths: &Paths, _pod: &PodUid, _inner: &SpecName) -> PathBuf {
        PathBuf::new()
    }

    async fn set_up(&self, _cx: &OperationContext, _request: &SetUp) -> Result<Mounted, Failure> {
        Ok(Mounted { path: PathBuf::new(), read_only: true, managed: false, selinux_relabel: false })
    }

    async fn tear_down(&self, _cx: &OperationContext, _request: &TearDown) -> Result<(), Failure> {
        Ok(())
    }

    /// Fails: an image volume has no directory, so this plugin did not make the one that was found.
    async fn reconstruct(&self, _scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        Err(wrong_source(&found.inner))
    }
}

fn wrong_source(volume: &SpecName) -> Failure {
    Unfit::WrongSource { plugin: NAME.to_owned(), volume: volume.to_string() }.into()
}
