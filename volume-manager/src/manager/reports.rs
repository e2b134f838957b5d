//! What running operations say: what they learn on their way, and how they end.

use api::names::VolumeName;
use plugin_api::error::{Sign, Withdrawn};
use plugin_api::{OperationId, Transition};

use super::Manager;
use crate::event::{Notice, Outcome, Report};
use crate::operation::OperationName;
use crate::operation::pending::Ended;

impl Manager {
    pub(super) fn reported(&mut self, id: OperationId, report: Report) {
        match report {
            Report::Learned { transition, done } => {
                let Some(running) = self.pending.get(id) else { return };
                let volume = running.key.volume.clone();
                let answer = self.permit(&volume, &transition);
                if answer.is_ok() {
                    self.find_attached(&volume, &transition);
                    self.apply(&volume, transition);
                }
                // An operation that was dropped meanwhile has stopped before its risk.
                let _ = done.send(answer);
            }
            Report::Finished(outcome) => self.finished(id, outcome),
        }
    }

    /// Nothing is begun for a pod that has gone meanwhile, and so wants nothing: a mark before a risk is where an
    /// operation learns of that. The step per node may go on as long as any pod wants the volume. One that pods
    /// left and others came for while it was verified may not be called in use any more: it is verified again
    /// when it is.
    fn permit(&self, volume: &VolumeName, transition: &Transition) -> Result<(), Withdrawn> {
        let wanted = match transition {
            Transition::Attached { attachable: true, .. } => {
                self.desired.volume(volume).is_none_or(|wanted| wanted.reported_in_use)
            }
            Transition::PodUncertain(record) => self.desired.wants(volume, &record.pod),
            Transition::DeviceUncertain { .. } => self.desired.volume(volume).is_some(),
            _ => true,
        };
        if wanted { Ok(()) } else { Err(Withdrawn) }
    }

    /// A mount risks nothing before it has found attached what must be. What was read back and is not corrected
    /// yet says nothing of that, and the node's object, read earlier, may say that it is not.
    fn find_attached(&mut self, volume: &VolumeName, risks: &Transition) {
        let mark = matches!(risks, Transition::DeviceUncertain { .. } | Transition::PodUncertain(_));
        let found = mark && self.desired.volume(volume).is_some_and(|wanted| wanted.attachable);
        if found && self.actual.volume(volume).is_some_and(|record| !record.is_attached()) {
            self.apply(volume, Transition::AttachmentFound);
        }
    }

    /// Growing may end without an error and without a result, when it is not the node's turn yet. The kubelet
    /// asks again ten times a second.
    fn is_still_small(&self, id: OperationId) -> bool {
        let Some(running) = self.pending.get(id).filter(|running| running.name == OperationName::Expand)
        else {
            return false;
        };
        let volume = &running.key.volume;
        let wanted = self.desired.volume(volume).map(|wanted| wanted.size);
        let record = self.actual.volume(volume);
        wanted.zip(record).is_some_and(|(wanted, record)| record.is_smaller_than(wanted))
    }

    fn finished(&mut self, id: OperationId, outcome: Outcome) {
        let (ended, error) = match outcome {
            Outcome::Done if self.is_still_small(id) => (Ended::Badly, None),
            Outcome::Done => (Ended::Well, None),
            Outcome::Failed(failed) => {
                let unwanted = failed.source.sign() == Some(Sign::Withdrawn);
                let ended = if unwanted { Ended::Unwanted } else { Ended::Badly };
                // What the pod is told of is told here in the same words.
                let said = if failed.reason.is_some() { failed.told_as() } else { failed.message() };
                (ended, Some((failed.message(), said)))
            }
            Outcome::Panicked(text) => {
                self.count("operation_panics");
                tracing::error!(operation = %id, text, "an operation panicked");
                let text = format!("panicked: {text}");
                (Ended::Badly, Some((text.clone(), text)))
            }
        };
        let Some(running) = self.pending.finish(id, ended, self.now()) else { return };
        let (name, volume, pod) = (running.name, running.key.volume, running.pod);
        if let Some(pod) = &pod {
            self.waits.concern(pod);
        }
        match &error {
            None => tracing::debug!(operation = %name, %volume, "done"),
            Some((error, _)) => tracing::info!(operation = %name, %volume, error, "failed"),
        }
        self.count(if ended == Ended::Badly { "operations_failed" } else { "operations_done" });
        // Only mounts make attempts, and they have the volume or the pod's share of it to themselves.
        self.actual.settle(&volume, pod.as_ref());
        let error = error.map(|(_, said)| said);
        self.notify(|| Notice::Ended { name, volume: volume.clone(), pod: pod.clone(), error });
        if self.desired.volume(&volume).is_none() && self.actual.volume(&volume).is_none() {
            self.pending.forget(&volume);
        }
        if let Some(pod) = pod.filter(|pod| self.populator.pod(pod).is_none()) {
            self.forget_pod(&pod);
        }
        self.dirty.insert(volume);
    }
}
