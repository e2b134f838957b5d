//! Claims and the volumes that they are bound to.

use serde_json::Value;

use super::{change_by_controller, claim_of, has_finalizer, is_deleting, is_provisioned};
use crate::event::{ObjectKind, Verb};
use crate::rule::books::text;
use crate::rule::{Checked, Rule, Witness};

/// The finalizer that keeps a persistent volume while a claim is bound to it.
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

fn is_bound(claim: &Value) -> bool {
    text(&claim["status"], "phase") == "Bound"
}

pub(in super::super) static RESERVED_BEFORE_BOUND: Rule = Rule {
    id: "INV-087",
    sentence: "a claim becomes bound only when its volume is bound to it, and keeps that volume",
    witnesses: &[Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(change) = change_by_controller(line, ObjectKind::Claim) else { return };
        let before = books.object(ObjectKind::Claim, &change.object);
        if !is_bound(&change.body) {
            return;
        }
        let name = text(&change.body["spec"], "volumeName");
        let Some(volume) = books.object(ObjectKind::Volume, name).filter(|volume| is_provisioned(volume))
        else {
            return;
        };
        report.tried();
        let uid = text(&change.body["metadata"], "uid");
        match before.filter(|before| is_bound(before) && text(&before["metadata"], "uid") == uid) {
            None if text(&volume["spec"]["claimRef"], "uid") != uid => {
                report.broken("", "a claim was bound before its volume was", change.object.as_str());
            }
            None if text(&volume["status"], "phase") != "Bound" => {
                report.broken("", "a claim was bound before its volume was", change.object.as_str());
            }
            Some(before) if text(&before["spec"], "volumeName") != name => {
                report.broken("", "a bound claim was given another volume", change.object.as_str());
            }
            _ => {}
        }
    }),
};

pub(in super::super) static ONE_CLAIM_A_VOLUME: Rule = Rule {
    id: "INV-088",
    sentence: "a volume that was bound to a claim is bound to no other: it may have the other's data",
    witnesses: &[Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(change) = change_by_controller(line, ObjectKind::Volume) else { return };
        let Some(before) = books.object(ObjectKind::Volume, &change.object) else { return };
        let (before, after) = (&before["spec"]["claimRef"], &change.body["spec"]["claimRef"]);
        if text(before, "uid").is_empty() || change.verb == Verb::Delete {
            return;
        }
        report.tried();
        if text(before, "uid") != text(after, "uid") {
            report.broken("", "a volume was given to a second claim", change.object.as_str());
        }
    }),
};

pub(in super::super) static PROTECTED_WHILE_BOUND: Rule = Rule {
    id: "INV-092",
    sentence: "a volume's object keeps its protection while a claim is bound to it",
    witnesses: &[Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(change) = change_by_controller(line, ObjectKind::Volume) else { return };
        let Some(before) = books.object(ObjectKind::Volume, &change.object) else { return };
        let was_protected = is_provisioned(before) && has_finalizer(before, VOLUME_PROTECTION);
        if !was_protected || !is_deleting(before) || change.verb == Verb::Delete {
            return;
        }
        report.tried();
        let is_held = text(&before["status"], "phase") == "Bound" && claim_of(books, before).is_some();
        if is_held && !has_finalizer(&change.body, VOLUME_PROTECTION) {
            report.broken("", "a volume lost its protection while a claim was bound to it", &change.object);
        }
    }),
};

