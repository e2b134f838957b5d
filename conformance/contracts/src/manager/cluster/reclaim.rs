//! The life of a provisioned volume, from CreateVolume to DeleteVolume.

use std::collections::BTreeMap;

use super::{bound_claim, change_by_controller, deleted, provisioned, started};
use crate::event::{Event, TraceLine, Verb};
use crate::object::{ApiObject, Attachment, Claim, PersistentVolume};
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

/// The prefix of a volume's name in CreateVolume; the UID of a claim follows.
const NAME_PREFIX: &str = "pvc-";
/// The prefix of an attacher's finalizer; the name of its driver follows.
const ATTACHER: &str = "external-attacher/";

pub(in super::super) static EVERY_VOLUME_HAS_AN_OBJECT: Rule = Rule {
    id: "INV-089",
    sentence: "a volume that was created for a claim has its PersistentVolume or its claim until it is deleted",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(Created::default())),
};

const NO_OBJECT: &str = "a created volume has neither a PersistentVolume nor its claim";

#[derive(Default)]
struct Created {
    /// The UIDs of claims by the CreateVolume call that is under way for them.
    calls: BTreeMap<u64, String>,
    /// The UIDs of claims by the handle of the volume that was created for them.
    claims: BTreeMap<String, String>,
}

impl Check for Created {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::RpcStart(start) if start.method == "CreateVolume" => {
                let Some(uid) = start.request().name().strip_prefix(NAME_PREFIX) else { return };
                if has_claim(books, uid) {
                    self.calls.insert(start.id, uid.to_owned());
                }
            }
            Event::RpcEnd(end) => {
                if let Some(uid) = self.calls.remove(&end.id)
                    && end.code == "OK"
                {
                    report.tried();
                    self.claims.insert(end.response().created_volume().to_owned(), uid);
                }
                if let Some(volume) = deleted(books, line) {
                    self.claims.remove(volume);
                }
            }
            _ => {}
        }
    }

    fn rest(&mut self, books: &Books, _: &Rest, report: &mut Report) {
        for (volume, uid) in &self.claims {
            let mut objects = books.objects::<PersistentVolume>();
            if !has_claim(books, uid) && !objects.any(|(_, object)| object.handle() == volume) {
                report.broken("CreateVolume", NO_OBJECT, volume.as_str());
            }
        }
    }
}

fn has_claim(books: &Books, uid: &str) -> bool {
    books.objects::<Claim>().any(|(_, claim)| claim.uid() == uid)
}

pub(in super::super) static DELETED_WHEN_RELEASED: Rule = Rule {
    id: "INV-090",
    sentence: "a volume is deleted only when its claim is gone, its reclaim policy is Delete, and it is detached",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(Attachments::default())),
};

/// The time in milliseconds after which a provisioner knows an object also where the API is slow.
const KNOWN: f64 = 10_000.0;

/// The time at which each attachment was made.
#[derive(Default)]
struct Attachments(BTreeMap<String, f64>);

impl Attachments {
    /// Whether a provisioner can know of an attachment.
    fn is_known(&self, attachment: &str, books: &Books, now: f64) -> bool {
        !books.slow_api || self.0.get(attachment).is_none_or(|made| now - made > KNOWN)
    }
}

impl Check for Attachments {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        if let Some((change, _)) = line.change_of::<Attachment>()
            && change.verb == Verb::Create
        {
            self.0.insert(change.object.clone(), line.t_ms);
        }
        let Some(start) = started(line, "DeleteVolume") else { return };
        let volume = start.request().volume_id();
        let Some((name, object)) = provisioned(books, volume) else { return };
        report.tried();
        if bound_claim(books, object).is_some() {
            report.broken(&start.method, "deleted while its claim existed", volume);
        }
        if !object.is_to_be_deleted() {
            report.broken(&start.method, "deleted although its reclaim policy is not Delete", volume);
        }
        let mut attachments = books.attachments(name);
        if attachments.any(|(attachment, _)| self.is_known(attachment, books, line.t_ms)) {
            report.broken(&start.method, "deleted while it was attached", volume);
        }
    }
}

pub(in super::super) static OBJECT_OUTLIVES_VOLUME: Rule = Rule {
    id: "INV-091",
    sentence: "a PersistentVolume with the reclaim policy Delete stays until the driver has deleted its volume",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(Deleted::default())),
};

/// The volumes that CreateVolume returned, and whether they are deleted. Other volumes are not judged: a recording that
/// lacks the creation of a volume may lack its deletion, too.
#[derive(Default)]
struct Deleted(BTreeMap<String, bool>);

impl Check for Deleted {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        if let Event::RpcEnd(end) = &line.event
            && end.method == "CreateVolume"
            && end.code == "OK"
        {
            self.0.insert(end.response().created_volume().to_owned(), false);
        }
        if let Some(is_deleted) = deleted(books, line).and_then(|volume| self.0.get_mut(volume)) {
            *is_deleted = true;
        }
        let Some((change, _)) = change_by_controller::<PersistentVolume>(line) else { return };
        let Some(volume) = books.object::<PersistentVolume>(&change.object) else { return };
        if change.verb != Verb::Delete || !volume.is_provisioned() || !volume.is_to_be_deleted() {
            return;
        }
        let Some(is_deleted) = self.0.get(volume.handle()) else { return };
        report.tried();
        if !is_deleted {
            report.broken("", "the PersistentVolume was deleted before its volume", volume.handle());
        }
    }
}

