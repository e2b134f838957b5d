//! Claims: the volumes that a pod may use, and the sizes that claims report.

use std::collections::BTreeSet;

use crate::csi::Request;
use crate::event::{ApiChange, Client, Event, RpcStart, TraceLine, Verb};
use crate::object::{ApiObject, Claim, Pod};
use crate::rule::books::Progress;
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

/// A stage or publish that is not the repetition of one that has worked.
fn first_use<'a>(books: &Books, line: &'a TraceLine) -> Option<&'a RpcStart> {
    let Event::RpcStart(start) = &line.event else { return None };
    let known = books.volume(start.request().volume_id());
    let done = match start.method.as_str() {
        "NodeStageVolume" => known.and_then(|known| known.staged.get(start.request().staging_path())),
        "NodePublishVolume" => known.and_then(|known| known.published.get(start.request().target_path())),
        _ => return None,
    };
    done.is_none().then_some(start)
}

pub(super) static NOT_WHILE_GOING: Rule = Rule {
    id: "INV-030",
    sentence: "a claim that is being deleted and is protected by nothing is not mounted anew",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(start) = first_use(books, line) else { return };
        let handle = start.request().volume_id();
        let Some((_, claim)) = books.claim_of(handle) else { return };
        report.tried();
        if claim.is_being_deleted() && !claim.is_protected() {
            report.broken(&start.method, "mounted for a claim that is being deleted", handle);
        }
    }),
};

pub(super) static ONLY_WHAT_IS_BOUND: Rule = Rule {
    id: "INV-031",
    sentence: "no call is made for a claim that is not bound",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(start) = first_use(books, line) else { return };
        let handle = start.request().volume_id();
        let Some((_, claim)) = books.claim_of(handle) else { return };
        if claim.phase().is_empty() {
            return;
        }
        report.tried();
        if !claim.is_bound() {
            report.broken(&start.method, "called for a claim that is not bound", handle);
        }
    }),
};

pub(super) static AS_IT_IS_MEANT: Rule = Rule {
    id: "INV-033",
    sentence: "a block volume is used as a device and a file system as a directory, or not at all",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(start) = first_use(books, line) else { return };
        let handle = start.request().volume_id();
        let volume = books.persistent_volume(handle).filter(|_| books.claim_of(handle).is_some());
        let Some((_, volume)) = volume else { return };
        report.tried();
        if start.request().capability().is_block() != volume.is_block() {
            report.broken(&start.method, "called with the other volume mode", handle);
        }
    }),
};

pub(super) static READ_ONLY_DOES_NOT_GROW: Rule = Rule {
    id: "INV-064",
    sentence: "a volume that is used read-only everywhere is not expanded on the node",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(read_only_does_not_grow),
};

fn read_only_does_not_grow(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let Some(known) = books.volume(start.request().volume_id()) else { return };
    if start.method != "NodeExpandVolume" || known.published.is_empty() {
        return;
    }
    report.tried();
    let mut targets = known.published.iter().filter(|(_, progress)| **progress == Progress::Done);
    if targets.all(|(target, _)| {
        known.publish_requests.get(target).is_some_and(|sent| Request::of(sent).is_readonly())
    }) {
        report.broken(&start.method, "expanded while it was used read-only", start.request().volume_id());
    }
}

pub(super) static CAPACITY_ONLY_GROWS: Rule = Rule {
    id: "INV-065",
    sentence: "the capacity in a claim's status never decreases by the node's doing",
    witnesses: &[Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some((change, claim)) = line.change_of::<Claim>() else { return };
        if change.by != Client::Node || change.verb == Verb::Delete {
            return;
        }
        let before = books.object(&change.object).and_then(Claim::capacity);
        let (Some(before), Some(after)) = (before, claim.capacity()) else { return };
        report.tried();
        if after < before {
            report.broken("", "the capacity of a claim was lowered", change.object.as_str());
        }
    }),
};

pub(super) static PROTECTED_WHILE_USED: Rule = Rule {
    id: "INV-081",
    sentence: "a claim keeps its protection while a pod refers to it that was scheduled before its deletion",
    witnesses: &[Witness::Api],
    check: Checked::With(|| Box::new(Protected::default())),
};

/// The pods that were scheduled when a claim of theirs was being deleted already, each with that claim. The scheduler
/// places no such pod, and no node starts it: the claim need not wait for it.
#[derive(Default)]
struct Protected(BTreeSet<(String, String)>);

impl Check for Protected {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        if let Some((change, pod)) = line.change_of() {
            self.pod(books, change, pod);
        }
        if let Some((change, claim)) = line.change_of()
            && change.verb != Verb::Delete
        {
            self.claim(books, change, claim, report);
        }
    }
}

impl Protected {
    fn pod(&mut self, books: &Books, change: &ApiChange, pod: Pod<'_>) {
        if change.verb == Verb::Delete {
            self.0.retain(|(pod, _)| *pod != change.object);
        } else if !books.object(&change.object).is_some_and(Pod::is_scheduled) {
            let claims = claims_of(&change.object, pod).filter(|_| pod.is_scheduled());
            let going = |claim: &String| books.object(claim).is_some_and(Claim::is_being_deleted);
            self.0.extend(claims.filter(going).map(|claim| (change.object.clone(), claim)));
        }
    }

