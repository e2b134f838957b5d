//! Reconstruction of CSI volumes from their directories after a restart.
//!
//! Reads records beside volumes and the mount table, never a volume itself, which may hang. Changes nothing
//! except for empty directories, and never guesses an id.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::names::{DriverName, OuterName, PodUid, SpecName, VolumeHandle};
use api::pod::InlineCsi;
use api::storage::CsiSource;
use api::{Meta, PersistentSource, PodVolume, Volume, VolumeMode, VolumeSource};
use host::{DirEntry, FileKind, Host, HostError, MountTable};
use plugin_api::error::Failure;
use plugin_api::{Found, Rebuilt, Scene, Spec, Staged};

use super::error::CsiError;
use super::record;
use super::volume_data::{Lifecycle, VolumeData, VolumeDataError};

/// The directory of block volumes, beside those named after drivers.
const BLOCK: &str = "volumeDevices";

/// The directories in it that do not belong to a volume.
const KEPT: [&str; 2] = ["publish", "staging"];

/// Reconstructs a volume from its record.
pub(super) async fn volume(scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
    let inner = &found.inner;
    let data = match found.mode {
        VolumeMode::Filesystem => record::read_of_pod(scene.host, &found.path, &found.pod, inner).await,
        VolumeMode::Block => record::read_of(scene.host, &scene.paths.csi_block_data(inner), inner).await,
    };
    let data = data.map_err(CsiError::from)?;
    Ok(rebuilt(scene, &data, inner_name(&data, &found.inner), found.mode))
}

/// The volume's name in the record, or that of the directory if the record has none.
fn inner_name(data: &VolumeData, directory: &SpecName) -> SpecName {
    data.spec_name.as_ref().unwrap_or(directory).clone()
}

fn rebuilt(scene: &Scene<'_>, data: &VolumeData, inner: SpecName, mode: VolumeMode) -> Rebuilt {
    if data.lifecycle() == Lifecycle::Ephemeral {
        let csi = InlineCsi { driver: data.driver.clone(), ..InlineCsi::default() };
        let volume = PodVolume { name: OuterName::new(inner.as_str()), source: VolumeSource::Csi(csi) };
        return Rebuilt {
            spec: Spec::inline(Arc::new(volume)),
            device_mount_path: None,
            selinux_label: data.selinux_context.clone(),
        };
    }
    let device_mount_path = match mode {
        VolumeMode::Filesystem => scene.paths.csi_global_mount(&data.driver, &data.handle),
        VolumeMode::Block => scene.paths.csi_block_map(&inner),
    };
    let csi = CsiSource { driver: data.driver.clone(), handle: data.handle.clone(), ..CsiSource::default() };
    let volume = Volume {
        meta: Meta::named("", inner.as_str()),
        mode: Some(mode),
        source: PersistentSource::Csi(Box::new(csi)),
        ..Volume::default()
    };
    Rebuilt {
        spec: Spec::persistent(Arc::new(volume), false),
        device_mount_path: Some(device_mount_path),
        selinux_label: data.selinux_context.clone(),
    }
}

/// All volumes that are or may be staged, whether or not a pod's directory names them.
///
/// The kubelet reads pods' directories only. It forgets a volume if it stopped between the last unpublish and
/// the unstage, or during the first stage; and a published device whose symlink in the pod's directory is not
/// made yet or removed already.
pub(super) async fn staged(scene: &Scene<'_>) -> Vec<Staged> {
    let mut found = Vec::new();
    for Kept { dir, data } in filesystems(scene).await {
        match data {
            Ok(data) => {
                let inner = data.spec_name.clone().unwrap_or_else(|| SpecName::new(data.handle.as_str()));
                found.push(Staged {
                    rebuilt: rebuilt(scene, &data, inner, VolumeMode::Filesystem),
                    pod: None,
                });
            }
            Err(VolumeDataError::Missing { .. }) => remove_shell(scene.host, &dir, &["globalmount"]).await,
            Err(_) => {}
        }
    }
    for Kept { dir, data } in devices(scene).await {
        let directory = inner_of(&dir);
        match data {
            Ok(data) => found.extend(staged_device(scene, &data, &directory).await),
            // Without a record and without staging or publish directories, no call was made for the volume.
            Err(VolumeDataError::Missing { .. }) if !was_begun(scene, &directory).await => {
                remove_shell(scene.host, &dir, &["data", "dev"]).await;
            }
            Err(_) => {}
        }
    }
    found
}

