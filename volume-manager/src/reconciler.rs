//! Compares the desired with the actual state and plans the next operations, as a pure function.
//!
//! [`plan`] starts nothing and waits for nothing. Each planned operation must still be admitted: of two that
//! exclude each other, the first one runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::VolumeMode;
use api::names::{PodUid, SpecName, VolumeName};
use plugin_api::registry::Registry;
use plugin_api::{Before, Facts, Spec};

use crate::actual::{ActualState, Device, PodEntry, PodView, VolumeRecord};
use crate::desired::{DesiredState, Wanted, WantedBy};
use crate::operation::{ExpandVolume, MountVolume, Operation, UnmountDevice, UnmountVolume, VerifyAttached};

/// The input of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Worlds<'a> {
    pub desired: &'a DesiredState,
    pub actual: &'a ActualState,
    /// Facts about the node, drivers and attachments.
    pub facts: &'a Facts,
    pub registry: &'a Registry,
    /// Whether the desired and the actual state are complete: every pod that was bound at the start is
    /// resolved, and the reconstructed volumes were compared with the node's object.
    pub complete: bool,
    /// Whether no search for the volume of an unidentified directory runs: its pod may have any volume.
    pub explained: bool,
    /// Unidentified directories, by pod and the volume name in their path: the pod may have that volume.
    pub orphans: &'a BTreeSet<(PodUid, SpecName)>,
}

#[derive(Debug, Clone)]
pub enum Step {
    /// Start this operation if it is admitted.
    Start(Operation),
    /// Remove a volume from the actual state if no operation runs on it.
    Forget(VolumeName),
    /// Add an error to a pod: waiting does not help it.
    Fail(PodUid, String),
}

/// The next steps for the volumes that changed, in starting order.
///
/// Unmounts come first, so that a volume leaves its old pod before it enters the new one. Nothing is unmounted
/// before both states are complete: a volume that looks unwanted may belong to a pod that is not known yet.
/// `may_run` says whether containers of a pod may still run; such a pod keeps all its volumes.
pub fn plan(
    worlds: Worlds<'_>,
    dirty: &BTreeSet<VolumeName>,
    may_run: impl Fn(&PodUid) -> bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    if worlds.complete {
        steps.extend(dirty.iter().flat_map(|volume| pod_unmounts(worlds, volume, &may_run)));
    }
    steps.extend(dirty.iter().flat_map(|volume| pod_mounts(worlds, volume, &may_run)));
    if worlds.complete && worlds.explained {
        steps.extend(dirty.iter().filter_map(|volume| device_unmount(worlds, volume)));
    }
    steps
}

/// Unmounts for pods that have or may have the volume and no longer want it, or not with its present SELinux
/// label.
fn pod_unmounts(worlds: Worlds<'_>, volume: &VolumeName, may_run: &impl Fn(&PodUid) -> bool) -> Vec<Step> {
    let Some(record) = worlds.actual.volume(volume) else { return Vec::new() };
    let label = record.selinux_label.as_deref();
    let unwanted = record
        .pods
        .iter()
        .filter(|(pod, _)| !worlds.desired.wants_with_label(volume, pod, label) && !may_run(pod));
    unwanted.map(|(_, entry)| Step::Start(unmount(volume, record, entry))).collect()
}

fn unmount(volume: &VolumeName, record: &VolumeRecord, entry: &PodEntry) -> Operation {
    let spec = &entry.record.spec;
    let request = Arc::new(UnmountVolume {
        volume: volume.clone(),
        plugin: record.plugin.clone(),
        pod: entry.record.pod.clone(),
        inner: spec.name(),
        spec: Some(Arc::clone(spec)),
    });
    match spec.mode() {
        VolumeMode::Filesystem => Operation::Unmount(request),
        VolumeMode::Block => Operation::Unmap(request),
    }
}

/// Mounts, checks and expansions for pods that want the volume and do not have it as wanted.
fn pod_mounts(worlds: Worlds<'_>, volume: &VolumeName, may_run: &impl Fn(&PodUid) -> bool) -> Vec<Step> {
    let Some(wanted) = worlds.desired.volume(volume) else { return Vec::new() };
    let alive = wanted.pods.iter().filter(|(pod, _)| may_run(pod));
    alive.filter_map(|(pod, by)| pod_mount(worlds, volume, wanted, pod, by)).collect()
}

