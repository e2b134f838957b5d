//! Changes of the desired and the actual state, and the notices to subscribers about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::names::{PodUid, VolumeName};
use api::{ApiSource, Notification, Object};
use plugin_api::{Facts, Told, Transition};

use super::Manager;
use crate::actual::VolumeRecord;
use crate::desired;
use crate::event::Notice;
use crate::populator::{Books, Resolved};

impl Manager {
    /// Sends a notice to all subscribers. It is only built if there is one.
    pub(super) fn notify(&mut self, notice: impl FnOnce() -> Notice) {
        if self.subscribers.is_empty() {
            return;
        }
        let notice = notice();
        self.subscribers.retain(|subscriber| subscriber.send(notice.clone()).is_ok());
    }

    /// Applies what an operation learned to the actual state.
    pub(super) fn apply(&mut self, volume: &VolumeName, transition: Transition) {
        let pod = transition.pod().cloned();
        if let Some(pod) = &pod {
            self.waits.concern(pod);
        }
        let before = self.actual_texts(volume, pod.as_ref());
        self.actual.apply(volume, transition);
        self.notify_actual_change(volume, pod.as_ref(), before);
        self.dirty.insert(volume.clone());
    }

    /// Forgets a volume that is neither attached nor mounted any more. While an operation runs on it nothing
    /// happens: the end of that operation has it planned again.
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
        self.waits.concern(pod);
        let before = self.desired_texts(pod);
        let facts = Arc::clone(&self.facts.borrow());
        let registry = Arc::clone(self.executor.registry());
        let books = Books {
            desired: &mut self.desired,
            actual: &mut self.actual,
            facts: &facts,
            registry: &registry,
        };
        let concerned = self.populator.admit(pod, resolved, books, now);
        for volume in concerned.iter().filter(|volume| self.reported.contains(*volume)) {
            self.desired.set_reported_in_use(volume, true);
        }
        self.dirty.extend(concerned);
        self.notify_desired_change(pod, before);
        self.identify_by_desired_state();
    }

    /// Removes all volumes of a pod whose containers are gone from the desired state.
    pub(super) fn remove_wishes(&mut self, pod: &PodUid) {
        let before = self.desired_texts(pod);
        let volumes = self.desired.remove_pod(pod);
        self.notify_desired_change(pod, before);
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

    pub(super) fn change_facts(&mut self, change: impl FnOnce(&mut Facts)) {
        self.facts.send_modify(|facts| change(Arc::make_mut(facts)));
    }

    /// Updates `volumesInUse`: volumes that a pod wants and that can be attached, and volumes that are
    /// attached. A volume that leaves the list must be reported again when it returns, since the node's object
    /// may have lost it in between.
    pub(super) fn update_in_use(&mut self, changed: &BTreeSet<VolumeName>) {
        for volume in changed {
            let wanted = self.desired.volume(volume).is_some_and(|wanted| wanted.attachable);
            let used = wanted || self.actual.volume(volume).is_some_and(VolumeRecord::is_attached);
            if used {
                self.recovery.know(volume);
            }
            if used && !self.in_use.contains(volume) {
                self.in_use.insert(volume.clone());
                self.in_use_changed = true;
            } else if !used && self.in_use.remove(volume) {
                self.reported.remove(volume);
                self.in_use_changed = true;
            }
        }
    }

    /// Sends subscribers the new `volumesInUse` if it changed.
    pub(super) fn publish_in_use(&mut self) {
        if !self.in_use_changed || !self.recovery.is_corrected() {
            return;
        }
        self.in_use_changed = false;
        // The list is long; without a subscriber it is not built.
        if !self.subscribers.is_empty()
            && let Some(volumes) = self.volumes_in_use()
        {
            self.notify(|| Notice::InUse(volumes));
        }
    }

    /// The node's `volumesInUse`. `None` until recovery has compared the reconstructed volumes with the node's
    /// object: the attach/detach controller may detach a volume that the list lacks, even if it is mounted.
    pub(super) fn volumes_in_use(&self) -> Option<Vec<VolumeName>> {
        let all = || self.in_use.union(self.recovery.kept()).cloned().collect();
        self.recovery.is_corrected().then(all)
    }

    /// Takes in the `volumesInUse` that the node's object was written or read with. That list is older than
    /// `in_use`: a volume that has left `in_use` since is ignored, because the next write removes it.
    pub(super) fn mark_reported(&mut self, volumes: Vec<VolumeName>) {
        let reported = volumes.into_iter().filter(|volume| self.in_use.contains(volume)).collect();
        let before = std::mem::replace(&mut self.reported, reported);
        for volume in before.symmetric_difference(&self.reported) {
            self.desired.set_reported_in_use(volume, self.reported.contains(volume));
            self.dirty.insert(volume.clone());
        }
    }

    /// Emits a Kubernetes event: to subscribers at once, to the API in the background.
    pub(super) fn tell(&mut self, told: Told) {
        self.notify(|| Notice::Told(told.clone()));
        let api = Arc::clone(&self.executor.context().api);
        self.executor.background(write_event(api, told));
    }

    /// The texts of a volume and of a pod's share of it in the actual state, to compare with later. `None`
    /// without a subscriber.
    pub(super) fn actual_texts(&self, volume: &VolumeName, pod: Option<&PodUid>) -> Option<(String, String)> {
        (!self.subscribers.is_empty()).then(|| {
            let record = self.actual.volume(volume);
            let entry = pod.and_then(|pod| self.actual.entry(volume, pod));
            (
                record.map(ToString::to_string).unwrap_or_default(),
                entry.map(|entry| entry.mount.to_string()).unwrap_or_default(),
            )
        })
    }

    /// Notifies subscribers if the texts differ from `before`.
    pub(super) fn notify_actual_change(
        &mut self,
        volume: &VolumeName,
        pod: Option<&PodUid>,
        before: Option<(String, String)>,
    ) {
        let (Some(before), Some(after)) = (before, self.actual_texts(volume, pod)) else { return };
        self.notify_state("actual", format!("volume {volume}"), before.0, after.0);
        if let Some(pod) = pod {
            self.notify_state("actual", format!("pod {pod} {volume}"), before.1, after.1);
        }
    }

    fn desired_texts(&self, pod: &PodUid) -> BTreeMap<VolumeName, String> {
        if self.subscribers.is_empty() {
            return BTreeMap::new();
        }
        let wants = self.desired.volumes_of(pod);
        wants.map(|(volume, wanted, by)| (volume.clone(), desired::describe(wanted, by))).collect()
    }

    fn notify_desired_change(&mut self, pod: &PodUid, before: BTreeMap<VolumeName, String>) {
        let mut after = self.desired_texts(pod);
        for (volume, from) in before {
            let to = after.remove(&volume).unwrap_or_default();
            self.notify_state("desired", format!("pod {pod} {volume}"), from, to);
        }
        for (volume, to) in after {
            self.notify_state("desired", format!("pod {pod} {volume}"), String::new(), to);
        }
    }

    fn notify_state(&mut self, world: &str, key: String, from: String, to: String) {
        if from != to {
            self.notify(|| Notice::State { world: world.to_owned(), key, from, to });
        }
    }
}

async fn write_event(api: Arc<dyn ApiSource>, told: Told) {
    let notification = Notification::about(told.about, told.severity, told.reason, told.message);
    // Events are best effort everywhere in Kubernetes: one that is lost changes nothing.
    if let Err(error) = api.create(Object::Notification(Arc::new(notification))).await {
        tracing::debug!(error = api::error::chain(&error), "cannot write a Kubernetes event; it is dropped");
    }
}
