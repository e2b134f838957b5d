//! Waits for the state of a pod or of the manager: their goals, their deadlines and their answers.
//!
//! [`Waits`] observes the waiters and the pods that change, and [`Waits::decide`] ends the waits that are over.
//! Neither does IO.

mod goal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Pod;
use api::clock::Instant;
use api::names::{NodeName, OuterName, PodUid, VolumeName};
use plugin_api::Facts;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::actual::ActualState;
use crate::desired::DesiredState;
use crate::operation::pending::Pending;
use crate::populator::Populator;
use crate::recovery::Recovery;

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
pub(crate) enum Goal {
    /// All volumes of a pod are mounted. Keeps the pod's object as it was at the start, in case the pod is
    /// removed.
    Mounted(PodUid, Option<Arc<Pod>>),
    /// No volume of a pod is mounted, and recovery can find none.
    Unmounted(PodUid),
    /// Nothing is under way.
    Idle,
}

/// The channel to the caller of a wait.
pub(crate) type Answer = oneshot::Sender<Result<(), WaitError>>;

#[derive(Debug)]
pub(crate) enum Event<'a> {
    Begun {
        goal: Goal,
        deadline: Instant,
        answer: Answer,
    },
    /// Something about a pod has changed.
    Changed(&'a PodUid),
    /// Something has changed that may be about any pod.
    AllChanged,
}

/// A consequence of events, to be carried out by the manager.
#[derive(Debug)]
pub(crate) enum Step {
    /// Forget the errors of a pod: a wait has ended with them.
    ForgetErrors(PodUid),
    End {
        goal: Goal,
        result: Result<(), WaitError>,
        answer: Answer,
    },
}

/// The rest of the manager's state that waits depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) desired: &'a DesiredState,
    pub(crate) actual: &'a ActualState,
    pub(crate) pods: &'a Populator,
    pub(crate) pending: &'a Pending,
    pub(crate) recovery: &'a Recovery,
    pub(crate) facts: &'a Facts,
    pub(crate) node: &'a NodeName,
}

/// All waiters, in the order of their calls.
///
/// After a restart ten thousand pods may wait at once: a waiter is only checked when something about its pod
/// has changed.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    last: u64,
    waiting: BTreeMap<u64, Waiter>,
    /// Waiters for a pod.
    by_pod: BTreeMap<PodUid, BTreeSet<u64>>,
    /// Waiters for an idle manager: checked by each decision.
    idle: BTreeSet<u64>,
    by_deadline: BTreeSet<(Instant, u64)>,
    /// Waiters to check, because something about their pod has changed.
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

    /// The state that a pod is waited for to reach, and the pod.
    pub(crate) fn about_pod(&self) -> Option<(&'static str, &PodUid)> {
        match self {
            Self::Mounted(pod, _) => Some(("mounted", pod)),
            Self::Unmounted(pod) => Some(("unmounted", pod)),
            Self::Idle => None,
        }
    }
}

impl Waits {
    pub(crate) fn observe(&mut self, event: Event<'_>) {
        match event {
            Event::Begun { goal, deadline, answer } => self.add(goal, deadline, answer),
            Event::Changed(pod) => self.concerned.extend(self.by_pod.get(pod).into_iter().flatten()),
            Event::AllChanged => self.concerned.extend(self.waiting.keys()),
        }
    }

    /// Ends the waits that are over. To be called after planning, when no operation is left to start.
    pub(crate) fn decide(&mut self, view: View<'_>, now: Instant) -> Vec<Step> {
        let mut steps = Vec::new();
        // Errors end one wait only; the pod's other waits go on.
        let mut answered_pods = BTreeSet::new();
        for id in self.take_concerned(now) {
            let Some(waiter) = self.waiting.get_mut(&id) else { continue };
            if waiter.answer.is_closed() {
                self.remove(id);
                continue;
            }
            let late = waiter.deadline <= now;
            let result = match &waiter.goal {
                Goal::Mounted(pod, object) => {
                    let errors = view.desired.errors_of(pod).filter(|_| !answered_pods.contains(pod));
                    let goal = goal::Mounted { pod, object: object.as_ref(), errors, late };
                    goal.check(view, &mut waiter.missing)
                }
                Goal::Unmounted(pod) => goal::unmounted(view, pod, late).map(goal::Check::from),
                Goal::Idle => goal::idle(view, late).map(goal::Check::from),
            };
            let Some(goal::Check { result, with_errors }) = result else { continue };
            if let Some(pod) = waiter.goal.pod().filter(|_| with_errors) {
                answered_pods.insert(pod.clone());
                steps.push(Step::ForgetErrors(pod.clone()));
            }
            steps.extend(self.end(id, result));
        }
        steps
    }

    /// Ends the waits for the volumes of a pod that ends: its containers will not be started any more.
    pub(crate) fn cancel(&mut self, view: View<'_>, pod: &PodUid) -> Vec<Step> {
        let mut steps = Vec::new();
        for id in self.by_pod.get(pod).cloned().unwrap_or_default() {
            let goal = self.waiting.get(&id).map(|waiter| &waiter.goal);
            let Some(Goal::Mounted(_, object)) = goal else { continue };
            let result = goal::canceled(view, pod, object.as_ref());
            steps.extend(self.end(id, result));
        }
        steps
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    fn add(&mut self, goal: Goal, deadline: Instant, answer: Answer) {
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

    /// Takes the waiters to check: those marked, those for an idle manager, those past their deadline.
    fn take_concerned(&mut self, now: Instant) -> BTreeSet<u64> {
        let mut concerned = std::mem::take(&mut self.concerned);
        concerned.extend(&self.idle);
        let late = self.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now);
        concerned.extend(late.map(|(_, id)| id));
        concerned
    }

    fn end(&mut self, id: u64, result: Result<(), WaitError>) -> Option<Step> {
        let Waiter { goal, answer, .. } = self.remove(id)?;
        Some(Step::End { goal, result, answer })
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

#[cfg(test)]
mod tests;
