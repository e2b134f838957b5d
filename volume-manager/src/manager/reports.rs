//! Reports of running operations: their transitions and their outcomes.

use api::names::VolumeName;
use plugin_api::error::{Sign, Withdrawn};
use plugin_api::{OperationId, Transition};

use super::Manager;
use crate::event::{Notice, Outcome, Report};
use crate::operation::OperationName;
use crate::operation::pending::Ended;
use crate::waits;

impl Manager {
    pub(super) fn reported(&mut self, id: OperationId, report: Report) {
        match report {
            Report::Learned { transition, done } => {
                let Some(running) = self.pending.get(id) else { return };
                let volume = running.key.volume.clone();
                let answer = self.permit(&volume, &transition);
                if answer.is_ok() {
                    self.confirm_attachment(&volume, &transition);
                    self.apply(&volume, transition);
                }
                // The receiver is gone if the operation was dropped; it stopped before its risky call then.
                let _ = done.send(answer);
            }
            Report::Finished(outcome) => self.finished(id, outcome),
        }
    }

    /// Refuses to record the mark of an operation that is no longer wanted, so that it ends before its risky
    /// call: a publish for a pod that no longer wants the volume, a stage for a volume that no pod wants. Also
    /// refuses an attachment whose volume is not reported in use: its pods left and others came while it was
    /// verified, so it must be verified again after the next report.
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

    /// A mount that is about to begin has found its volume attached. The actual state may not say so yet: a
    /// reconstructed volume is not attached until it is compared with the node's object, and that object may
    /// have been read before the attachment.
    fn confirm_attachment(&mut self, volume: &VolumeName, risks: &Transition) {
        let mark = matches!(risks, Transition::DeviceUncertain { .. } | Transition::PodUncertain(_));
        let found = mark && self.desired.volume(volume).is_some_and(|wanted| wanted.attachable);
        if found && self.actual.volume(volume).is_some_and(|record| !record.is_attached()) {
            self.apply(volume, Transition::AttachmentFound);
        }
    }

    /// Whether an expansion ended without an error and the volume is still smaller than wanted, because the
    /// claim is not `NodeResizePending` yet. It is tried again after a back-off; the kubelet tries ten times a
    /// second.
    fn is_expansion_pending(&self, id: OperationId) -> bool {
        let Some(running) = self.pending.get(id).filter(|running| running.name == OperationName::Expand)
        else {
            return false;
        };
        let volume = &running.key.volume;
        let wanted = self.desired.volume(volume).map(|wanted| wanted.size);
        let record = self.actual.volume(volume);
        wanted.zip(record).is_some_and(|(wanted, record)| record.must_grow_to(wanted))
    }

    fn finished(&mut self, id: OperationId, outcome: Outcome) {
        let (ended, error) = match outcome {
            Outcome::Done if self.is_expansion_pending(id) => (Ended::Badly, None),
            Outcome::Done => (Ended::Well, None),
            Outcome::Failed(failed) => {
                let unwanted = failed.source.sign() == Some(Sign::Withdrawn);
                let ended = if unwanted { Ended::Unwanted } else { Ended::Badly };
                // Notices use the text of the pod's Kubernetes event, if there is one.
                let said = if failed.reason.is_some() { failed.event_message() } else { failed.message() };
                (ended, Some((failed.message(), said)))
            }
            Outcome::Panicked(text) => {
                self.count("operation_panics");
                tracing::error!(operation = %id, text, "operation panicked; retrying after its back-off");
                let text = format!("panicked: {text}");
                (Ended::Badly, Some((text.clone(), text)))
            }
        };
        let Some(running) = self.pending.finish(id, ended, self.now()) else { return };
        let (name, volume, pod) = (running.name, running.key.volume, running.pod);
        if let Some(pod) = &pod {
            self.waits.observe(waits::Event::Changed(pod));
        }
        match &error {
            None => tracing::debug!(operation = %name, %volume, "operation done"),
            Some((error, _)) => tracing::info!(operation = %name, %volume, error, "operation failed"),
        }
        self.count(if ended == Ended::Badly { "operations_failed" } else { "operations_done" });
        // Only mount operations count attempts, and no other operation runs on the same volume, or on the pod's
        // share of it.
        self.actual.settle(&volume, pod.as_ref());
        let error = error.map(|(_, said)| said);
        self.notices.send(|| Notice::Ended { name, volume: volume.clone(), pod: pod.clone(), error });
        if self.desired.volume(&volume).is_none() && self.actual.volume(&volume).is_none() {
            self.pending.forget(&volume);
        }
        if let Some(pod) = pod.filter(|pod| self.populator.pod(pod).is_none()) {
            self.forget_pod(&pod);
        }
        self.dirty.insert(volume);
    }
}