pub(in super::super) static COLLECTED_WITH_ITS_POD: Rule = Rule {
    id: "INV-093",
    sentence: "a claim that was made for a pod is not deleted by a controller while that pod is there",
    witnesses: &[Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(change) = change_by_controller(line, ObjectKind::Claim) else { return };
        let Some(before) = books.object(ObjectKind::Claim, &change.object) else { return };
        if is_deleting(before) || change.verb != Verb::Delete && !is_deleting(&change.body) {
            return;
        }
        let owners = before["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let Some(owner) = owners.into_iter().find(|owner| owner["controller"] == true) else { return };
        report.tried();
        let mut pods = books.objects_of(ObjectKind::Pod);
        if pods.any(|(_, pod)| pod["metadata"]["uid"] == owner["uid"]) {
            report.broken("", "a pod's own claim was deleted before the pod was gone", &change.object);
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps};

    const RESERVED: &str = r#"api create PersistentVolume pv controller {"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"d"},"finalizers":["kubernetes.io/pv-protection"]},"spec":{"claimRef":{"namespace":"n","name":"c","uid":"1"}},"status":{"phase":"Bound"}}
    "#;
    const CLAIM: &str = r#"api create PersistentVolumeClaim n/c case {"metadata":{"uid":"1"}}
    "#;
    const BOUND: &str = r#"api update PersistentVolumeClaim n/c controller {"metadata":{"uid":"1"},"spec":{"volumeName":"pv"},"status":{"phase":"Bound"}}
    "#;

    fn volume(change: &str) -> String {
        format!("api update PersistentVolume pv controller {change}\n")
    }

    #[test]
    fn volume_is_bound_before_its_claim() {
        let rule = &RESERVED_BEFORE_BOUND;
        keeps(rule, &[RESERVED, CLAIM, BOUND].concat(), &[]);
        let unbound = RESERVED.replace("Bound", "");
        breaks(rule, "a claim was bound before its volume was", &[&unbound, CLAIM, BOUND].concat(), &[]);
        let other = RESERVED.replace("Volume pv", "Volume other");
        let moved = BOUND.replace("\"pv\"", "\"other\"");
        let moved = [RESERVED, &other, CLAIM, BOUND, &moved].concat();
        breaks(rule, "a bound claim was given another volume", &moved, &[]);
    }

    #[test]
    fn volume_has_one_claim_in_its_life() {
        let given = |uid: &str| volume(&format!(r#"{{"spec":{{"claimRef":{{"uid":"{uid}"}}}}}}"#));
        keeps(&ONE_CLAIM_A_VOLUME, &[RESERVED, &given("1")].concat(), &[]);
        let cause = "a volume was given to a second claim";
        breaks(&ONE_CLAIM_A_VOLUME, cause, &[RESERVED, &given("2")].concat(), &[]);
    }

    #[test]
    fn bound_volume_stays_protected() {
        let deleted = volume(
            r#"{"metadata":{"deletionTimestamp":"now","finalizers":["kubernetes.io/pv-protection"]},"spec":{"claimRef":{"uid":"1"}}}"#,
        );
        let freed = volume(r#"{"metadata":{"finalizers":[]},"spec":{"claimRef":{"uid":"1"}}}"#);
        let released = volume(
            r#"{"metadata":{"finalizers":["kubernetes.io/pv-protection"]},"spec":{"claimRef":{"uid":"1"}},"status":{"phase":"Released"}}"#,
        );
        keeps(&PROTECTED_WHILE_BOUND, &[RESERVED, CLAIM, &deleted, &released, &freed].concat(), &[]);
        let cause = "a volume lost its protection while a claim was bound to it";
        breaks(&PROTECTED_WHILE_BOUND, cause, &[RESERVED, CLAIM, &deleted, &freed].concat(), &[]);
    }

    #[test]
    fn own_claim_of_a_pod_outlives_it() {
        let own = r#"api create PersistentVolumeClaim n/a-own controller {"metadata":{"ownerReferences":[{"uid":"uid-a","controller":true}]}}
        "#;
        let pod = "api create Pod n/a case {\"metadata\":{\"uid\":\"uid-a\"}}\n";
        let gone = "api delete Pod n/a case\n";
        let collected = r#"api update PersistentVolumeClaim n/a-own controller {"metadata":{"deletionTimestamp":"now"}}
        "#;
        keeps(&COLLECTED_WITH_ITS_POD, &[pod, own, gone, collected].concat(), &[]);
        let cause = "a pod's own claim was deleted before the pod was gone";
        breaks(&COLLECTED_WITH_ITS_POD, cause, &[pod, own, collected].concat(), &[]);
    }
}
