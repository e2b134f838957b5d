//! Reconstructs the actual state from directories on disk, as uncertain.
//!
//! After a restart the actual state is empty and the node is not. Each volume directory of a pod is
//! reconstructed by its plugin. Plugins also find volumes that they staged and that no pod's directory names;
//! the kubelet forgets those. Nothing is changed, except that plugins remove empty directories that no search
//! would find again. No volume's content is opened or even looked at: a volume that hangs must not hold up the
//! others.

use std::collections::BTreeSet;
use std::path::Path;

use api::VolumeMode;
use api::names::{PluginName, PodUid, SpecName, VolumeName};
use host::{DirEntry, FileKind};
use plugin_api::error::{Failure, Unfit};
use plugin_api::registry::Registry;
use plugin_api::{Facts, Found, Rebuilt, Scene, Staged, UnidentifiedStage, VolumePlugin};

/// The volumes on disk.
#[derive(Debug, Default)]
pub struct Reconstruction {
    pub volumes: Vec<Recovered>,
    /// Directories of pods that could not be reconstructed.
    pub failed: Vec<(Found, Failure)>,
    /// Staged volumes without a readable record.
    pub lost: Vec<UnidentifiedStage>,
    /// Whether some directories of pods could not be read.
    pub incomplete: bool,
}

#[derive(Debug, Clone)]
pub struct Recovered {
    pub volume: VolumeName,
    pub plugin: PluginName,
    /// The volume's spec and mounts, as far as they are known from disk.
    pub rebuilt: Rebuilt,
    /// The pod that has the volume; `None` if it is only staged.
    pub pod: Option<PodUid>,
}

/// Reconstructs all volumes below the root directory. If a directory of the pods cannot be read, volumes that
/// are only staged are left out: a pod in that directory may have them.
pub async fn reconstruct(scene: Scene<'_>, registry: &Registry) -> Reconstruction {
    let mut result = Reconstruction::default();
    let mut scan = Scan { scene, complete: true };
    for found in scan.volumes().await {
        match recover(scene, registry, &found).await {
            Ok(recovered) => result.volumes.push(recovered),
            Err(failure) => result.failed.push((found, failure)),
        }
    }
    if !scan.complete {
        result.incomplete = true;
        return result;
    }
    // A volume that a pod's directory names is not added again for the same pod.
    let mut known: BTreeSet<_> =
        result.volumes.iter().map(|known| (known.volume.clone(), known.pod.clone())).collect();
    for plugin in registry.all() {
        for Staged { rebuilt, pod } in plugin.find_staged(&scene).await {
            match name(&**plugin, &rebuilt, pod.as_ref()) {
                Ok(volume) if known.insert((volume.clone(), pod.clone())) => {
                    result.volumes.push(Recovered { volume, plugin: plugin.name(), rebuilt, pod });
                }
                Ok(_) => {}
                Err(failure) => {
                    tracing::warn!(plugin = %plugin.name(), error = failure.chain(), "cannot build the unique name of a staged volume; it stays staged");
                }
            }
        }
        let lost = plugin.find_unidentified_stages(&scene).await;
        let is_known = |lost: &UnidentifiedStage| {
            result.volumes.iter().any(|known| known.rebuilt.device_mount_path.as_ref() == Some(&lost.at))
        };
        result.lost.extend(lost.into_iter().filter(|lost| !is_known(lost)));
    }
    result
}

/// Reconstructs the volume of one directory.
async fn recover(scene: Scene<'_>, registry: &Registry, found: &Found) -> Result<Recovered, Failure> {
    let plugin = registry.by_name(&found.plugin)?;
    if found.mode == VolumeMode::Block && plugin.block_mapper().is_none() {
        return Err(Unfit::NoAbility { plugin: found.plugin.to_string(), ability: "map devices" }.into());
    }
    let rebuilt = plugin.reconstruct(&scene, found).await?;
    recovered(&*plugin, rebuilt, Some(&found.pod))
}

