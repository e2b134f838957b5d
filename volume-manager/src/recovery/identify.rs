//! Searches for the volume of an unidentified directory or stage. These read the node and the API, and change
//! nothing.

use std::path::PathBuf;
use std::sync::Arc;

use api::{ApiError, ApiSource, Volume, VolumeMode};
use plugin_api::error::Failure;
use plugin_api::paths::Paths;
use plugin_api::registry::Registry;
use plugin_api::{Found, Scene, Spec, UnidentifiedStage, VolumePlugin};

use super::Identified;
use crate::reconstruct::{self, Recovered};

/// Searches for the volume of a directory that could not be reconstructed.
pub(crate) async fn directory(scene: Scene<'_>, registry: &Registry, found: &Found) -> Identified {
    // The directory's content was removed by an operation, or was never created.
    if is_empty(scene, found).await {
        return Identified::Nothing;
    }
    match identify(scene, registry, found).await {
        Ok(Some(recovered)) => Identified::Recovered(recovered),
        _ if !is_mounted(scene, found).await => Identified::Nothing,
        Ok(None) => Identified::Unknown(None),
        Err(failure) => Identified::Unknown(Some(failure)),
    }
}

/// Searches for the PersistentVolume of a stage without a readable record.
pub(crate) async fn stage(
    api: &dyn ApiSource,
    paths: &Paths,
    registry: &Registry,
    stage: &UnidentifiedStage,
) -> Result<Option<Arc<Volume>>, ApiError> {
    let all = api::list::<Volume>(api).await?;
    Ok(all.into_iter().find(|volume| is_place_of(registry, paths, stage, volume)))
}

/// Whether a stage is where this PersistentVolume would be staged.
pub(super) fn is_place_of(
    registry: &Registry,
    paths: &Paths,
    stage: &UnidentifiedStage,
    volume: &Arc<Volume>,
) -> bool {
    let Ok(plugin) = registry.by_name(&stage.plugin) else { return false };
    let spec = Spec::persistent(Arc::clone(volume), false);
    plugin.supports(&spec)
        && spec.mode() == stage.mode
        && place(&*plugin, paths, &spec).is_some_and(|at| at == stage.at)
}

/// The staging path, or for a block volume the global map.
pub(super) fn place(plugin: &dyn VolumePlugin, paths: &Paths, spec: &Spec) -> Option<PathBuf> {
    match spec.mode() {
        VolumeMode::Filesystem => plugin.device_mounter()?.device_mount_path(paths, spec).ok(),
        VolumeMode::Block => plugin.block_mapper()?.global_map_path(paths, spec).ok(),
    }
}

async fn identify(
    scene: Scene<'_>,
    registry: &Registry,
    found: &Found,
) -> Result<Option<Recovered>, Failure> {
    let plugin = registry.by_name(&found.plugin)?;
    let identified = plugin.identify_orphan(&scene, found).await?;
    identified.map(|rebuilt| reconstruct::recovered(&*plugin, rebuilt, Some(&found.pod))).transpose()
}

/// Whether the directory of a filesystem volume is empty and nothing is mounted in it.
async fn is_empty(scene: Scene<'_>, found: &Found) -> bool {
    found.mode == VolumeMode::Filesystem
        && !is_mounted(scene, found).await
        && scene.host.read_dir(&found.path).await.is_ok_and(|entries| entries.is_empty())
}

/// Whether anything is mounted for a directory. If the mount table cannot be read, the answer is yes.
async fn is_mounted(scene: Scene<'_>, found: &Found) -> bool {
    // The mount table and not the directory, which may hang.
    let Ok(table) = scene.host.mount_table().await else { return true };
    table.entries().iter().any(|entry| match found.mode {
        VolumeMode::Filesystem => entry.mount_point.starts_with(&found.path),
        VolumeMode::Block => {
            let of_pod = entry.mount_point.file_name().is_some_and(|name| name == found.pod.as_str());
            of_pod && entry.mount_point.components().any(|part| part.as_os_str() == found.inner.as_str())
        }
    })
}
