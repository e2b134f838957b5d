//! Reconstruction of local volumes from their directories after a restart. Reads directories, symlinks and the
//! mount table.
//!
//! When a volume is torn down, the pod's directory goes first. What is left of the volume is found as well: the
//! node's mount of a device, and the binds in a global map, one for each pod.

use std::path::Path;
use std::sync::Arc;

use api::names::{PodUid, SpecName};
use api::{Meta, PersistentSource, Volume, VolumeMode};
use host::{FileKind, Host};
use plugin_api::error::Failure;
use plugin_api::{Found, Rebuilt, Scene, Spec, Staged, VolumePlugin};

use super::LocalPlugin;

/// Reconstructs a pod's volume. A device is found in the mount table; the path of a directory is unknown.
pub(super) async fn volume(scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
    let path = match found.mode {
        VolumeMode::Block => {
            let link = scene.paths.pod_device(&found.pod, &LocalPlugin.name(), &found.inner);
            scene.host.read_link(&link).await?.display().to_string()
        }
        VolumeMode::Filesystem => {
            let table = scene.host.mount_table().await?;
            let global = table.at(&scene.paths.local_mount(&found.inner));
            let pod = table.at(&found.path);
            let same = global.zip(pod).filter(|(global, pod)| global.dev == pod.dev);
            same.map(|(global, _)| global.source.to_string_lossy().into_owned()).unwrap_or_default()
        }
    };
    Ok(rebuilt(scene, &found.inner, found.mode, path))
}

/// Volumes that no pod's directory may name any more. Their paths are unknown, but no tear-down needs them, and
/// a pod that wants the volume again brings its path.
pub(super) async fn staged(scene: &Scene<'_>) -> Vec<Staged> {
    let mut found = Vec::new();
    for inner in names(scene.host, parent_of(&scene.paths.local_mount(&ANY.into())), true).await {
        let rebuilt = rebuilt(scene, &SpecName::new(inner), VolumeMode::Filesystem, String::new());
        found.push(Staged { rebuilt, pod: None });
    }
    for inner in names(scene.host, parent_of(&scene.paths.local_block_map(&ANY.into())), true).await {
        let inner = SpecName::new(inner);
        let rebuilt = rebuilt(scene, &inner, VolumeMode::Block, String::new());
        let pods = names(scene.host, &scene.paths.local_block_map(&inner), false).await;
        let of_pods = pods.into_iter().map(|pod| Some(PodUid::new(pod)));
        found.extend(of_pods.chain([None]).map(|pod| Staged { rebuilt: rebuilt.clone(), pod }));
    }
    found
}

/// A name for a path of which only the parent is used.
const ANY: &str = "-";

fn parent_of(path: &Path) -> &Path {
    path.parent().expect("a volume's path has a directory around it")
}

/// The names of the subdirectories, or of the other files, in a directory; empty if it cannot be read.
async fn names(host: &dyn Host, directory: &Path, directories: bool) -> Vec<String> {
    let entries = host.read_dir(directory).await.unwrap_or_default();
    let wanted = entries.into_iter().filter(|entry| (entry.kind == FileKind::Directory) == directories);
    wanted.filter_map(|entry| entry.name.to_str().map(str::to_owned)).collect()
}

fn rebuilt(scene: &Scene<'_>, inner: &SpecName, mode: VolumeMode, path: String) -> Rebuilt {
    let volume = Volume {
        meta: Meta::named("", inner.as_str()),
        mode: Some(mode),
        source: PersistentSource::Local { path, fs_type: String::new() },
        ..Volume::default()
    };
    let device_mount_path = match mode {
        VolumeMode::Filesystem => scene.paths.local_mount(inner),
        VolumeMode::Block => scene.paths.local_block_map(inner),
    };
    Rebuilt {
        spec: Spec::persistent(Arc::new(volume), false),
        device_mount_path: Some(device_mount_path),
        selinux_label: None,
    }
}
