//! Notices to subscribers, above all about changes of the desired and the actual state.

use std::collections::BTreeMap;

use api::names::{PodUid, VolumeName};
use tokio::sync::mpsc;

use crate::actual::ActualState;
use crate::desired::{self, DesiredState};
use crate::event::Notice;

/// The subscribers. Without one no notice is built.
#[derive(Debug, Default)]
pub(super) struct Notices {
    subscribers: Vec<mpsc::UnboundedSender<Notice>>,
}

/// The texts of a volume and of a pod's share of it in the actual state.
type ActualTexts = (String, String);

impl Notices {
    pub(super) fn subscribe(&mut self, subscriber: mpsc::UnboundedSender<Notice>) {
        self.subscribers.push(subscriber);
    }

    pub(super) fn has_subscribers(&self) -> bool {
        !self.subscribers.is_empty()
    }

    pub(super) fn send(&mut self, notice: impl FnOnce() -> Notice) {
        if !self.has_subscribers() {
            return;
        }
        let notice = notice();
        self.subscribers.retain(|subscriber| subscriber.send(notice.clone()).is_ok());
    }

    /// The texts before a change of the actual state, for [`actual_changed`](Self::actual_changed).
    pub(super) fn actual(
        &self,
        actual: &ActualState,
        volume: &VolumeName,
        pod: Option<&PodUid>,
    ) -> Option<ActualTexts> {
        self.has_subscribers().then(|| {
            let record = actual.volume(volume);
            let entry = pod.and_then(|pod| actual.entry(volume, pod));
            (
                record.map(ToString::to_string).unwrap_or_default(),
                entry.map(|entry| entry.mount.to_string()).unwrap_or_default(),
            )
        })
    }

    pub(super) fn actual_changed(
        &mut self,
        actual: &ActualState,
        volume: &VolumeName,
        pod: Option<&PodUid>,
        before: Option<ActualTexts>,
    ) {
        let (Some(before), Some(after)) = (before, self.actual(actual, volume, pod)) else { return };
        self.state("actual", format!("volume {volume}"), before.0, after.0);
        if let Some(pod) = pod {
            self.state("actual", format!("pod {pod} {volume}"), before.1, after.1);
        }
    }

    /// The texts before a change of the desired state, for [`desired_changed`](Self::desired_changed).
    pub(super) fn desired(&self, desired: &DesiredState, pod: &PodUid) -> BTreeMap<VolumeName, String> {
        if !self.has_subscribers() {
            return BTreeMap::new();
        }
        let wants = desired.volumes_of(pod);
        wants.map(|(volume, wanted, by)| (volume.clone(), desired::describe(wanted, by))).collect()
    }

    pub(super) fn desired_changed(
        &mut self,
        desired: &DesiredState,
        pod: &PodUid,
        before: BTreeMap<VolumeName, String>,
    ) {
        let mut after = self.desired(desired, pod);
        for (volume, from) in before {
            let to = after.remove(&volume).unwrap_or_default();
            self.state("desired", format!("pod {pod} {volume}"), from, to);
        }
        for (volume, to) in after {
            self.state("desired", format!("pod {pod} {volume}"), String::new(), to);
        }
    }

    fn state(&mut self, world: &str, key: String, from: String, to: String) {
        if from != to {
            self.send(|| Notice::State { world: world.to_owned(), key, from, to });
        }
    }
}
