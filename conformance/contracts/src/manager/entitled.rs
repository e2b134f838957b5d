//! Rules about the volumes of a pod: its containers use them, an ephemeral claim is the pod's own, and its node reaches
//! them.

use std::collections::BTreeMap;

use crate::event::{Event, RpcStart, TraceLine, World};
use crate::object::{ApiObject, Node, Pod, Requirement};
use crate::rule::place::Place;
use crate::rule::{Books, Checked, Report, Rule, Witness};

use super::staging::pod_and_handle;

fn pod_of<'a>(books: &'a Books, uid: &str) -> Option<Pod<'a>> {
    books.objects().map(|(_, pod)| pod).find(|pod: &Pod| pod.known_uid() == Some(uid))
}

/// Whether no container of a pod uses a volume that the pod refers to.
fn is_unused(books: &Books, pod: &str, volume: &str) -> bool {
    pod_of(books, pod).is_some_and(|pod| names_claim(books, pod.unused_claims(), volume))
}

/// Whether the claim of a volume is one of these names.
fn names_claim<'a>(books: &Books, mut names: impl Iterator<Item = &'a str>, volume: &str) -> bool {
    let Some((claim, _)) = books.claim_of(volume) else { return false };
    let claim = claim.rsplit('/').next().unwrap_or(claim);
    names.any(|name| name == claim)
}

/// A NodePublishVolume call, with the UID of the pod that it is for.
fn published_for(line: &TraceLine) -> Option<(&RpcStart, &str)> {
    let Event::RpcStart(start) = &line.event else { return None };
    let pod = Place::of(start.request().target_path()).and_then(Place::pod)?;
    (start.method == "NodePublishVolume").then_some((start, pod))
}

pub(super) static USED_VOLUMES_ONLY: Rule = Rule {
    id: "INV-016",
    sentence: "a volume that no container of its pod uses is neither wanted nor published for it",
    witnesses: &[Witness::Rpc, Witness::Api, Witness::Manager],
    check: Checked::Each(|books, line, report| {
        if let Some((start, pod)) = published_for(line)
            && pod_of(books, pod).is_some()
        {
            report.tried();
            if is_unused(books, pod, start.request().volume_id()) {
                report.broken(
                    &start.method,
                    "published for a pod that does not use it",
                    start.request().target_path(),
                );
            }
        }
        if let Event::State(change) = &line.event
            && let Some((pod, volume)) = pod_and_handle(&change.key)
            && change.world == World::Desired
            && !change.to.is_empty()
            && is_unused(books, pod, volume)
        {
            report.broken("", "wanted for a pod that does not use it", change.key.as_str());
        }
    }),
};

pub(super) static OWN_CLAIM_ONLY: Rule = Rule {
    id: "INV-032",
    sentence: "an ephemeral volume is published only from a claim that belongs to its pod",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some((start, pod)) = published_for(line) else { return };
        let volume = start.request().volume_id();
        let is_ephemeral =
            pod_of(books, pod).is_some_and(|pod| names_claim(books, pod.ephemeral_claims(), volume));
        let owners = books.claim_of(volume).and_then(|(_, claim)| claim.owners());
        let Some(mut owners) = owners.filter(|_| is_ephemeral) else { return };
        report.tried();
        if !owners.any(|owner| owner.uid() == Some(pod) && owner.is_controller()) {
            report.broken(&start.method, "published from a claim of another owner", volume);
        }
    }),
};

pub(super) static WITHIN_REACH: Rule = Rule {
    id: "INV-034",
    sentence: "a volume that this node does not reach is neither staged nor published",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(within_reach),
};

fn within_reach(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if !matches!(start.method.as_str(), "NodeStageVolume" | "NodePublishVolume") {
        return;
    }
    let volume = start.request().volume_id();
    let Some(is_reached) = is_reached(books, volume) else { return };
    report.tried();
    if !is_reached {
        report.broken(&start.method, "used on a node that does not reach it", volume);
    }
}

/// Whether the node reaches a volume; `None` if the trace does not show it.
fn is_reached(books: &Books, volume: &str) -> Option<bool> {
    let (_, volume) = books.persistent_volume(volume)?;
    let terms = volume.node_affinity()?;
    let mut labels = books.objects().filter_map(|(_, node): (_, Node)| node.labels());
    // With more than one node the trace does not say on which the call was made.
    let (labels, None) = (labels.next()?, labels.next()) else { return None };
    Some(matches(terms, &labels))
}

