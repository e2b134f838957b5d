//! Volumes are torn down from the pod outwards, and are not reported as unmounted too early.

use std::collections::BTreeSet;

use crate::event::{Awaited, Edge, Event, OperationEdge, OperationName, PodPhase, TraceLine};
use crate::rule::place::Place;
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

use super::damage::{has_damaged_record, is_unidentifiable};

pub(super) static UNSTAGE_LAST: Rule = Rule {
    id: "INV-003",
    sentence: "a volume is unstaged only when none of its targets is published, in flight or uncertain",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(unstage_last),
};

fn unstage_last(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if start.method != "NodeUnstageVolume" {
        return;
    }
    report.tried();
    let volume = start.request().volume_id();
    let mut targets = books.volume(volume).into_iter().flat_map(|known| known.published.keys());
    if let Some(target) = targets.find(|target| !is_unidentifiable(books, volume, target)) {
        report.broken(&start.method, "unstaged before its last target was unpublished", target.as_str());
    } else if let Some(call) = books.in_flight(volume, "NodePublishVolume").next() {
        report.broken(&start.method, "unstaged while it was being published", call.target());
    }
}

pub(super) static EVERY_PUBLISH_IS_UNDONE: Rule = Rule {
    id: "INV-006",
    sentence: "each target that was published, or may be, is unpublished once its pod is gone",
    witnesses: &[Witness::Rpc],
    check: Checked::AtRest(every_publish_is_undone),
};

fn every_publish_is_undone(books: &Books, rest: &Rest, report: &mut Report) {
    for (volume, known) in &books.volumes {
        if !known.publish_requests.is_empty() {
            report.tried();
        }
        let identifiable = |target: &&String| !is_unidentifiable(books, volume, target);
        for target in known.published.keys().filter(identifiable) {
            // A target that is not ours belongs to no pod we know: it is wanted while any pod is.
            let wanted = match Place::of(target).and_then(Place::pod) {
                Some(pod) => rest.pods.contains(pod),
                None => !rest.pods.is_empty(),
            };
            if !wanted {
                report.broken(
                    "NodeUnpublishVolume",
                    "a target of a pod that is gone was not unpublished",
                    target,
                );
            }
        }
    }
}

pub(super) static EVERY_STAGE_IS_UNDONE: Rule = Rule {
    id: "INV-007",
    sentence: "each volume that was staged, or may be, is unstaged once no pod uses it",
    witnesses: &[Witness::Rpc],
    check: Checked::AtRest(every_stage_is_undone),
};

fn every_stage_is_undone(books: &Books, rest: &Rest, report: &mut Report) {
    // The calls do not show the volumes that remaining pods want: only a node without pods can be judged.
    if !rest.pods.is_empty() {
        return;
    }
    for (volume, known) in &books.volumes {
        if known.stage_request.is_some() {
            report.tried();
        }
        if known.staged.keys().any(|path| !is_unidentifiable(books, volume, path)) {
            report.broken("NodeUnstageVolume", "a volume that no pod uses was not unstaged", volume);
        }
    }
}

pub(super) static NOT_WHILE_IT_RUNS: Rule = Rule {
    id: "INV-015",
    sentence: "no volume of a pod is unpublished while its containers may still run",
    witnesses: &[Witness::Rpc, Witness::Operations],
    check: Checked::With(|| Box::new(NotWhileItRuns::default())),
};

/// The pods whose containers may run, by UID or by name, as the events name them.
#[derive(Default)]
struct NotWhileItRuns {
    running: BTreeSet<String>,
    /// What is being unmounted since before its pod came, as after a boot: the life of the node, the UID of the pod, and the
    /// volume. The pod has to wait for the end of that.
    undoing: BTreeSet<(u32, String, String)>,
}

impl NotWhileItRuns {
    fn runs(&self, books: &Books, uid: &str) -> bool {
        self.running.iter().any(|runs| books.uid(runs) == uid)
    }

    fn operation(&mut self, books: &Books, edge: &OperationEdge) {
        if !matches!(edge.name, OperationName::Unmount | OperationName::Unmap) {
            return;
        }
        let key = (books.life, edge.pod.clone(), edge.volume.clone());
        match edge.edge {
            Edge::Start if !self.runs(books, &edge.pod) => _ = self.undoing.insert(key),
            Edge::Start => {}
            Edge::End => _ = self.undoing.remove(&key),
        }
    }
}

impl Check for NotWhileItRuns {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::Pod(change) => match change.to {
                PodPhase::Added => _ = self.running.insert(change.pod.clone()),
                PodPhase::RuntimeGone | PodPhase::Removed => _ = self.running.remove(&change.pod),
                PodPhase::Running | PodPhase::Terminating => {}
            },
            Event::Operation(edge) => self.operation(books, edge),
            Event::RpcStart(start) if start.method == "NodeUnpublishVolume" => {
                let target = start.request().target_path();
                let pod = Place::of(target).and_then(Place::pod);
                if pod.is_some() {
                    report.tried();
                }
                let handle = format!("^{}", start.request().volume_id());
                let is_excused = |pod: &str| {
                    let is_it = |of: &str, volume: &str| of == pod && volume.ends_with(&handle);
                    self.undoing.iter().any(|(life, of, volume)| *life == books.life && is_it(of, volume))
                };
                if pod.is_some_and(|pod| self.runs(books, pod) && !is_excused(pod)) {
                    report.broken(&start.method, "unpublished while its pod may run", target);
                }
            }
            _ => {}
        }
    }
}

