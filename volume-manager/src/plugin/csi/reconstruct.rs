//! What directories found after a restart stand for.
//!
//! Reads our own records beside volumes and the mount table; never a volume itself, which may hang. Nothing
//! is changed, and no id is ever guessed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{DirEntry, FileKind, Host, HostError, MountTable};

use super::error::CsiError;
use super::record;
use super::volume_data::{Lifecycle, VolumeData, VolumeDataError};
use crate::api::pod::InlineCsi;
use crate::api::storage::CsiSource;
use crate::api::{self, Meta, PersistentSource, PodVolume, Volume, VolumeMode, VolumeSource};
use crate::error::Failure;
use crate::names::{DriverName, OuterName, PodUid, SpecName, VolumeHandle};
use crate::plugin::{Found, Rebuilt, Scene, Spec, Staged};

/// The directory of block volumes, which is no driver's.
const BLOCK: &str = "volumeDevices";

/// The directories in it that are no volume's.
const KEPT: [&str; 2] = ["publish", "staging"];

/// Rebuilds a volume from its own record.
pub(super) async fn volume(scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
    let dir = match found.mode {
        VolumeMode::Filesystem => found.path.clone(),
        VolumeMode::Block => scene.paths.csi_block_data(&found.inner),
    };
    let data = record::read_of(scene.host, &dir, &found.inner).await.map_err(CsiError::from)?;
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
    let mut found: Vec<Staged> = staged_filesystems(scene)
        .await
        .into_iter()
        .map(|data| {
            let inner = data.spec_name.clone().unwrap_or_else(|| SpecName::new(data.handle.as_str()));
            Staged { rebuilt: rebuilt(scene, &data, inner, VolumeMode::Filesystem), pod: None }
        })
        .collect();
    found.extend(staged_devices(scene).await);
    found
}

async fn staged_filesystems(scene: &Scene<'_>) -> Vec<VolumeData> {
    let mut found = Vec::new();
    for driver in directories(scene.host, &scene.paths.csi()).await {
        if driver == BLOCK {
            continue;
        }
        let driver = DriverName::new(driver);
        let dir = scene.paths.csi_driver(&driver);
        for hash in directories(scene.host, &dir).await {
            found.extend(staged_in(scene, &driver, &dir.join(&hash), &hash).await);
        }
    }
    found
}

/// What is staged in one directory. Its name is a hash of the handle: a record that says otherwise is not
/// this directory's.
async fn staged_in(scene: &Scene<'_>, driver: &DriverName, dir: &Path, hash: &str) -> Option<VolumeData> {
    match record::read(scene.host, dir).await {
        Err(VolumeDataError::Missing { .. }) => {
            remove_shell(scene.host, dir, &["globalmount"]).await;
            None
        }
        Ok(data) if data.driver == *driver && data.handle.hashed() == hash => Some(data),
        Ok(_) => {
            tracing::warn!(dir = %dir.display(), "a staging directory holds another volume's record");
            None
        }
        Err(error) => {
            unusable(dir, &error);
            None
        }
    }
}

fn unusable(dir: &Path, error: &VolumeDataError) {
    let error = crate::error::chain(error);
    tracing::warn!(dir = %dir.display(), error, "what is staged has no usable record");
}

async fn staged_devices(scene: &Scene<'_>) -> Vec<Staged> {
    let mut found = Vec::new();
    for name in directories(scene.host, &scene.paths.csi_block()).await {
        let directory = SpecName::new(&name);
        let dir = scene.paths.csi_block_data(&directory);
        let data = match record::read_of(scene.host, &dir, &directory).await {
            Ok(data) => data,
            // A volume without a record is one the driver has been told nothing about.
            Err(VolumeDataError::Missing { .. }) if !KEPT.contains(&name.as_str()) => {
                remove_shell(scene.host, &scene.paths.csi_block_volume(&directory), &["data", "dev"]).await;
                continue;
            }
            Err(VolumeDataError::Missing { .. }) => continue,
            Err(error) => {
                unusable(&dir, &error);
                continue;
            }
        };
        let rebuilt = rebuilt(scene, &data, inner_name(&data, &directory), VolumeMode::Block);
        // Each pod has a name of its own where the driver publishes and where we bind.
        let mut pods = names(scene.host, &scene.paths.csi_block_publish_dir(&directory)).await;
        pods.extend(names(scene.host, &scene.paths.csi_block_map(&directory)).await);
        found.extend(
            pods.into_iter().map(|pod| Staged { rebuilt: rebuilt.clone(), pod: Some(PodUid::new(pod)) }),
        );
        found.push(Staged { rebuilt, pod: None });
    }
    found
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
    let mut candidates = staged_filesystems(scene).await;
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
                tracing::warn!(dir = %dir.display(), error = crate::error::chain(&error), "not read");
            }
            Vec::new()
        }
    }
}