/// A volume's directory below the plugin's, and its record.
pub(super) struct Kept {
    pub(super) dir: PathBuf,
    pub(super) data: Result<VolumeData, VolumeDataError>,
}

/// The directories of staged filesystem volumes. Each is named after a hash of the handle: a record with
/// another driver or handle does not belong there.
pub(super) async fn filesystems(scene: &Scene<'_>) -> Vec<Kept> {
    let mut found = Vec::new();
    for driver in directories(scene.host, &scene.paths.csi()).await {
        if driver == BLOCK {
            continue;
        }
        let driver = DriverName::new(driver);
        let of_driver = scene.paths.csi_driver(&driver);
        for hash in directories(scene.host, &of_driver).await {
            let dir = of_driver.join(&hash);
            let data = record::read(scene.host, &dir).await.and_then(|data| {
                let same = data.driver == driver && data.handle.hashed() == hash;
                same.then_some(data)
                    .ok_or_else(|| VolumeDataError::AnothersVolume { path: record::path(&dir) })
            });
            found.push(Kept { dir, data });
        }
    }
    found
}

/// The directories of block volumes, each named after its PersistentVolume.
pub(super) async fn devices(scene: &Scene<'_>) -> Vec<Kept> {
    let mut found = Vec::new();
    for name in directories(scene.host, &scene.paths.csi_block()).await {
        let directory = SpecName::new(&name);
        let data = record::read_of(scene.host, &scene.paths.csi_block_data(&directory), &directory).await;
        let missing = matches!(data, Err(VolumeDataError::Missing { .. }));
        if !(missing && KEPT.contains(&name.as_str())) {
            found.push(Kept { dir: scene.paths.csi_block_volume(&directory), data });
        }
    }
    found
}

/// The volume's name, from its directory.
pub(super) fn inner_of(dir: &Path) -> SpecName {
    SpecName::new(dir.file_name().unwrap_or_default().to_string_lossy())
}

async fn staged_device(scene: &Scene<'_>, data: &VolumeData, directory: &SpecName) -> Vec<Staged> {
    let rebuilt = rebuilt(scene, data, inner_name(data, directory), VolumeMode::Block);
    let pods = pods_of_device(scene, directory).await.into_iter();
    let mut found: Vec<Staged> =
        pods.map(|pod| Staged { rebuilt: rebuilt.clone(), pod: Some(pod) }).collect();
    found.push(Staged { rebuilt, pod: None });
    found
}

/// The pods of a block volume: named by files in the publish directory and in the global map.
pub(super) async fn pods_of_device(scene: &Scene<'_>, directory: &SpecName) -> BTreeSet<PodUid> {
    let mut pods = names(scene.host, &scene.paths.csi_block_publish_dir(directory)).await;
    pods.extend(names(scene.host, &scene.paths.csi_block_map(directory)).await);
    pods.into_iter().map(PodUid::new).collect()
}

/// Whether a call may have been made for a block volume: its staging and publish directories and its pods'
/// files are created after its record and removed before it.
pub(super) async fn was_begun(scene: &Scene<'_>, directory: &SpecName) -> bool {
    let paths = [scene.paths.csi_block_staging(directory), scene.paths.csi_block_publish_dir(directory)];
    for path in paths {
        if scene.host.symlink_metadata(&path).await.is_ok() {
            return true;
        }
    }
    !pods_of_device(scene, directory).await.is_empty()
}

/// Removes the empty directories of a step that ended before it wrote its record: no call was made, and no
/// search would find them again. A directory that is not empty, or a mount, stays.
async fn remove_shell(host: &dyn Host, dir: &Path, within: &[&str]) {
    for inner in within {
        if host.remove_dir(&dir.join(inner)).await.is_err_and(|error| !error.is_not_found()) {
            return;
        }
    }
    // Fails if something else is in it; then it stays.
    let _ = host.remove_dir(dir).await;
}

