//! Changes of the desired and the actual state, and all that follows from them at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::names::{PodUid, VolumeName};
use api::{ApiSource, Notification, Object};
use plugin_api::{EmittedEvent, Transition};

use super::Manager;
use crate::event::Notice;
use crate::in_use::Mark;
use crate::populator::{Books, Resolved};
use crate::{recovery, waits};

impl Manager {
    /// Applies what an operation learned to the actual state.
    pub(super) fn apply(&mut self, volume: &VolumeName, transition: Transition) {
        let pod = transition.pod().cloned();
        if let Some(pod) = &pod {
            self.waits.observe(waits::Event::Changed(pod));
        }
        let before = self.notices.actual(&self.actual, volume, pod.as_ref());
        self.actual.apply(volume, transition);
        self.notices.actual_changed(&self.actual, volume, pod.as_ref(), before);
        self.dirty.insert(volume.clone());
    }

    /// Forgets a volume that is neither attached nor mounted any more. Does nothing while an operation runs on it: the
    /// end of that operation plans the volume again.
    pub(super) fn forget(&mut self, volume: &VolumeName) {
        if self.pending.on(volume).next().is_some() {
            return;
        }
        self.apply(volume, Transition::Detached);
        if self.desired.volume(volume).is_none() {
            self.pending.forget(volume);
        }
    }

    /// Takes in the resolved volumes of a pod.
    pub(super) fn resolved(&mut self, pod: &PodUid, resolved: Resolved) {
        let now = self.now();
        self.waits.observe(waits::Event::Changed(pod));
        let before = self.notices.desired(&self.desired, pod);
        let facts = self.known.facts();
        let registry = Arc::clone(self.executor.registry());
        let books = Books {
            desired: &mut self.desired,
            actual: &mut self.actual,
            facts: &facts,
            registry: &registry,
        };
        let concerned = self.populator.admit(pod, resolved, books, now).into_iter().collect();
        self.update_in_use(&concerned);
        self.dirty.extend(concerned);
        self.notices.desired_changed(&self.desired, pod, before);
        self.recovery.observe(recovery::Event::DesiredChanged);
    }

    /// Removes all volumes of a pod whose containers are gone from the desired state.
    pub(super) fn remove_wishes(&mut self, pod: &PodUid) {
        let before = self.notices.desired(&self.desired, pod);
        let volumes = self.desired.remove_pod(pod);
        self.notices.desired_changed(&self.desired, pod, before);
        for volume in &volumes {
            if self.actual.volume(volume).is_none() && self.desired.volume(volume).is_none() {
                self.pending.forget(volume);
            }
        }
        self.dirty.extend(volumes);
        let has: Vec<_> = self.actual.volumes_of(pod).map(|(volume, _)| volume.clone()).collect();
        self.dirty.extend(has);
        self.forget_pod(pod);
    }

    /// Forgets a removed pod that has no volume left. If its containers may run and recovery may still find
    /// volumes of it, it is kept.
    pub(super) fn forget_pod(&mut self, pod: &PodUid) {
        let may_have_more = self.populator.may_run(pod) && self.recovery.is_in_doubt_about(pod);
        if !self.desired.has_pod(pod) && !self.actual.has_pod(pod) && !may_have_more {
            self.populator.forget(pod);
        }
    }

    /// Takes changed volumes in for `volumesInUse`, and what the node's object was reported to list.
    pub(super) fn update_in_use(&mut self, changed: &BTreeSet<VolumeName>) {
        for Mark { volume, reported } in self.in_use.decide(&self.desired, &self.actual, changed) {
            self.desired.set_reported_in_use(&volume, reported);
            self.dirty.insert(volume);
        }
    }

    /// Sends subscribers the new `volumesInUse` if it changed.
    pub(super) fn publish_in_use(&mut self) {
        let progress = self.recovery.progress();
        // The list is long; without a subscriber it is not built.
        if self.in_use.take_changed(progress)
            && self.notices.has_subscribers()
            && let Some(volumes) = self.in_use.list(progress)
        {
            self.notices.send(|| Notice::InUse(volumes));
        }
    }

    /// Emits a Kubernetes event: to subscribers at once, to the API in the background.
    pub(super) fn emit(&mut self, event: EmittedEvent) {
        self.notices.send(|| Notice::Emitted(event.clone()));
        let api = Arc::clone(&self.executor.context().api);
        self.executor.background(write_event(api, event));
    }
}

async fn write_event(api: Arc<dyn ApiSource>, event: EmittedEvent) {
    let notification = Notification::about(event.about, event.severity, event.reason, event.message);
    // Events are best effort everywhere in Kubernetes: one that is lost changes nothing.
    if let Err(error) = api.create(Object::Notification(Arc::new(notification))).await {
        tracing::debug!(error = api::error::chain(&error), "cannot write a Kubernetes event; it is dropped");
    }
}