pub(super) static FINAL_MEANS_UNPUBLISHED: Rule = Rule {
    id: "INV-017",
    sentence: "a pod's volumes count as gone only when each of them is unpublished and nothing is in flight",
    witnesses: &[Witness::Rpc, Witness::Manager],
    check: Checked::Each(final_means_unpublished),
};

fn final_means_unpublished(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::Wait(wait) = &line.event else { return };
    if !matches!(wait.what, Awaited::Unmounted | Awaited::Gone) || !wait.err.is_empty() {
        return;
    }
    report.tried();
    let pod = books.uid(&wait.pod);
    let is_theirs = |path: &str| Place::of(path).and_then(Place::pod) == Some(pod);
    let mut published = books.volumes.values().flat_map(|known| known.published.keys());
    let is_left = |target: &&String| is_theirs(target) && !has_damaged_record(books, target);
    if let Some(target) = published.find(is_left) {
        report.broken("NodeUnpublishVolume", "counted as gone while a target was published", target.as_str());
    }
    let mut calls = books.calls.values().filter(|call| call.life == books.life);
    if let Some(call) = calls.find(|call| is_theirs(call.target())) {
        report.broken(&call.method, "counted as gone while a call for the pod was in flight", call.target());
    }
}

pub(super) static BOOKS_ARE_EMPTY: Rule = Rule {
    id: "INV-086",
    sentence: "when all pods are gone the books are empty and nothing is under way",
    witnesses: &[Witness::Manager, Witness::Operations],
    check: Checked::AtRest(|books, rest, report| {
        if !rest.pods.is_empty() {
            return;
        }
        report.tried();
        if let Some(key) = books.actual.keys().chain(books.desired.keys()).next() {
            report.broken("", "something stayed in the books when all pods were gone", key.as_str());
        }
        if let Some(edge) = books.operations.first() {
            report.broken("", "an operation went on when all pods were gone", edge.name.as_str());
        }
    }),
};

pub(super) static SUBPATHS_FIRST: Rule = Rule {
    id: "INV-069",
    sentence: "all sub-path mounts of a pod's volume are gone before it is unpublished",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(subpaths_first),
};

