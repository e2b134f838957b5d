//! Compares what should be with what is, and says what to do: a pure function.
//!
//! Nothing here starts anything or waits for anything. What [`plan`] proposes still has to be admitted: two
//! operations of one plan may exclude each other, and then the first one runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::VolumeMode;
use api::names::{PodUid, SpecName, VolumeName};
use plugin_api::registry::Registry;
use plugin_api::{Before, Facts, Spec};

use crate::actual::{ActualState, Device, PodEntry, PodView, VolumeRecord};
use crate::desired::{DesiredState, Wanted, WantedBy};
use crate::operation::{ExpandVolume, MountVolume, Operation, UnmountDevice, UnmountVolume, VerifyAttached};

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Worlds<'a> {
    /// What should be.
    pub desired: &'a DesiredState,
    /// What is.
    pub actual: &'a ActualState,
    /// What is known of the world.
    pub facts: &'a Facts,
    /// The plugins.
    pub registry: &'a Registry,
    /// Whether both books are complete: every pod known at the start has been looked at, and what was
    /// reconstructed has been compared with the node's object.
    pub complete: bool,
    /// Whether nothing that was left is just being identified: it may be a pod's hold on any volume.
    pub explained: bool,
    /// Directories of pods that explain nothing yet: each may hold the volume that it is named after.
    pub orphans: &'a BTreeSet<(PodUid, SpecName)>,
}

/// Something to do next.
#[derive(Debug, Clone)]
pub enum Step {
    /// Start this operation, if it may start.
    Start(Operation),
    /// Close the books on a volume, if nothing runs on it.
    Forget(VolumeName),
    /// Tell whoever waits for a pod that waiting will not help.
    Fail(PodUid, String),
}

/// Everything that should start next among the volumes that changed, in starting order.
///
/// Unmounts come first, so that a volume which moves from a pod that is gone to a new one leaves the first
/// before it enters the second. Nothing is unmounted before both books are complete: what looks unwanted may
/// only be not yet known. `may_run` says whether containers of a pod may still run: such a pod loses nothing.
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

/// The pods that have a volume, or may have it, and do not want it as it is.
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

/// The pods that want a volume and do not have it, or not as they should.
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
        PodView::NotMounted => mount(worlds, volume, wanted, by, Before::Absent),
        PodView::Uncertain => mount(worlds, volume, wanted, by, Before::Uncertain),
        PodView::NeedsRemount => mount(worlds, volume, wanted, by, Before::Mounted),
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

/// Opens the books on a volume. One that must be attached waits until the node's object says that it is in
/// use, so that nobody detaches it, and that it is attached: neither wait is a failure, nor is the one for an
/// object that was not heard of yet.
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
    by: &WantedBy,
    before: Before,
) -> Option<Step> {
    let record = worlds.actual.volume(volume)?;
    let pod = by.pod.uid();
    let may_have = |(other, named): &(PodUid, SpecName)| *other != pod && *named == by.spec.name();
    let request = Arc::new(MountVolume {
        volume: volume.clone(),
        spec: Arc::clone(&by.spec),
        plugin: wanted.plugin.clone(),
        pod: Arc::clone(&by.pod),
        outer: by.outer.clone(),
        gid: wanted.gid.clone(),
        selinux_label: wanted.label.clone(),
        size_limit: wanted.size_limit,
        device_path: record.device_path.clone(),
        attachable: wanted.attachable,
        device: record.device.before(),
        before,
        used_elsewhere: record.is_used_elsewhere(&pod) || worlds.orphans.iter().any(may_have),
        expansion_failed: worlds.actual.expansion_failed(volume),
        expansion_blocked: record.expansion_blocked,
    });
    Some(Step::Start(match by.spec.mode() {
        VolumeMode::Filesystem => Operation::Mount(request),
        VolumeMode::Block => Operation::Map(request),
    }))
}

/// A volume no pod has: it leaves the node step by step, and then the books. As long as some pod wants it as
/// it is, it stays staged.
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