/// Whether the labels meet all requirements of at least one term. `Gt` and `Lt`, which compare numbers, always count
/// as met.
fn matches<'a>(mut terms: impl Iterator<Item = Vec<Requirement<'a>>>, labels: &BTreeMap<&str, &str>) -> bool {
    let is_met = |requirement: &Requirement<'_>| {
        let label = labels.get(requirement.key());
        let mut values = requirement.values();
        match requirement.operator() {
            "In" => label.is_some_and(|label| values.any(|value| value == *label)),
            "NotIn" => label.is_none_or(|label| values.all(|value| value != *label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => true,
        }
    };
    terms.any(|term| !term.is_empty() && term.iter().all(is_met))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    const BOUND: &str = r#"
        api create PersistentVolume pv-v1 case {"spec":{"csi":{"volumeHandle":"v1"}}}
        api create PersistentVolumeClaim default/c case {"spec":{"volumeName":"pv-v1"},"metadata":{"ownerReferences":[{"uid":"uid-a","controller":true}]}}
    "#;

    fn pod(uid: &str, field: &str) -> String {
        format!(
            "api create Pod default/p case {{\"metadata\":{{\"uid\":\"{uid}\"}},\"spec\":{{\"{field}\":[\"c\"]}}}}\n"
        )
    }

    #[test]
    fn unused_volume_of_a_pod_is_not_published() {
        let rule = &USED_VOLUMES_ONLY;
        let unused = [BOUND, &pod("uid-a", "unused")].concat();
        passes_over(rule, &[&unused, "publish v1 b\nwants v1/b yes\nwants v2/a yes"].concat(), &[]);
        keeps(rule, &[BOUND, &pod("uid-a", "claims"), "wants v1/a yes\npublish v1 a"].concat(), &[]);
        breaks(rule, "published for a pod that does not use it", &[&unused, "publish v1 a"].concat(), &[]);
        breaks(rule, "wanted for a pod that does not use it", &[&unused, "wants v1/a yes"].concat(), &[]);
    }

    #[test]
    fn claim_of_another_owner_is_not_published() {
        let rule = &OWN_CLAIM_ONLY;
        keeps(rule, &[BOUND, &pod("uid-a", "ephemeral"), "publish v1 a"].concat(), &[]);
        passes_over(rule, &[BOUND, &pod("uid-b", "claims"), "publish v1 b"].concat(), &[]);
        let stolen = "published from a claim of another owner";
        breaks(rule, stolen, &[BOUND, &pod("uid-b", "ephemeral"), "publish v1 b"].concat(), &[]);
    }

    #[test]
    fn volume_out_of_reach_is_not_used() {
        let rule = &WITHIN_REACH;
        let node = r#"
            api create Node node-1 case {"metadata":{"labels":{"zone":"a"}}}
        "#;
        let volume = |operator: &str, key: &str| {
            format!(
                r#"api create PersistentVolume pv-v1 case {{"spec":{{"nodeAffinity":[[{{"key":"{key}","operator":"{operator}","values":["a"]}}]],"csi":{{"volumeHandle":"v1"}}}}}}
                "#
            )
        };
        for (operator, key, reached) in [
            ("In", "zone", true),
            ("In", "rack", false),
            ("NotIn", "zone", false),
            ("NotIn", "rack", true),
            ("Exists", "zone", true),
            ("Exists", "rack", false),
            ("DoesNotExist", "zone", false),
            ("Gt", "zone", true),
        ] {
            let script = [node, &volume(operator, key), "stage v1"].concat();
            match reached {
                true => keeps(rule, &script, &[]),
                false => breaks(rule, "used on a node that does not reach it", &script, &[]),
            }
        }
        let unreached = [node, &volume("Exists", "rack")].concat();
        breaks(rule, "used on a node that does not reach it", &[&unreached, "publish v1 a"].concat(), &[]);
        passes_over(rule, &[&unreached, "unpublish v1 a\nunstage v1\nstage v2"].concat(), &[]);
    }
}
