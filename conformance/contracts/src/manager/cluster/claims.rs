//! Claims and the volumes that they are bound to.

use super::{bound_claim, change_by_controller};
use crate::event::Verb;
use crate::object::{ApiObject, Claim, PersistentVolume, Pod};
use crate::rule::{Checked, Rule, Witness};

pub(in super::super) static RESERVED_BEFORE_BOUND: Rule = Rule {
    id: "INV-087",
    sentence: "a claim becomes bound only when its volume is bound to it, and keeps that volume",
    witnesses: &[Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some((change, claim)) = change_by_controller::<Claim>(line) else { return };
        let before: Option<Claim> = books.object(&change.object);
        if !claim.is_bound() {
            return;
        }
        let volume = claim.volume_name().and_then(|name| books.object::<PersistentVolume>(name));
        let Some(volume) = volume.filter(|volume| volume.is_provisioned()) else { return };
        report.tried();
        match before.filter(|before| before.is_bound() && before.uid() == claim.uid()) {
            None if volume.claim_reference().uid() != claim.uid() || !volume.is_bound() => {
                report.broken("", "a claim was bound before its volume was", change.object.as_str());
            }
            Some(before) if before.volume_name() != claim.volume_name() => {
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
        let Some((change, after)) = change_by_controller::<PersistentVolume>(line) else { return };
        let Some(before) = books.object::<PersistentVolume>(&change.object) else { return };
        let [before, after] = [before, after].map(|volume| volume.claim_reference().uid());
        if before.is_empty() || change.verb == Verb::Delete {
            return;
        }
        report.tried();
        if before != after {
            report.broken("", "a volume was given to a second claim", change.object.as_str());
        }
    }),
};

pub(in super::super) static PROTECTED_WHILE_BOUND: Rule = Rule {
    id: "INV-092",
    sentence: "a volume's object keeps its protection while a claim is bound to it",
    witnesses: &[Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some((change, after)) = change_by_controller::<PersistentVolume>(line) else { return };
        let Some(before) = books.object::<PersistentVolume>(&change.object) else { return };
        let was_protected = before.is_provisioned() && before.is_protected();
        if !was_protected || !before.is_being_deleted() || change.verb == Verb::Delete {
            return;
        }
        report.tried();
        let is_held = before.is_bound() && bound_claim(books, before).is_some();
        if is_held && !after.is_protected() {
            report.broken("", "a volume lost its protection while a claim was bound to it", &change.object);
        }
    }),
};

pub(in super::super) static COLLECTED_WITH_ITS_POD: Rule = Rule {
    id: "INV-093",
    sentence: "a claim that was made for a pod is not deleted by a controller while that pod is there",
    witnesses: &[Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some((change, after)) = change_by_controller::<Claim>(line) else { return };
        let Some(before) = books.object::<Claim>(&change.object) else { return };
        if before.is_being_deleted() || change.verb != Verb::Delete && !after.is_being_deleted() {
            return;
        }
        let mut owners = before.owners().into_iter().flatten();
        let Some(owner) = owners.find(|owner| owner.is_controller()) else { return };
        report.tried();
        if books.objects::<Pod>().any(|(_, pod)| pod.known_uid() == owner.uid()) {
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