fn subpaths_first(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if start.method != "NodeUnpublishVolume" {
        return;
    }
    let Some(Place::Target(of)) = Place::of(start.request().target_path()) else { return };
    report.tried();
    let below = of.subpaths();
    if let Some(mount) =
        books.mounts.range(below.clone()..).map(|(at, _)| at).find(|at| at.starts_with(&below))
    {
        report.broken(&start.method, "unpublished while a sub-path was mounted", mount.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn unstage_waits_for_the_last_unpublish() {
        let rule = &UNSTAGE_LAST;
        keeps(rule, "stage v1\npublish v1 a\npublish v1 b\nunpublish v1 a\nunpublish v1 b\nunstage v1", &[]);
        keeps(rule, "stage v1\npublish v1 a Internal\nunstage v1", &[]);
        let early = "unstaged before its last target was unpublished";
        breaks(rule, early, "stage v1\npublish v1 a\npublish v1 b\nunpublish v1 a\nunstage v1", &[]);
        breaks(rule, early, "stage v1\npublish v1 a Unavailable\nunstage v1", &[]);
        breaks(rule, early, "stage v1\npublish v1 a Aborted\npublish v1 a Internal\nunstage v1", &[]);
        breaks(rule, early, "stage v1\npublish v1 a\nunpublish v1 a Internal\nunstage v1", &[]);
        breaks(rule, early, "stage v1\npublish v1 a\nunpublish v1 a begins\nunstage v1", &[]);
        breaks(
            rule,
            "unstaged while it was being published",
            "stage v1\npublish v1 a begins\nunstage v1",
            &[],
        );
    }

    #[test]
    fn an_uncertain_publish_is_taken_back() {
        let rule = &EVERY_PUBLISH_IS_UNDONE;
        keeps(rule, "publish v1 a\nunpublish v1 a Internal\nunpublish v1 a", &[]);
        keeps(rule, "publish v1 a", &["a"]);
        let left = "a target of a pod that is gone was not unpublished";
        breaks(rule, left, "publish v1 a\npublish v1 b\nunpublish v1 b", &["b"]);
        breaks(rule, left, "publish v1 a DeadlineExceeded\npublish v1 a Internal", &[]);
        breaks(rule, left, "publish v1 a begins\nnode kill\npublish v1 a ends OK\nnode start", &[]);
    }

    #[test]
    fn an_uncertain_stage_is_taken_back() {
        let rule = &EVERY_STAGE_IS_UNDONE;
        keeps(rule, "stage v1\nunstage v1", &[]);
        keeps(rule, "stage v1 Internal", &[]);
        passes_over(rule, "stage v1", &["a"]);
        let left = "a volume that no pod uses was not unstaged";
        breaks(rule, left, "stage v1\nunstage v1 Internal", &[]);
        breaks(rule, left, "stage v1 Unavailable\nstage v1 InvalidArgument", &[]);
        breaks(rule, left, "stage v1 begins\nnode kill\nnode start", &[]);
    }

    #[test]
    fn a_pod_that_may_run_keeps_its_volumes() {
        let rule = &NOT_WHILE_IT_RUNS;
        let runs = "step add_pod uid-a\npublish v1 a\n";
        keeps(rule, &[runs, "step set_state uid-a RuntimeGone\nunpublish v1 a"].concat(), &[]);
        keeps(rule, &[runs, "step remove_pod uid-a\nunpublish v1 a"].concat(), &[]);
        keeps(rule, &[runs, "unpublish v1 b"].concat(), &[]);
        let named = "step add_pod web\napi create Pod default/web case {\"metadata\":{\"uid\":\"uid-a\"}}\n";
        keeps(rule, &[named, "publish v1 a\nstep remove_pod web\nunpublish v1 a"].concat(), &[]);
        breaks(rule, "unpublished while its pod may run", &[named, "unpublish v1 a"].concat(), &[]);
        let early = "unpublished while its pod may run";
        breaks(rule, early, &[runs, "unpublish v1 a"].concat(), &[]);
        breaks(rule, early, &[runs, "step set_state uid-a Terminating\nunpublish v1 a"].concat(), &[]);
        breaks(rule, early, &[runs, "node kill\nnode start\nunpublish v1 a"].concat(), &[]);
        // The pod comes back while what an earlier life of it had is being unmounted.
        let orphan = "op start volume_unmount v1/a\n";
        keeps(rule, &[orphan, runs, "unpublish v1 a"].concat(), &[]);
        let ended = "op end volume_unmount v1/a\n";
        breaks(rule, early, &[orphan, runs, ended, "unpublish v1 a"].concat(), &[]);
        breaks(rule, early, &[orphan, "node kill\nnode start\n", runs, "unpublish v1 a"].concat(), &[]);
        breaks(rule, early, &[orphan, runs, "unpublish v2 a"].concat(), &[]);
        breaks(rule, early, &[runs, orphan, "unpublish v1 a"].concat(), &[]);
    }

    #[test]
    fn nothing_is_left_in_the_books() {
        let rule = &BOOKS_ARE_EMPTY;
        keeps(rule, "state v1 DeviceNotMounted\nwants v1/a yes\nwants v1/a -\nstate v1 -", &[]);
        passes_over(rule, "state v1 DeviceNotMounted", &["a"]);
        let stayed = "something stayed in the books when all pods were gone";
        breaks(rule, stayed, "state v1 DeviceNotMounted", &[]);
        breaks(rule, stayed, "wants v1/a yes", &[]);
        let running = "an operation went on when all pods were gone";
        breaks(rule, running, "op start unmount_device v1", &[]);
        keeps(rule, "op start unmount_device v1\nop end unmount_device v1", &[]);
    }

    #[test]
    fn gone_means_gone() {
        let rule = &FINAL_MEANS_UNPUBLISHED;
        keeps(rule, "publish v1 a\nwait unmounted a timed out\nunpublish v1 a\nwait unmounted a", &[]);
        keeps(rule, "publish v1 b\nwait unmounted a\nwait mounted b", &[]);
        keeps(rule, "publish v1 a\nstep damage data:v1/a\nwait unmounted a", &[]);
        let named = "api create Pod default/web case {\"metadata\":{\"uid\":\"uid-a\"}}\n";
        breaks(
            rule,
            "counted as gone while a target was published",
            &[named, "publish v1 a\nwait unmounted web"].concat(),
            &[],
        );
        breaks(
            rule,
            "counted as gone while a target was published",
            "publish v1 a\nunpublish v1 a Internal\nwait unmounted a",
            &[],
        );
        breaks(
            rule,
            "counted as gone while a call for the pod was in flight",
            "publish v1 a begins\nwait gone a",
            &[],
        );
    }

    #[test]
    fn subpaths_go_first() {
        let rule = &SUBPATHS_FIRST;
        keeps(rule, "publish v1 a\nmount subpath:v1/a\numount subpath:v1/a\nunpublish v1 a", &[]);
        keeps(rule, "publish v1 a\nmount subpath:v1/b\nmount subpath:v2/a\nunpublish v1 a", &[]);
        breaks(
            rule,
            "unpublished while a sub-path was mounted",
            "publish v1 a\nmount subpath:v1/a\nunpublish v1 a",
            &[],
        );
    }
}
