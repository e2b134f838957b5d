//! Decides whether a wait ends: its goal is reached, its time is over, or an error ends it.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::names::{AttachmentName, OuterName, PodUid, VolumeName};
use api::{PersistentSource, Pod};
use plugin_api::Spec;

use super::{View, WaitCause, WaitError};
use crate::recovery::Progress;

/// The end of a wait.
pub(super) struct Check {
    pub(super) result: Result<(), WaitError>,
    /// Whether errors of the pod's operations ended the wait.
    pub(super) with_errors: bool,
}

impl From<Result<(), WaitError>> for Check {
    fn from(result: Result<(), WaitError>) -> Self {
        Self { result, with_errors: false }
    }
}

/// A wait until all volumes of a pod are mounted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mounted<'a> {
    pub(super) pod: &'a PodUid,
    /// The pod's object as it was at the start.
    pub(super) object: Option<&'a Arc<Pod>>,
    pub(super) errors: Option<&'a BTreeSet<String>>,
    pub(super) late: bool,
}

impl Mounted<'_> {
    /// `None` if the wait goes on. Errors of the pod end it, but only while a volume is missing.
    pub(super) fn check(self, view: View<'_>, missing: &mut Option<VolumeName>) -> Option<Check> {
        let Self { pod: uid, object, errors, late } = self;
        let known = view.pods.pod(uid);
        let alive = known.is_some() && view.pods.may_run(uid);
        let Some(pod) = known.or(object) else {
            return Some(Err(not_mounted(view, uid, Vec::new(), WaitCause::Canceled)).into());
        };
        if view.pods.is_resolving(uid) && !late {
            return None;
        }
        // This runs in most turns of the loop, and a pod may have a thousand volumes: the names are only listed when the
        // wait ends.
        if alive && !late && errors.is_none() && has_missing_volume(view, uid, missing) {
            return None;
        }
        let unmounted = unmounted_names(view, pod);
        if unmounted.is_empty() {
            return Some(Ok(()).into());
        }
        let cause = match errors {
            _ if !alive => WaitCause::Canceled,
            Some(errors) => WaitCause::Errors(errors.iter().cloned().collect::<Vec<_>>().join("; ")),
            None if late => WaitCause::Deadline,
            None => return None,
        };
        let with_errors = matches!(cause, WaitCause::Errors(_));
        let over_limit = over_limit(view, uid, &unmounted);
        let error = over_limit.unwrap_or_else(|| not_mounted(view, uid, unmounted, cause));
        Some(Check { result: Err(error), with_errors })
    }
}

/// The end of a wait for the volumes of a pod that ends.
pub(super) fn canceled(view: View<'_>, uid: &PodUid, object: Option<&Arc<Pod>>) -> Result<(), WaitError> {
    let pod = view.pods.pod(uid).or(object);
    let unmounted = pod.map(|pod| unmounted_names(view, pod)).unwrap_or_default();
    match unmounted.is_empty() {
        true => Ok(()),
        false => Err(not_mounted(view, uid, unmounted, WaitCause::Canceled)),
    }
}

/// Whether a desired volume of the pod is not mounted. A volume that no container uses is never desired.
fn has_missing_volume(view: View<'_>, pod: &PodUid, missing: &mut Option<VolumeName>) -> bool {
    // The search starts at the volume that was missing at the last check: those before it are usually mounted
    // by now, and passing a thousand of them in every turn is slow.
    let is_missing = |volume: &&VolumeName| !is_mounted(view, volume, pod);
    let last = missing.take();
    *missing = view.desired.names_of(pod, last.as_ref()).find(is_missing).cloned();
    missing.is_some()
}

fn is_mounted(view: View<'_>, volume: &VolumeName, pod: &PodUid) -> bool {
    view.actual.entry(volume, pod).is_some_and(|entry| entry.mounted().is_some())
}

/// The volumes that the pod's containers use and that are not mounted for it.
fn unmounted_names(view: View<'_>, pod: &Pod) -> Vec<OuterName> {
    let expected: BTreeSet<_> = pod.mounted().union(&pod.devices()).cloned().collect();
    let mounted = mounted_names(view, &pod.uid());
    expected.into_iter().filter(|name| !mounted.contains(name)).collect()
}