    fn claim(&self, books: &Books, change: &ApiChange, claim: Claim<'_>, report: &mut Report) {
        if !books.object(&change.object).is_some_and(Claim::is_protected) {
            return;
        }
        report.tried();
        if claim.finalizers().is_none() || claim.is_protected() {
            return;
        }
        let uses = |(name, pod): (&str, Pod<'_>)| {
            pod.is_scheduled()
                && claims_of(name, pod).any(|claim| claim == change.object)
                && !self.0.contains(&(name.to_owned(), change.object.clone()))
        };
        if books.objects().any(uses) {
            report.broken("", "a claim lost its protection while a pod used it", change.object.as_str());
        }
    }
}

/// The claims that a pod refers to, as the trace names them.
fn claims_of(name: &str, pod: Pod<'_>) -> impl Iterator<Item = String> {
    let namespace = name.split_once('/').map_or("", |(namespace, _)| namespace);
    pod.claims().map(move |claim| format!("{namespace}/{claim}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps};

    const PV: &str = r#"api create PersistentVolume pv-v1 case {"spec":{"volumeMode":"Filesystem","csi":{"volumeHandle":"v1"}}}
    "#;
    const BOUND: &str = r#"api create PersistentVolumeClaim default/v1 case {"metadata":{"finalizers":["kubernetes.io/pvc-protection"]},"spec":{"volumeName":"pv-v1"},"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}
    "#;
    const GOING: &str = r#"api update PersistentVolumeClaim default/v1 case {"metadata":{"deletionTimestamp":"now"}}
    "#;
    const UNPROTECTED: &str = r#"api update PersistentVolumeClaim default/v1 controller {"metadata":{"finalizers":[]}}
    "#;

    #[test]
    fn a_claim_that_goes_is_not_mounted_anew() {
        let rule = &NOT_WHILE_GOING;
        keeps(rule, &[PV, BOUND, GOING, "stage v1\npublish v1 a"].concat(), &["a"]);
        keeps(rule, &[PV, BOUND, "publish v1 a\n", GOING, UNPROTECTED, "publish v1 a"].concat(), &["a"]);
        let going = "mounted for a claim that is being deleted";
        breaks(rule, going, &[PV, BOUND, GOING, UNPROTECTED, "publish v1 a"].concat(), &["a"]);
    }

    #[test]
    fn an_unbound_claim_is_left_alone() {
        let rule = &ONLY_WHAT_IS_BOUND;
        keeps(rule, &[PV, BOUND, "stage v1"].concat(), &["a"]);
        let lost = r#"api update PersistentVolumeClaim default/v1 case {"status":{"phase":"Lost"}}
        "#;
        breaks(rule, "called for a claim that is not bound", &[PV, BOUND, lost, "stage v1"].concat(), &["a"]);
    }

    #[test]
    fn the_mode_is_the_volumes() {
        let rule = &AS_IT_IS_MEANT;
        keeps(rule, &[PV, BOUND, "stage v1"].concat(), &["a"]);
        let block = r#"stage v1 {"volumeCapability":{"block":{}}}"#;
        breaks(rule, "called with the other volume mode", &[PV, BOUND, block].concat(), &["a"]);
    }

    #[test]
    fn read_only_volume_is_not_expanded() {
        let rule = &READ_ONLY_DOES_NOT_GROW;
        let read_only = "publish v1 a {\"readonly\":true}\n";
        keeps(rule, &[read_only, "publish v1 b\nexpand v1 b"].concat(), &["a", "b"]);
        breaks(rule, "expanded while it was used read-only", &[read_only, "expand v1 a"].concat(), &["a"]);
    }

    #[test]
    fn capacity_only_grows() {
        let rule = &CAPACITY_ONLY_GROWS;
        let now = |size: &str| {
            format!(
                r#"api patch PersistentVolumeClaim default/v1 node {{"status":{{"capacity":{{"storage":"{size}"}}}}}}"#
            )
        };
        keeps(rule, &[BOUND, &now("2Gi")].concat(), &[]);
        keeps(rule, &[BOUND, &now("1073741824")].concat(), &[]);
        breaks(rule, "the capacity of a claim was lowered", &[BOUND, &now("1000Mi")].concat(), &[]);
    }

    #[test]
    fn protection_lasts_as_long_as_the_pod() {
        let rule = &PROTECTED_WHILE_USED;
        let pod = r#"api create Pod default/a case {"spec":{"nodeName":"node-1","claims":["v1"]}}
        "#;
        let gone = "api delete Pod default/a case\n";
        keeps(rule, &[BOUND, pod, gone, UNPROTECTED].concat(), &[]);
        breaks(
            rule,
            "a claim lost its protection while a pod used it",
            &[BOUND, pod, UNPROTECTED].concat(),
            &[],
        );
        breaks(
            rule,
            "a claim lost its protection while a pod used it",
            &[BOUND, pod, GOING, UNPROTECTED].concat(),
            &[],
        );
    }

    #[test]
    fn pod_that_comes_too_late_protects_nothing() {
        let rule = &PROTECTED_WHILE_USED;
        let pod = r#"api create Pod default/a case {"spec":{"nodeName":"node-1","claims":["v1"]}}
        "#;
        keeps(rule, &[BOUND, GOING, pod, UNPROTECTED].concat(), &[]);
    }
}
