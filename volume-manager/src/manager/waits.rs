//! Waits for the state of a pod or of the manager: their goals, their deadlines and their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::clock::Instant;
use api::names::{AttachmentName, OuterName, PodUid, VolumeName};
use api::{PersistentSource, Pod};
use plugin_api::Spec;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{Manager, commands};
use crate::event::Notice;

/// Why a wait failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum WaitError {
    /// Not every volume of the pod is mounted.
    #[error(
        "unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]: {cause}",
        join(unmounted),
        join(unattached),
        join(unprocessed)
    )]
    NotMounted {
        /// All volumes that are not mounted.
        unmounted: Vec<OuterName>,
        /// The unmounted volumes that have to be attached first and are not.
        unattached: Vec<OuterName>,
        /// The unmounted volumes that are not in the desired state.
        unprocessed: Vec<OuterName>,
        /// Why the wait ended.
        cause: WaitCause,
    },
    /// The pod still has volumes, recovery may find some, or an operation runs for it.
    #[error("mounted volumes=[{}]: {cause}", join(mounted))]
    StillMounted {
        /// The volumes, by their names in the pod where known, otherwise by the names of the PersistentVolumes.
        mounted: Vec<String>,
        /// Why the wait ended.
        cause: WaitCause,
    },
    /// The manager is not idle.
    #[error("the manager is not idle: {}: {cause}", busy.join(", "))]
    Busy {
        /// Operations and look-ups under way.
        busy: Vec<String>,
        /// Why the wait ended.
        cause: WaitCause,
    },
    /// The node can attach no more volumes of a driver.
    #[error("Node has reached its volume attachment limit, rejecting pod. {text}")]
    AttachmentLimit {
        /// The driver's message and which volumes it is about.
        text: String,
    },
    /// The manager has ended, or ended before the wait did.
    #[error("the volume manager has ended")]
    Gone,
}

/// Why a wait ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum WaitCause {
    /// The deadline has passed.
    #[error("context deadline exceeded")]
    Deadline,
    /// The pod was removed or its containers have ended.
    #[error("context canceled")]
    Canceled,
    /// The pod has errors that waiting does not mend.
    #[error("{0}")]
    Errors(String),
}

fn join<T: ToString>(names: &[T]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The goal of a wait.
#[derive(Debug, Clone)]
pub(super) enum Goal {
    /// All volumes of a pod are mounted. Keeps the pod's object as it was at the start, in case the pod is
    /// removed.
    Mounted(PodUid, Option<Arc<Pod>>),
    /// No volume of a pod is mounted, and recovery can find none.
    Unmounted(PodUid),
    /// Nothing is under way.
    Idle,
}

type Answer = oneshot::Sender<Result<(), WaitError>>;

/// All waiters, in the order of their calls.
///
/// After a restart ten thousand pods may wait at once: a waiter is only checked when something about its pod
/// has changed.
#[derive(Debug, Default)]
pub(super) struct Waits {
    last: u64,
    waiting: BTreeMap<u64, Waiter>,
    /// Waiters for a pod.
    by_pod: BTreeMap<PodUid, BTreeSet<u64>>,
    /// Waiters for an idle manager: checked in every turn.
    idle: BTreeSet<u64>,
    by_deadline: BTreeSet<(Instant, u64)>,
    /// Waiters to check in this turn, because something about their pod has changed.
    concerned: BTreeSet<u64>,
}

#[derive(Debug)]
struct Waiter {
    goal: Goal,
    deadline: Instant,
    answer: Answer,
    /// The volume that was missing at the last check; the next check starts with it.
    missing: Option<VolumeName>,
}

impl Goal {
    /// The pod it is about.
    fn pod(&self) -> Option<&PodUid> {
        match self {
            Self::Mounted(pod, _) | Self::Unmounted(pod) => Some(pod),
            Self::Idle => None,
        }
    }
}

impl Waits {
    pub(super) fn add(&mut self, goal: Goal, deadline: Instant, answer: Answer) {
        self.last += 1;
        let id = self.last;
        match goal.pod() {
            Some(pod) => drop(self.by_pod.entry(pod.clone()).or_default().insert(id)),
            None => drop(self.idle.insert(id)),
        }
        self.by_deadline.insert((deadline, id));
        self.concerned.insert(id);
        self.waiting.insert(id, Waiter { goal, deadline, answer, missing: None });
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// Marks the waiters for a pod to be checked.
    pub(super) fn concern(&mut self, pod: &PodUid) {
        self.concerned.extend(self.by_pod.get(pod).into_iter().flatten());
    }

    /// Marks all waiters to be checked.
    pub(super) fn concern_all(&mut self) {
        self.concerned.extend(self.waiting.keys());
    }

    /// Takes the waiters to check: those marked, those for an idle manager, those past their deadline.
    fn take_concerned(&mut self, now: Instant) -> BTreeSet<u64> {
        let mut concerned = std::mem::take(&mut self.concerned);
        concerned.extend(&self.idle);
        let late = self.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now);
        concerned.extend(late.map(|(_, id)| id));
        concerned
    }

    fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiting.remove(&id)?;
        self.by_deadline.remove(&(waiter.deadline, id));
        self.idle.remove(&id);
        if let Some(pod) = waiter.goal.pod()
            && let Some(ids) = self.by_pod.get_mut(pod)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_pod.remove(pod);
            }
        }
        Some(waiter)
    }
}

