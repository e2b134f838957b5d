//! Directories on disk become an uncertain actual state.
//!
//! After a restart the books are empty and the node is not. Every directory of a volume in a pod is read
//! back into what it stands for; plugins add what they staged and no pod names any more, which the kubelet
//! forgets. Nothing is changed but that plugins remove empty directories nobody will look for, and no volume is
//! looked into or even at: one that hangs must not hold up the rest.

use std::collections::BTreeSet;
use std::path::Path;

use api::VolumeMode;
use api::names::{PluginName, PodUid, SpecName, VolumeName};
use host::{DirEntry, FileKind};
use plugin_api::error::{Failure, Unfit};
use plugin_api::registry::Registry;
use plugin_api::{Facts, Found, Lost, Rebuilt, Scene, Staged, VolumePlugin};

/// What the last incarnation left.
#[derive(Debug, Default)]
pub struct Reconstruction {
    /// What could be read back.
    pub volumes: Vec<Recovered>,
    /// What could not, and why.
    pub failed: Vec<(Found, Failure)>,
    /// What plugins have of volumes without knowing of which.
    pub lost: Vec<Lost>,
    /// Whether there is more that could not be read.
    pub incomplete: bool,
}

/// A volume that was read back.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// Its unique name.
    pub volume: VolumeName,
    pub plugin: PluginName,
    /// What is known of it.
    pub rebuilt: Rebuilt,
    /// The pod whose directory told of it; `None` if it is only staged.
    pub pod: Option<PodUid>,
}

/// Reads back everything below the root; but nothing of what is only staged where a directory of the pods'
/// cannot be read, since nobody knows then who has that.
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
    // What a pod's own directory has told of is not told twice.
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
                    tracing::warn!(plugin = %plugin.name(), error = failure.chain(), "cannot name a staged volume");
                }
            }
        }
        let lost = plugin.find_lost(&scene).await;
        let told = |lost: &Lost| {
            result.volumes.iter().any(|known| known.rebuilt.device_mount_path.as_ref() == Some(&lost.at))
        };
        result.lost.extend(lost.into_iter().filter(|lost| !told(lost)));
    }
    result
}

/// Reads back one directory.
async fn recover(scene: Scene<'_>, registry: &Registry, found: &Found) -> Result<Recovered, Failure> {
    let plugin = registry.by_name(&found.plugin)?;
    if found.mode == VolumeMode::Block && plugin.block_mapper().is_none() {
        return Err(Unfit::NoAbility { plugin: found.plugin.to_string(), ability: "map devices" }.into());
    }
    let rebuilt = plugin.reconstruct(&scene, found).await?;
    recovered(&**plugin, rebuilt, Some(&found.pod))
}

/// Names what a directory turned out to stand for: one of a pod, or one of the plugin's own.
pub fn recovered(
    plugin: &dyn VolumePlugin,
    rebuilt: Rebuilt,
    pod: Option<&PodUid>,
) -> Result<Recovered, Failure> {
    let volume = name(plugin, &rebuilt, pod)?;
    Ok(Recovered { volume, plugin: plugin.name(), rebuilt, pod: pod.cloned() })
}

/// The unique name of a rebuilt volume. Whether it has a step per node is asked first: the answer needs no
/// object from the API, which may not be reachable yet.
fn name(plugin: &dyn VolumePlugin, rebuilt: &Rebuilt, pod: Option<&PodUid>) -> Result<VolumeName, Failure> {
    let spec = &rebuilt.spec;
    let shared = plugin.can_device_mount(spec) || plugin.can_attach(spec, &Facts::default());
    match pod {
        Some(pod) if !shared => Ok(VolumeName::of_pod(&plugin.name(), pod, &spec.name())),
        _ => Ok(VolumeName::shared(&plugin.name(), &plugin.volume_name(spec)?)),
    }
}

/// A walk through the directories of pods.
struct Scan<'a> {
    scene: Scene<'a>,
    /// Whether all of them could be read.
    complete: bool,
}

impl Scan<'_> {
    /// Every directory of a pod that stands for a volume, in order.
    async fn volumes(&mut self) -> Vec<Found> {
        let paths = self.scene.paths;
        let mut found = Vec::new();
        for pod in self.directories(&paths.pods()).await {
            let Some(pod) = text(&pod).map(PodUid::new) else { continue };
            let of_mode = [
                (VolumeMode::Filesystem, paths.pod_volumes(&pod)),
                (VolumeMode::Block, paths.pod_devices(&pod)),
            ];
            // Only directories: a link in their place would lead to another pod's volumes.
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

    /// What a directory holds. What is missing or is none holds nothing; one that cannot be read is passed over,
    /// since the others still can.
    async fn entries(&mut self, path: &Path) -> Vec<DirEntry> {
        match self.scene.host.read_dir(path).await {
            Ok(entries) => return entries,
            Err(error) if error.is_not_found() || error.is_not_a_directory() => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), error = api::error::chain(&error), "cannot read a directory back");
                self.complete = false;
            }
        }
        Vec::new()
    }
}

/// A volume is a directory, a device is reached by a link. Anything else in their place is not ours.
fn may_be_volume(entry: &DirEntry, mode: VolumeMode) -> bool {
    match mode {
        VolumeMode::Filesystem => matches!(entry.kind, FileKind::Directory | FileKind::Unknown),
        VolumeMode::Block => matches!(entry.kind, FileKind::Symlink | FileKind::Unknown),
    }
}

fn may_be_directory(entry: &DirEntry) -> bool {
    matches!(entry.kind, FileKind::Directory | FileKind::Unknown)
}

/// A name that is no text was not given by us.
fn text(entry: &DirEntry) -> Option<&str> {
    entry.name.to_str()
}