/// Gives a reconstructed volume its unique name.
pub fn recovered(
    plugin: &dyn VolumePlugin,
    rebuilt: Rebuilt,
    pod: Option<&PodUid>,
) -> Result<Recovered, Failure> {
    let volume = name(plugin, &rebuilt, pod)?;
    Ok(Recovered { volume, plugin: plugin.name(), rebuilt, pod: pod.cloned() })
}

/// The unique name of a reconstructed volume. Device mounting is checked before attaching: it needs no object
/// from the API, which may not be reachable yet.
fn name(plugin: &dyn VolumePlugin, rebuilt: &Rebuilt, pod: Option<&PodUid>) -> Result<VolumeName, Failure> {
    let spec = &rebuilt.spec;
    let shared = plugin.can_device_mount(spec) || plugin.can_attach(spec, &Facts::default());
    match pod {
        Some(pod) if !shared => Ok(VolumeName::of_pod(&plugin.name(), pod, &spec.name())),
        _ => Ok(VolumeName::shared(&plugin.name(), &plugin.volume_name(spec)?)),
    }
}

/// A walk through the directories of all pods.
struct Scan<'a> {
    scene: Scene<'a>,
    /// Whether every directory could be read.
    complete: bool,
}

impl Scan<'_> {
    /// The directories of all pods' volumes, sorted.
    async fn volumes(&mut self) -> Vec<Found> {
        let paths = self.scene.paths;
        let mut found = Vec::new();
        for pod in self.directories(&paths.pods()).await {
            let Some(pod) = text(&pod).map(PodUid::new) else { continue };
            let of_mode = [
                (VolumeMode::Filesystem, paths.pod_volumes(&pod)),
                (VolumeMode::Block, paths.pod_devices(&pod)),
            ];
            // A symlink instead of a directory would lead to another pod's volumes.
            let kept = self.directories(&paths.pod(&pod)).await;
            for (mode, path) in of_mode {
                if !kept.iter().any(|entry| path.file_name() == Some(&entry.name)) {
                    continue;
                }
                for plugin in self.directories(&path).await {
                    let Some(plugin_name) = text(&plugin) else { continue };
                    let directory = path.join(plugin_name);
                    for entry in self.entries(&directory).await {
                        let Some(inner) = text(&entry).filter(|_| may_be_volume(&entry, mode)) else {
                            continue;
                        };
                        found.push(Found {
                            pod: pod.clone(),
                            plugin: PluginName::from_escaped(plugin_name),
                            inner: SpecName::new(inner),
                            path: directory.join(inner),
                            mode,
                        });
                    }
                }
            }
        }
        found
    }

    async fn directories(&mut self, path: &Path) -> Vec<DirEntry> {
        let mut entries = self.entries(path).await;
        entries.retain(may_be_directory);
        entries
    }

    /// The entries of a directory. Empty if the path does not exist or is no directory; if it cannot be read,
    /// the walk goes on without it and is not complete.
    async fn entries(&mut self, path: &Path) -> Vec<DirEntry> {
        match self.scene.host.read_dir(path).await {
            Ok(entries) => return entries,
            Err(error) if error.is_not_found() || error.is_not_a_directory() => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), error = api::error::chain(&error), "cannot read a directory; volumes of pods below it are not reconstructed");
                self.complete = false;
            }
        }
        Vec::new()
    }
}

/// A filesystem volume has a directory, a block volume has a symlink. Any other file was not made by a volume
/// manager.
fn may_be_volume(entry: &DirEntry, mode: VolumeMode) -> bool {
    match mode {
        VolumeMode::Filesystem => matches!(entry.kind, FileKind::Directory | FileKind::Unknown),
        VolumeMode::Block => matches!(entry.kind, FileKind::Symlink | FileKind::Unknown),
    }
}

fn may_be_directory(entry: &DirEntry) -> bool {
    matches!(entry.kind, FileKind::Directory | FileKind::Unknown)
}

/// `None` for a name that is not UTF-8: no volume manager made it.
fn text(entry: &DirEntry) -> Option<&str> {
    entry.name.to_str()
}