fn mounted_names<'a>(view: View<'a>, pod: &PodUid) -> BTreeSet<&'a OuterName> {
    let wanted = view.desired.volumes_of(pod);
    let mounted = wanted.filter(|(volume, ..)| is_mounted(view, volume, pod));
    mounted.flat_map(|(_, _, by)| &by.outer).collect()
}

fn not_mounted(view: View<'_>, pod: &PodUid, unmounted: Vec<OuterName>, cause: WaitCause) -> WaitError {
    let unattached = unattached(view, pod, &unmounted).map(|(name, _)| name.clone()).collect();
    let unknown = |name: &&OuterName| view.desired.by_outer_name(pod, name).is_none();
    let unprocessed = unmounted.iter().filter(unknown).cloned().collect();
    WaitError::NotMounted { unmounted, unattached, unprocessed, cause }
}

/// The named volumes that have to be attached and are not.
fn unattached<'a>(
    view: View<'a>,
    pod: &'a PodUid,
    names: &'a [OuterName],
) -> impl Iterator<Item = (&'a OuterName, &'a Spec)> {
    names.iter().filter_map(move |name| {
        let volume = view.desired.by_outer_name(pod, name)?;
        let wanted = view.desired.volume(volume)?;
        let missing = wanted.attachable && view.actual.volume(volume).is_none();
        missing.then_some((name, &*wanted.pods.get(pod)?.spec))
    })
}

/// The attachment-limit error, if a volume is missing because the node can attach no more volumes of its
/// driver. Only for a driver that refreshes its allocatable count: the scheduler can place the pod elsewhere
/// then.
fn over_limit(view: View<'_>, pod: &PodUid, unmounted: &[OuterName]) -> Option<WaitError> {
    /// ResourceExhausted in gRPC.
    const EXHAUSTED: i32 = 8;
    unattached(view, pod, unmounted).find_map(|(_, spec)| {
        let Some(PersistentSource::Csi(csi)) = spec.persistent_source() else { return None };
        let driver = view.facts.csi_drivers.get(&csi.driver)?;
        driver.allocatable_period.filter(|period| *period > 0)?;
        let attachment = AttachmentName::of(&csi.handle, &csi.driver, view.node);
        let error = view.facts.attachments.get(&attachment)?.attach_error.as_ref()?;
        (error.code == Some(EXHAUSTED)).then(|| WaitError::AttachmentLimit {
            text: format!("volume {}: {}", spec.name(), error.message),
        })
    })
}

/// Whether a pod has no volume and recovery can find none; `None` if the wait goes on. A running operation
/// counts: it may end with a mounted volume.
pub(super) fn unmounted(view: View<'_>, pod: &PodUid, late: bool) -> Option<Result<(), WaitError>> {
    // The names are only listed when the wait ends.
    if !late && (view.actual.has_pod(pod) || view.pending.for_pod(pod).next().is_some()) {
        return None;
    }
    let mut left: BTreeSet<String> = BTreeSet::new();
    for (_, entry) in view.actual.volumes_of(pod) {
        let outer = entry.record.outer.first().map(ToString::to_string);
        left.insert(outer.unwrap_or_else(|| entry.record.spec.name().to_string()));
    }
    left.extend(view.pending.for_pod(pod).map(ToString::to_string));
    left.extend(view.recovery.unidentified_of(pod));
    if view.recovery.progress() == Progress::Reconstructing {
        // The volumes on disk are not known yet; one of them may be this pod's.
        left.insert("volumes on disk that are not reconstructed yet".to_owned());
    }
    if left.is_empty() {
        return Some(Ok(()));
    }
    let mounted = left.into_iter().collect();
    late.then_some(Err(WaitError::StillMounted { mounted, cause: WaitCause::Deadline }))
}

/// Whether no operation and no look-up is running; `None` if the wait goes on.
pub(super) fn idle(view: View<'_>, late: bool) -> Option<Result<(), WaitError>> {
    let is_busy = view.pending.running().next().is_some() || view.pods.is_busy();
    if is_busy && !late {
        return None;
    }
    let mut busy: Vec<String> = view.pending.running().map(ToString::to_string).collect();
    busy.extend(view.pods.busy().map(|pod| format!("look at {pod}")));
    busy.extend(view.recovery.busy());
    if busy.is_empty() {
        return Some(Ok(()));
    }
    late.then_some(Err(WaitError::Busy { busy, cause: WaitCause::Deadline }))
}