impl Manager {
    /// Checks the waiters that are due and answers those whose wait is over.
    pub(super) fn wake_waiters(&mut self, now: Instant) {
        for id in self.waits.take_concerned(now) {
            let Some(waiter) = self.waits.waiting.get(&id) else { continue };
            if waiter.answer.is_closed() {
                self.waits.remove(id);
                continue;
            }
            let (goal, late) = (waiter.goal.clone(), waiter.deadline <= now);
            let result = match &goal {
                Goal::Mounted(uid, pod) => self.mounted(id, uid, pod.clone(), late),
                Goal::Unmounted(pod) => self.unmounted(pod, late),
                Goal::Idle => self.idle(late),
            };
            if let Some(result) = result {
                self.answer(id, result);
            }
        }
    }

    /// Answers the waiters for the volumes of a pod that ends: its containers will not be started any more.
    pub(super) fn cancel_waits_for_volumes_of(&mut self, uid: &PodUid) {
        for id in self.waits.by_pod.get(uid).cloned().unwrap_or_default() {
            let goal = self.waits.waiting.get(&id).map(|waiter| waiter.goal.clone());
            let Some(Goal::Mounted(_, pod)) = goal else { continue };
            let pod = self.populator.pod(uid).cloned().or(pod);
            let unmounted = pod.map(|pod| self.unmounted_names(&pod)).unwrap_or_default();
            let result = match unmounted.is_empty() {
                true => Ok(()),
                false => Err(self.not_mounted(uid, unmounted, WaitCause::Canceled)),
            };
            self.answer(id, result);
        }
    }

    fn answer(&mut self, id: u64, result: Result<(), WaitError>) {
        let Some(waiter) = self.waits.remove(id) else { return };
        let about = match &waiter.goal {
            Goal::Mounted(pod, _) => Some(("mounted", pod)),
            Goal::Unmounted(pod) => Some(("unmounted", pod)),
            Goal::Idle => None,
        };
        if let Some((what, pod)) = about {
            let error = result.as_ref().err().map(ToString::to_string);
            self.notify(|| Notice::Waited { what: what.to_owned(), pod: pod.clone(), error });
        }
        // The send fails when the caller no longer waits.
        let _ = waiter.answer.send(result);
    }

    /// Whether all volumes of a pod are mounted; `None` if the wait goes on. Errors of the pod end the wait,
    /// but only while a volume is missing.
    fn mounted(
        &mut self,
        id: u64,
        uid: &PodUid,
        pod: Option<Arc<Pod>>,
        late: bool,
    ) -> Option<Result<(), WaitError>> {
        let known = self.populator.pod(uid).cloned();
        let alive = known.is_some() && self.populator.may_run(uid);
        let Some(pod) = known.or(pod) else {
            return Some(Err(self.not_mounted(uid, Vec::new(), WaitCause::Canceled)));
        };
        if self.populator.is_looking(uid) && !late {
            return None;
        }
        // Checked in most turns, and a pod may have a thousand volumes: the names are only listed when the wait
        // ends.
        if alive && !late && !self.desired.has_errors(uid) && self.has_missing_volume(id, uid) {
            return None;
        }
        let unmounted = self.unmounted_names(&pod);
        if unmounted.is_empty() {
            return Some(Ok(()));
        }
        let cause = if !alive {
            WaitCause::Canceled
        } else if self.desired.has_errors(uid) {
            WaitCause::Errors(self.desired.take_errors(uid).join("; "))
        } else if late {
            WaitCause::Deadline
        } else {
            return None;
        };
        Some(Err(self.over_limit(uid, &unmounted).unwrap_or_else(|| self.not_mounted(uid, unmounted, cause))))
    }

    /// Whether a desired volume of the pod is not mounted. A volume that no container uses is never desired.
    ///
    /// The search starts at the volume that was missing at the last check: those before it are usually mounted
    /// by now, and passing a thousand of them in every turn is slow.
    fn has_missing_volume(&mut self, id: u64, pod: &PodUid) -> bool {
        let last = self.waits.waiting.get(&id).and_then(|waiter| waiter.missing.as_ref());
        let missing = self.desired.names_of(pod, last).find(|volume| !self.is_mounted(volume, pod)).cloned();
        let lacks = missing.is_some();
        if let Some(waiter) = self.waits.waiting.get_mut(&id) {
            waiter.missing = missing;
        }
        lacks
    }