pub(in super::super) static FINALIZERS_BEFORE_ATTACHED: Rule = Rule {
    id: "INV-101",
    sentence: "a volume is attached only when its PersistentVolume and VolumeAttachment have the attacher's finalizer",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(start) = started(line, "ControllerPublishVolume") else { return };
        let volume = start.request().volume_id();
        let Some((name, object)) = provisioned(books, volume) else { return };
        let mut own = books.attachments(name).peekable();
        // The attachment of another node is in that node's recording.
        if own.peek().is_none() {
            return;
        }
        report.tried();
        if !object.has_finalizer(ATTACHER) || !own.any(|(_, own)| own.has_finalizer(ATTACHER)) {
            report.broken(&start.method, "attached before its objects had the attacher's finalizer", volume);
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    const CLAIM: &str = "api create PersistentVolumeClaim n/c case {\"metadata\":{\"uid\":\"1\"}}\n";
    const GONE: &str = "api delete PersistentVolumeClaim n/c controller\n";
    const MADE: &str = r#"calls CreateVolume {"name":"pvc-1"} {"volume":{"volumeId":"v"}} OK
    "#;
    const DELETED: &str = "calls DeleteVolume {\"volumeId\":\"v\"} {} OK\n";
    const WRITTEN: &str = r#"api create PersistentVolume pv controller {"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"d"}},"spec":{"persistentVolumeReclaimPolicy":"Delete","claimRef":{"namespace":"n","name":"c","uid":"1"},"csi":{"volumeHandle":"v"}}}
    "#;
    const ATTACHED: &str = r#"api create VolumeAttachment a controller {"spec":{"source":{"persistentVolumeName":"pv"}}}
    "#;

    #[test]
    fn created_volume_has_an_object_until_it_is_deleted() {
        let rule = &EVERY_VOLUME_HAS_AN_OBJECT;
        keeps(rule, &[CLAIM, MADE].concat(), &[]);
        keeps(rule, &[CLAIM, MADE, WRITTEN, GONE].concat(), &[]);
        keeps(rule, &[CLAIM, MADE, GONE, DELETED].concat(), &[]);
        breaks(rule, NO_OBJECT, &[CLAIM, MADE, GONE].concat(), &[]);
    }

    #[test]
    fn volume_in_use_is_not_deleted() {
        let rule = &DELETED_WHEN_RELEASED;
        keeps(rule, &[CLAIM, WRITTEN, GONE, DELETED].concat(), &[]);
        breaks(rule, "deleted while its claim existed", &[CLAIM, WRITTEN, DELETED].concat(), &[]);
        let kept = WRITTEN.replace("\"Delete\"", "\"Retain\"");
        breaks(rule, "deleted although its reclaim policy is not Delete", &[&kept, DELETED].concat(), &[]);
        breaks(rule, "deleted while it was attached", &[WRITTEN, ATTACHED, DELETED].concat(), &[]);
        // A slow API has not told of the attachment yet.
        keeps(rule, &["step api slow\n", WRITTEN, ATTACHED, DELETED].concat(), &[]);
    }

    #[test]
    fn object_of_a_volume_outlives_it() {
        let gone = "api delete PersistentVolume pv controller\n";
        let rule = &OBJECT_OUTLIVES_VOLUME;
        keeps(rule, &[CLAIM, MADE, WRITTEN, DELETED, gone].concat(), &[]);
        let refused = DELETED.replace("OK", "Internal");
        let cause = "the PersistentVolume was deleted before its volume";
        breaks(rule, cause, &[CLAIM, MADE, WRITTEN, &refused, gone].concat(), &[]);
        let beside_another_node = [CLAIM, WRITTEN, gone].concat();
        passes_over(rule, &beside_another_node, &[]);
    }

    #[test]
    fn attached_volume_has_both_finalizers() {
        let with_finalizer = |object: &str| {
            format!(
                "api update {object} controller {{\"metadata\":{{\"finalizers\":[\"external-attacher/d\"]}}}}\n"
            )
        };
        let (volume, attachment) =
            (with_finalizer("PersistentVolume pv"), with_finalizer("VolumeAttachment a"));
        let attach = "calls ControllerPublishVolume {\"volumeId\":\"v\"} {} OK\n";
        keeps(&FINALIZERS_BEFORE_ATTACHED, &[WRITTEN, ATTACHED, &volume, &attachment, attach].concat(), &[]);
        let cause = "attached before its objects had the attacher's finalizer";
        breaks(&FINALIZERS_BEFORE_ATTACHED, cause, &[WRITTEN, ATTACHED, &volume, attach].concat(), &[]);
        breaks(&FINALIZERS_BEFORE_ATTACHED, cause, &[WRITTEN, ATTACHED, &attachment, attach].concat(), &[]);
        let attached_to_another_node = [WRITTEN, &volume, attach].concat();
        passes_over(&FINALIZERS_BEFORE_ATTACHED, &attached_to_another_node, &[]);
    }
}