fn pod_mount(
    worlds: Worlds<'_>,
    volume: &VolumeName,
    wanted: &Wanted,
    pod: &PodUid,
    by: &WantedBy,
) -> Option<Step> {
    let grows = can_grow(worlds, wanted);
    match worlds.actual.view(volume, pod, &wanted.label, wanted.size, grows) {
        PodView::Mounted => None,
        PodView::NotAttached => verify(worlds, volume, wanted, by),
        PodView::NotMounted | PodView::Uncertain if has_lost_attachment(worlds, volume, wanted) => {
            verify(worlds, volume, wanted, by)
        }
        PodView::LabelMismatch => Some(Step::Fail(pod.clone(), label_mismatch(&by.spec))),
        PodView::NotMounted => mount(worlds, volume, wanted, (pod, by), Before::Absent),
        PodView::Uncertain => mount(worlds, volume, wanted, (pod, by), Before::Uncertain),
        PodView::NeedsRemount => mount(worlds, volume, wanted, (pod, by), Before::Mounted),
        PodView::NeedsGrow { from } => {
            let record = worlds.actual.volume(volume)?;
            let mounted = record.pods.get(pod)?.mounted()?.clone();
            Some(Step::Start(Operation::Expand(Arc::new(ExpandVolume {
                volume: volume.clone(),
                spec: Arc::clone(&by.spec),
                plugin: wanted.plugin.clone(),
                pod: Arc::clone(&by.pod),
                mounted,
                device_path: record.device_path.clone(),
                new_size: wanted.size,
                old_size: from,
                expansion_failed: worlds.actual.expansion_failed(volume),
            }))))
        }
    }
}

fn has_lost_attachment(worlds: Worlds<'_>, volume: &VolumeName, wanted: &Wanted) -> bool {
    wanted.attachable && worlds.actual.volume(volume).is_some_and(|record| record.has_lost_attachment())
}

fn can_grow(worlds: Worlds<'_>, wanted: &Wanted) -> bool {
    let plugin = worlds.registry.by_name(&wanted.plugin);
    plugin.is_ok_and(|plugin| plugin.expander().is_some_and(|expander| expander.requires_resize()))
}

fn label_mismatch(spec: &Spec) -> String {
    format!(
        "waiting for unmount of volume \"{}\", because it is already mounted to a different pod with a different SELinux label",
        spec.name()
    )
}

/// Plans the check that brings a volume into the actual state. A volume that has to be attached waits until the
/// node's object lists it as in use, so that the controller does not detach it, and as attached. Neither wait
/// is a failure and neither has a back-off; the same holds while the node's object has not been seen.
fn verify(worlds: Worlds<'_>, volume: &VolumeName, wanted: &Wanted, by: &WantedBy) -> Option<Step> {
    if wanted.attachable {
        let attached = worlds.facts.node_unfollowed || worlds.facts.attached.contains(volume);
        if !wanted.reported_in_use || !attached {
            return None;
        }
    }
    Some(Step::Start(Operation::Verify(Arc::new(VerifyAttached {
        volume: volume.clone(),
        spec: Arc::clone(&by.spec),
        plugin: wanted.plugin.clone(),
        attachable: wanted.attachable,
        wants_size: by.spec.volume().is_some(),
    }))))
}

fn mount(
    worlds: Worlds<'_>,
    volume: &VolumeName,
    wanted: &Wanted,
    (pod, by): (&PodUid, &WantedBy),
    before: Before,
) -> Option<Step> {
    let record = worlds.actual.volume(volume)?;
    let may_have = |(other, named): &(PodUid, SpecName)| other != pod && *named == by.spec.name();
    let request = Arc::new(MountVolume {
        volume: volume.clone(),
        spec: Arc::clone(&by.spec),
        plugin: wanted.plugin.clone(),
        pod: Arc::clone(&by.pod),
        uid: pod.clone(),
        outer: by.outer.clone(),
        gid: wanted.gid.clone(),
        selinux_label: wanted.label.clone(),
        size_limit: wanted.size_limit,
        device_path: record.device_path.clone(),
        attachable: wanted.attachable,
        device: record.device.before(),
        before,
        used_elsewhere: record.is_used_by_another_pod(pod) || worlds.orphans.iter().any(may_have),
        expansion_failed: worlds.actual.expansion_failed(volume),
        expansion_blocked: record.expansion_blocked,
    });
    Some(Step::Start(match by.spec.mode() {
        VolumeMode::Filesystem => Operation::Mount(request),
        VolumeMode::Block => Operation::Map(request),
    }))
}

/// Plans the next step of removing a volume that no pod has from the node: unstage or unmap it, then forget it.
/// A volume that a pod wants with its present SELinux label stays staged.
fn device_unmount(worlds: Worlds<'_>, volume: &VolumeName) -> Option<Step> {
    let record = worlds.actual.volume(volume)?;
    let wanted = worlds.desired.exists_with_label(volume, record.selinux_label.as_deref());
    if wanted || !record.pods.is_empty() {
        return None;
    }
    let (Device::Uncertain { at } | Device::Mounted { at }) = &record.device else {
        let attempted = matches!(record.device, Device::Attempted { .. });
        return (!attempted).then(|| Step::Forget(volume.clone()));
    };
    let request = Arc::new(UnmountDevice {
        volume: volume.clone(),
        plugin: record.plugin.clone(),
        spec: Arc::clone(&record.spec),
        device_path: record.device_path.clone(),
        device_mount_path: at.clone(),
    });
    Some(Step::Start(match record.spec.mode() {
        VolumeMode::Filesystem => Operation::UnmountDevice(request),
        VolumeMode::Block => Operation::UnmapDevice(request),
    }))
}