/// Identifies a pod's directory without a usable record: by the PersistentVolume of that name, or by the one
/// staged volume that no other record names and whose filesystem is mounted there.
pub(super) async fn orphan(scene: &Scene<'_>, found: &Found) -> Result<Option<Rebuilt>, Failure> {
    let asked = api::get::<Volume>(scene.api, "", found.inner.as_str()).await;
    if let Ok(volume) = &asked
        && let PersistentSource::Csi(csi) = &volume.source
        && volume.mode.unwrap_or_default() == found.mode
    {
        let data = VolumeData::of_stage(csi.driver.clone(), csi.handle.clone());
        return Ok(Some(rebuilt(scene, &data, found.inner.clone(), found.mode)));
    }
    if found.mode == VolumeMode::Filesystem
        && let Some(data) = by_mount(scene, found).await?
    {
        return Ok(Some(rebuilt(scene, &data, found.inner.clone(), found.mode)));
    }
    match asked {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(None),
    }
}

async fn by_mount(scene: &Scene<'_>, found: &Found) -> Result<Option<VolumeData>, HostError> {
    let table = scene.host.mount_table().await?;
    let claimed = claimed(scene, found).await;
    let target = found.path.join("mount");
    let staged = filesystems(scene).await.into_iter();
    let mut candidates: Vec<VolumeData> = staged.filter_map(|kept| kept.data.ok()).collect();
    candidates.retain(|data| {
        let staging = scene.paths.csi_global_mount(&data.driver, &data.handle);
        !claimed.contains(&(data.driver.clone(), data.handle.clone()))
            && shows_the_same(&table, &staging, &target)
    });
    // If two fit, neither is certain.
    let only = candidates.pop().filter(|_| candidates.is_empty());
    Ok(only)
}

/// Whether `target` is a mount of the filesystem at `staging`, or of a directory in it.
fn shows_the_same(table: &MountTable, staging: &Path, target: &Path) -> bool {
    let (Some(staging), Some(target)) = (table.at(staging), table.at(target)) else { return false };
    staging.dev == target.dev && target.root.starts_with(&staging.root)
}

/// The volumes that the records in other directories name.
async fn claimed(scene: &Scene<'_>, but: &Found) -> BTreeSet<(DriverName, VolumeHandle)> {
    let mut claimed = BTreeSet::new();
    for pod in directories(scene.host, &scene.paths.pods()).await {
        let volumes = scene.paths.pod_volumes(&PodUid::new(pod)).join("kubernetes.io~csi");
        for name in directories(scene.host, &volumes).await {
            let dir: PathBuf = volumes.join(name);
            if dir == but.path {
                continue;
            }
            if let Ok(data) = record::read(scene.host, &dir).await {
                claimed.insert((data.driver, data.handle));
            }
        }
    }
    claimed
}

/// The names of subdirectories; empty if the directory cannot be read.
async fn directories(host: &dyn Host, dir: &Path) -> Vec<String> {
    let is_dir = |entry: &DirEntry| matches!(entry.kind, FileKind::Directory | FileKind::Unknown);
    let entries = entries(host, dir).await;
    entries.into_iter().filter(is_dir).filter_map(|entry| entry.name.into_string().ok()).collect()
}

/// The names of all files in a directory; empty if it cannot be read, or is a symlink: that would lead to
/// another volume's.
async fn names(host: &dyn Host, dir: &Path) -> BTreeSet<String> {
    if host.symlink_metadata(dir).await.is_ok_and(|there| !there.is_dir()) {
        return BTreeSet::new();
    }
    entries(host, dir).await.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()
}

async fn entries(host: &dyn Host, dir: &Path) -> Vec<DirEntry> {
    match host.read_dir(dir).await {
        Ok(entries) => entries,
        Err(error) => {
            if !error.is_not_found() {
                tracing::warn!(dir = %dir.display(), error = api::error::chain(&error), "cannot read a directory; volumes in it are not reconstructed");
            }
            Vec::new()
        }
    }
}
