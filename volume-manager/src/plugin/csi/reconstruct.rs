//! What directories found after a restart stand for.
//!
//! Reads our own records beside volumes and the mount table; never a volume itself, which may hang. Nothing
//! is changed, and no id is ever guessed.

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

/// The directory of block volumes, which is no driver's.
const BLOCK: &str = "volumeDevices";

/// The directories in it that are no volume's.
const KEPT: [&str; 2] = ["publish", "staging"];

/// Rebuilds a volume from its own record.
pub(super) async fn volume(scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
    let inner = &found.inner;
    let data = match found.mode {
        VolumeMode::Filesystem => record::read_of_pod(scene.host, &found.path, &found.pod, inner).await,
        VolumeMode::Block => record::read_of(scene.host, &scene.paths.csi_block_data(inner), inner).await,
    };
    let data = data.map_err(CsiError::from)?;
    Ok(rebuilt(scene, &data, inner_name(&data, &found.inner), found.mode))
}

/// The name in the record, which the directory was named after; a record may say none.
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

/// Every volume that is staged, or was about to be, whether or not a pod has a directory for it.
///
/// The kubelet looks at pods only. It forgets a volume if it was stopped between the last unpublish and the
/// unstage, or during a first stage; and a device that is published while its link in the pod's directory is
/// not yet made, or already gone.
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
            // A volume without a record is one the driver has been told nothing about.
            Err(VolumeDataError::Missing { .. }) if !was_begun(scene, &directory).await => {
                remove_shell(scene.host, &dir, &["data", "dev"]).await;
            }
            Err(_) => {}
        }
    }
    found
}

/// A directory that the node keeps for a volume, and what its record says.
pub(super) struct Kept {
    pub(super) dir: PathBuf,
    pub(super) data: Result<VolumeData, VolumeDataError>,
}

/// The directories of staged file systems. Their names are hashes of the handles: a record that says otherwise
/// is not that directory's.
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

/// The directories of block volumes, each named after its volume.
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

/// The name of a volume's directory.
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

/// The pods of a block volume: each has a name of its own where the driver publishes and where we bind.
pub(super) async fn pods_of_device(scene: &Scene<'_>, directory: &SpecName) -> BTreeSet<PodUid> {
    let mut pods = names(scene.host, &scene.paths.csi_block_publish_dir(directory)).await;
    pods.extend(names(scene.host, &scene.paths.csi_block_map(directory)).await);
    pods.into_iter().map(PodUid::new).collect()
}

/// Whether a driver may have been asked for a block volume: its staging and publish directories, and what pods
/// have of it, come after its record and go before it.
pub(super) async fn was_begun(scene: &Scene<'_>, directory: &SpecName) -> bool {
    let paths = [scene.paths.csi_block_staging(directory), scene.paths.csi_block_publish_dir(directory)];
    for path in paths {
        if scene.host.symlink_metadata(&path).await.is_ok() {
            return true;
        }
    }
    !pods_of_device(scene, directory).await.is_empty()
}

/// Removes the empty directories that a step which ended before its record was written has left: nobody was
/// told anything yet, and nobody will look for them. What is not empty stays, and so does what is mounted.
async fn remove_shell(host: &dyn Host, dir: &Path, within: &[&str]) {
    for inner in within {
        if host.remove_dir(&dir.join(inner)).await.is_err_and(|error| !error.is_not_found()) {
            return;
        }
    }
    // Something else is in it, which is not ours to judge.
    let _ = host.remove_dir(dir).await;
}

/// Finds out what a directory without a usable record is: the object of that name says it, or the one
/// staged volume nobody else uses whose file system is the one that is mounted there.
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
    // Two that fit are one too many.
    let only = candidates.pop().filter(|_| candidates.is_empty());
    Ok(only)
}

/// Whether `target` shows the file system of `staging`, or a part of what it shows.
fn shows_the_same(table: &MountTable, staging: &Path, target: &Path) -> bool {
    let (Some(staging), Some(target)) = (table.at(staging), table.at(target)) else { return false };
    staging.dev == target.dev && target.root.starts_with(&staging.root)
}

/// The volumes that the records of other directories name.
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

/// Names of the directories in a directory, as it lists them; none if it cannot be read.
async fn directories(host: &dyn Host, dir: &Path) -> Vec<String> {
    let is_dir = |entry: &DirEntry| matches!(entry.kind, FileKind::Directory | FileKind::Unknown);
    let entries = entries(host, dir).await;
    entries.into_iter().filter(is_dir).filter_map(|entry| entry.name.into_string().ok()).collect()
}

/// Names of whatever is in a directory, each once; none if it cannot be read. A link in its place would lead to
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
                tracing::warn!(dir = %dir.display(), error = api::error::chain(&error), "not read");
            }
            Vec::new()
        }
    }
}
