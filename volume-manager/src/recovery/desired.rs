//! Identification by the desired state: a directory named after a desired volume of its pod, and a stage at the
//! staging path or global map of a desired volume, belong to that volume.

use std::path::PathBuf;
use std::sync::Arc;

use api::names::{PodUid, SpecName, VolumeName};
use plugin_api::{Found, Rebuilt, Spec, UnidentifiedStage};

use super::identify::place;
use super::{Recovery, View};
use crate::desired::Wanted;
use crate::reconstruct::Recovered;

/// The directories and stages that belong to desired volumes. A stage comes with all pods that it may be
/// published for.
pub(super) fn identify(recovery: &Recovery, view: View<'_>) -> Vec<Recovered> {
    let identified =
        view.desired.volumes().flat_map(|(volume, wanted)| of_volume(recovery, view, volume, wanted));
    identified.collect()
}

fn of_volume(recovery: &Recovery, view: View<'_>, volume: &VolumeName, wanted: &Wanted) -> Vec<Recovered> {
    let mut identified = Vec::new();
    let Ok(plugin) = view.registry.by_name(&wanted.plugin) else { return identified };
    let Some(by) = wanted.pods.values().next() else { return identified };
    let at = place(&*plugin, view.paths, &by.spec).filter(|_| wanted.device_mountable);
    let selinux_label = label(recovery, view, volume, wanted);
    let recovered = |spec: &Arc<Spec>, pod: Option<&PodUid>| Recovered {
        volume: volume.clone(),
        plugin: wanted.plugin.clone(),
        rebuilt: Rebuilt {
            spec: Spec::clone(spec),
            device_mount_path: at.clone(),
            selinux_label: selinux_label.clone(),
        },
        pod: pod.cloned(),
    };
    if let Some(stage) = at.as_ref().and_then(|at| stage_at(recovery, at)) {
        identified.push(recovered(&by.spec, None));
        identified.extend(stage.pods.iter().map(|pod| recovered(&by.spec, Some(pod))));
    }
    let of_pods = directories(recovery).filter_map(|found| {
        let by = wanted.pods.get(&found.pod)?;
        let same =
            found.inner == by.spec.name() && found.mode == by.spec.mode() && found.plugin == wanted.plugin;
        same.then(|| recovered(&by.spec, Some(&found.pod)))
    });
    identified.extend(of_pods);
    identified
}

/// The SELinux label of the mount on disk; `None` if pods want the volume without one. The record that had the label is
/// lost, so it follows from the pods.
fn label(recovery: &Recovery, view: View<'_>, volume: &VolumeName, wanted: &Wanted) -> Option<String> {
    if wanted.label.is_empty() {
        return None;
    }
    let has_directory = |pod: &PodUid, inner: &SpecName| {
        directories(recovery).any(|found| found.pod == *pod && found.inner == *inner)
    };
    // A pod that has the volume here already mounted it with the label that it wants. Without one the label is unknown: the
    // empty text differs from every wanted label, so the volume is unstaged and staged anew.
    let is_here = wanted
        .pods
        .iter()
        .any(|(pod, by)| view.actual.entry(volume, pod).is_some() || has_directory(pod, &by.spec.name()));
    Some(if is_here { wanted.label.clone() } else { String::new() })
}

fn directories(recovery: &Recovery) -> impl Iterator<Item = &Found> {
    recovery.directories.values().map(|directory| &directory.found)
}

fn stage_at<'a>(recovery: &'a Recovery, at: &PathBuf) -> Option<&'a UnidentifiedStage> {
    recovery.stages.get(at).map(|(stage, _)| stage)
}
