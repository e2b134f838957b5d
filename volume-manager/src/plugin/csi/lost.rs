//! What is staged, or was about to be, while its record does not say any more which volume it is.
//!
//! Reads our own records and the names beside them, and changes nothing. The place itself tells the volume from
//! all others: a directory is named after the handle, or after the volume's object. So whoever has the object
//! knows whose it is, and nothing is guessed.

use std::collections::BTreeSet;

use api::VolumeMode;
use api::names::PluginName;
use plugin_api::{Scene, UnidentifiedStage};

use super::NAME;
use super::reconstruct::{Kept, devices, filesystems, inner_of, pods_of_device, was_begun};
use super::volume_data::VolumeDataError;

/// Finds them.
pub(super) async fn find(scene: &Scene<'_>) -> Vec<UnidentifiedStage> {
    let mut found = Vec::new();
    for Kept { dir, data } in filesystems(scene).await {
        let Err(error) = data else { continue };
        let at = dir.join("globalmount");
        let missing = matches!(error, VolumeDataError::Missing { .. });
        let empty = scene.host.symlink_metadata(&at).await.is_err_and(|error| error.is_not_found());
        if !(missing && empty) {
            found.push(lost(at, VolumeMode::Filesystem, BTreeSet::new(), &error));
        }
    }
    for Kept { dir, data } in devices(scene).await {
        let Err(error) = data else { continue };
        let directory = inner_of(&dir);
        let missing = matches!(error, VolumeDataError::Missing { .. });
        if !missing || was_begun(scene, &directory).await {
            let pods = pods_of_device(scene, &directory).await;
            found.push(lost(scene.paths.csi_block_map(&directory), VolumeMode::Block, pods, &error));
        }
    }
    found
}

fn lost(
    at: std::path::PathBuf,
    mode: VolumeMode,
    pods: BTreeSet<api::names::PodUid>,
    error: &VolumeDataError,
) -> UnidentifiedStage {
    UnidentifiedStage { plugin: PluginName::new(NAME), at, mode, pods, why: api::error::chain(error) }
}
