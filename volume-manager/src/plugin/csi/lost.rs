//! Staged volumes, or volumes that were about to be staged, whose record cannot be read.
//!
//! Reads records and directory names and changes nothing. The path identifies the volume: it is made of the
//! driver and a hash of the handle, or of the PersistentVolume's name. The object of the right PersistentVolume
//! therefore leads to the same path, and nothing is guessed.

use std::collections::BTreeSet;

use api::VolumeMode;
use plugin_api::{Scene, UnidentifiedStage};

use super::SHARED_NAME;
use super::reconstruct::{Kept, devices, filesystems, inner_of, pods_of_device, was_begun};
use super::volume_data::VolumeDataError;

/// Finds the stages without a usable record.
pub(super) async fn find(scene: &Scene<'_>) -> Vec<UnidentifiedStage> {
    let mut found = Vec::new();
    for Kept { dir, data } in filesystems(scene).await {
        let Err(error) = data else { continue };
        let at = dir.join("globalmount");
        let missing = matches!(error, VolumeDataError::Missing { .. });
        let empty = scene.host.symlink_metadata(&at).await.is_err_and(|error| error.is_not_found());
        if !(missing && empty) {
            found.push(unidentified(at, VolumeMode::Filesystem, BTreeSet::new(), &error));
        }
    }
    for Kept { dir, data } in devices(scene).await {
        let Err(error) = data else { continue };
        let directory = inner_of(&dir);
        let missing = matches!(error, VolumeDataError::Missing { .. });
        if !missing || was_begun(scene, &directory).await {
            let pods = pods_of_device(scene, &directory).await;
            found.push(unidentified(scene.paths.csi_block_map(&directory), VolumeMode::Block, pods, &error));
        }
    }
    found
}

fn unidentified(
    at: std::path::PathBuf,
    mode: VolumeMode,
    pods: BTreeSet<api::names::PodUid>,
    error: &VolumeDataError,
) -> UnidentifiedStage {
    UnidentifiedStage { plugin: SHARED_NAME.clone(), at, mode, pods, why: api::error::chain(error) }
}