    fn is_mounted(&self, volume: &VolumeName, pod: &PodUid) -> bool {
        self.actual.entry(volume, pod).is_some_and(|entry| entry.mounted().is_some())
    }

    /// The volumes that the pod's containers use and that are not mounted for it.
    fn unmounted_names(&self, pod: &Pod) -> Vec<OuterName> {
        let expected: BTreeSet<_> = pod.mounted().union(&pod.devices()).cloned().collect();
        let mounted = self.mounted_names(&pod.uid());
        expected.into_iter().filter(|name| !mounted.contains(name)).collect()
    }

    fn mounted_names(&self, pod: &PodUid) -> BTreeSet<&OuterName> {
        let wanted = self.desired.volumes_of(pod);
        let mounted = wanted.filter(|(volume, ..)| self.is_mounted(volume, pod));
        mounted.flat_map(|(_, _, by)| &by.outer).collect()
    }

    fn not_mounted(&self, pod: &PodUid, unmounted: Vec<OuterName>, cause: WaitCause) -> WaitError {
        let unattached = self.unattached(pod, &unmounted).map(|(name, _)| name.clone()).collect();
        let wanted = |name: &&OuterName| self.desired.by_outer_name(pod, name).is_none();
        let unprocessed = unmounted.iter().filter(wanted).cloned().collect();
        WaitError::NotMounted { unmounted, unattached, unprocessed, cause }
    }

    /// The named volumes that have to be attached and are not.
    fn unattached<'a>(
        &'a self,
        pod: &'a PodUid,
        names: &'a [OuterName],
    ) -> impl Iterator<Item = (&'a OuterName, &'a Spec)> {
        names.iter().filter_map(move |name| {
            let volume = self.desired.by_outer_name(pod, name)?;
            let wanted = self.desired.volume(volume)?;
            let missing = wanted.attachable && self.actual.volume(volume).is_none();
            missing.then_some((name, &*wanted.pods.get(pod)?.spec))
        })
    }

    /// The attachment-limit error, if a volume is missing because the node can attach no more volumes of its
    /// driver. Only for a driver that refreshes its allocatable count: the scheduler can place the pod
    /// elsewhere then.
    fn over_limit(&self, pod: &PodUid, unmounted: &[OuterName]) -> Option<WaitError> {
        /// ResourceExhausted in gRPC.
        const EXHAUSTED: i32 = 8;
        let facts = self.facts.borrow();
        let node = &self.executor.context().config.node;
        self.unattached(pod, unmounted).find_map(|(_, spec)| {
            let Some(PersistentSource::Csi(csi)) = spec.persistent_source() else { return None };
            let driver = facts.csi_drivers.get(&csi.driver)?;
            driver.allocatable_period.filter(|period| *period > 0)?;
            let attachment = facts.attachments.get(&AttachmentName::of(&csi.handle, &csi.driver, node))?;
            let error = attachment.attach_error.as_ref()?;
            (error.code == Some(EXHAUSTED)).then(|| WaitError::AttachmentLimit {
                text: format!("volume {}: {}", spec.name(), error.message),
            })
        })
    }

    /// Whether a pod has no volume and recovery can find none; `None` if the wait goes on. A running operation
    /// counts: it may end with a mounted volume.
    fn unmounted(&self, pod: &PodUid, late: bool) -> Option<Result<(), WaitError>> {
        // The names are only listed when the wait ends.
        if !late && (self.actual.has_pod(pod) || self.pending.for_pod(pod).next().is_some()) {
            return None;
        }
        let mut left: BTreeSet<String> = BTreeSet::new();
        for (_, entry) in self.actual.volumes_of(pod) {
            let outer = entry.record.outer.first().map(ToString::to_string);
            left.insert(outer.unwrap_or_else(|| entry.record.spec.name().to_string()));
        }
        left.extend(self.pending.for_pod(pod).map(commands::running));
        left.extend(self.recovery.unexplained_of(pod));
        if !self.recovery.is_read_back() {
            // The volumes on disk are not known yet; one of them may be this pod's.
            left.insert("volumes on disk that are not reconstructed yet".to_owned());
        }
        if left.is_empty() {
            return Some(Ok(()));
        }
        let mounted = left.into_iter().collect();
        late.then_some(Err(WaitError::StillMounted { mounted, cause: WaitCause::Deadline }))
    }

    /// Whether nothing is under way; `None` if the wait goes on. Called after planning, so no operation is left
    /// to start.
    fn idle(&self, late: bool) -> Option<Result<(), WaitError>> {
        let busy = self.pending.running().next().is_some() || self.populator.is_busy();
        if busy && !late {
            return None;
        }
        let mut busy: Vec<String> = self.pending.running().map(commands::running).collect();
        busy.extend(self.populator.busy().map(|pod| format!("look at {pod}")));
        busy.extend(self.recovery.busy());
        if busy.is_empty() {
            return Some(Ok(()));
        }
        late.then_some(Err(WaitError::Busy { busy, cause: WaitCause::Deadline }))
    }
}
