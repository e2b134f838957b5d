//! Staging comes before publishing, once for all pods, and publishing before what needs it.

use std::collections::BTreeSet;

use crate::csi::Request;
use crate::event::{Awaited, Event, Role, TraceLine, World};
use crate::rule::books::Progress;
use crate::rule::place::Place;
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

pub(super) static PUBLISH_AFTER_STAGE: Rule = Rule {
    id: "INV-001",
    sentence: "a volume is published only after it was staged, and before its unstaging begins",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(publish_after_stage),
};

fn publish_after_stage(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let staging = start.request().staging_path();
    if start.method != "NodePublishVolume" || staging.is_empty() || books.stages == Some(false) {
        return;
    }
    report.tried();
    let volume = start.request().volume_id();
    let staged = books.volume(volume).and_then(|known| known.staged.get(staging)).copied();
    match staged {
        None => report.broken(&start.method, "published before it was staged", volume),
        Some(Progress::Uncertain) => {
            report.broken(&start.method, "published while its staging is uncertain", volume)
        }
        Some(Progress::Done) => {}
    }
    if books.methods_in_flight(volume).any(|method| method == "NodeUnstageVolume") {
        report.broken(&start.method, "published while it is being unstaged", volume);
    }
}

pub(super) static STAGED_ONCE: Rule = Rule {
    id: "INV-013",
    sentence: "a volume that is staged is not staged again, however many pods use it",
    witnesses: &[Witness::Rpc],
    // A device that is uncertain in the manager's books is staged again to settle that, for example after an unmount
    // that failed before its call.
    check: Checked::Each(staged_once),
};

fn staged_once(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if start.method != "NodeStageVolume" {
        return;
    }
    report.tried();
    let volume = start.request().volume_id();
    let staged = books.volume(volume).and_then(|known| known.staged.get(start.request().staging_path()));
    let uncertain = books.actual.iter().any(|(key, state)| {
        key.strip_prefix("volume ").and_then(handle) == Some(volume)
            && state.starts_with("DeviceMountUncertain")
    });
    if staged == Some(&Progress::Done) && !uncertain {
        report.broken(&start.method, "staged again while it was staged", volume);
    }
}

/// INV-042: a volume is reported as mounted only if it was mounted in this life of the node.
pub(super) static PUBLISHED_IN_THIS_LIFE: Rule = Rule {
    id: "INV-042",
    sentence: "a CSI volume counts as mounted only after it was published in this life of the node",
    witnesses: &[Witness::Rpc, Witness::Manager],
    check: Checked::Each(published_in_this_life),
};

fn published_in_this_life(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::State(change) = &line.event else { return };
    if change.world != World::Actual || !change.to.starts_with("VolumeMounted") {
        return;
    }
    let Some((pod, volume)) = pod_and_handle(&change.key) else { return };
    report.tried();
    let published = books.volume(volume).is_some_and(|known| {
        let mut targets = known.published.iter();
        targets.any(|(path, progress)| {
            *progress == Progress::Done && Place::of(path).and_then(Place::pod) == Some(pod)
        })
    });
    if !published {
        report.broken("", "counted as mounted without having been published", change.key.as_str());
    }
}

/// The pod and the handle in the key of a pod's CSI volume: `pod <uid> kubernetes.io/csi/<driver>^<handle>`.
pub(super) fn pod_and_handle(key: &str) -> Option<(&str, &str)> {
    let (pod, unique) = key.strip_prefix("pod ")?.split_once(' ')?;
    Some((pod, handle(unique)?))
}

/// The handle in a unique name; none for a volume that is one pod's only.
pub(super) fn handle(unique: &str) -> Option<&str> {
    unique.strip_prefix("kubernetes.io/csi/")?.split_once('^').map(|(_, handle)| handle)
}

pub(super) static ALL_OR_NOT_READY: Rule = Rule {
    id: "INV-014",
    sentence: "a pod's volumes count as ready only when every one that it wants is mounted",
    witnesses: &[Witness::Manager],
    check: Checked::Each(|books, line, report| {
        let Event::Wait(wait) = &line.event else { return };
        if wait.what != Awaited::Mounted || !wait.err.is_empty() {
            return;
        }
        report.tried();
        let of_it = format!("pod {} ", books.uid(&wait.pod));
        let mut wanted = books.desired.keys().filter(|key| key.starts_with(&of_it));
        let mounted =
            |key: &&String| books.actual.get(*key).is_some_and(|state| state.starts_with("VolumeMounted"));
        if let Some(missing) = wanted.find(|key| !mounted(key)) {
            report.broken("", "counted as ready while a volume was not mounted", missing.as_str());
        }
    }),
};

pub(super) static WANTED_STAYS: Rule = Rule {
    id: "INV-041",
    sentence: "a volume that its pod wants is not unpublished, across restarts neither",
    witnesses: &[Witness::Rpc, Witness::Manager],
    check: Checked::Each(|books, line, report| {
        let Event::RpcStart(start) = &line.event else { return };
        if start.method != "NodeUnpublishVolume" {
            return;
        }
        let (volume, target) = (start.request().volume_id(), start.request().target_path());
        let Some(pod) = Place::of(target).and_then(Place::pod) else { return };
        report.tried();
        if books.desired.keys().any(|key| pod_and_handle(key) == Some((pod, volume))) {
            report.broken(&start.method, "unpublished while its pod wanted it", target);
        }
    }),
};

pub(super) static ONE_LABEL_AT_A_TIME: Rule = Rule {
    id: "INV-038",
    sentence: "a volume is published with the SELinux label that it is staged and published with already, or not yet",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(same_label_everywhere),
};

fn same_label_everywhere(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let uses = matches!(start.method.as_str(), "NodeStageVolume" | "NodePublishVolume");
    let Some(known) = books.volume(start.request().volume_id()).filter(|_| uses) else { return };
    report.tried();
    let wanted = label(start.request());
    // Up to the first violation all that is held has one label, so that the first of it stands for all.
    let staged = known.stage_request.as_ref().filter(|_| !known.staged.is_empty());
    let published = || known.published.keys().find_map(|target| known.publish_requests.get(target));
    let held = staged.or_else(published);
    if held.is_some_and(|request| label(Request::of(request)) != wanted) {
        report.broken(&start.method, "used with a label while it had another", start.request().volume_id());
    }
}

/// The label in the mount flags of a request; empty for none.
fn label(request: Request<'_>) -> &str {
    let mut flags = request.capability().mount_flags();
    flags.find_map(|flag| flag.strip_prefix("context=")).unwrap_or_default()
}

pub(super) static EXPANDED_WHEN_PUBLISHED: Rule = Rule {
    id: "INV-063",
    sentence: "a volume is expanded only after it was published for some pod",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(expanded_when_published),
};

fn expanded_when_published(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if start.method != "NodeExpandVolume" {
        return;
    }
    report.tried();
    let volume = start.request().volume_id();
    let published = books
        .volume(volume)
        .is_some_and(|known| known.published.values().any(|step| *step == Progress::Done));
    if !published {
        report.broken(&start.method, "expanded while it was published nowhere", volume);
    }
}

pub(super) static REFUSED_IN_USE_IS_FINAL: Rule = Rule {
    id: "INV-066",
    sentence: "a volume whose driver refuses to grow it in use is not asked again while it is on the node",
    witnesses: &[Witness::Rpc, Witness::Manager],
    check: Checked::With(|| Box::new(RefusedInUseIsFinal::default())),
};

/// Volumes that were refused, by their ids.
#[derive(Default)]
struct RefusedInUseIsFinal {
    refused: BTreeSet<String>,
}

impl Check for RefusedInUseIsFinal {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::RpcStart(start) if start.method == "NodeExpandVolume" => {
                let volume = start.request().volume_id();
                if self.refused.contains(volume) {
                    report.broken(&start.method, "asked again to grow a volume in use", volume);
                }
            }
            Event::RpcEnd(end) if end.method == "NodeExpandVolume" && end.code == "FailedPrecondition" => {
                report.tried();
                let call = books.calls.get(&end.id).filter(|call| call.life == books.life);
                self.refused.extend(call.map(|call| call.volume().to_owned()));
            }
            Event::State(change) if change.world == World::Actual && change.to.is_empty() => {
                if let Some(volume) = change.key.strip_prefix("volume ").and_then(handle) {
                    self.refused.remove(volume);
                }
            }
            Event::Process(edge) if edge.who == Role::Node => self.refused.clear(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn publish_comes_after_stage() {
        let rule = &PUBLISH_AFTER_STAGE;
        keeps(rule, "capabilities STAGE_UNSTAGE_VOLUME\nstage v1\npublish v1 a\npublish v1 b", &[]);
        passes_over(rule, "capabilities\npublish v1 a", &[]);
        breaks(rule, "published before it was staged", "publish v1 a", &[]);
        breaks(rule, "published before it was staged", "stage v1 Internal\npublish v1 a", &[]);
        breaks(rule, "published before it was staged", "stage v2\npublish v1 a", &[]);
        breaks(rule, "published while its staging is uncertain", "stage v1 Aborted\npublish v1 a", &[]);
        breaks(
            rule,
            "published while its staging is uncertain",
            "stage v1\nunstage v1 Internal\npublish v1 a",
            &[],
        );
        breaks(
            rule,
            "published while it is being unstaged",
            "stage v1\nunstage v1 begins\npublish v1 a",
            &[],
        );
        breaks(
            rule,
            "published while its staging is uncertain",
            "stage v1\nnode kill\nnode start\npublish v1 a",
            &[],
        );
        // A call that reaches the driver after the node's death was sent before.
        passes_over(rule, "stage v1\nnode kill\npublish v1 a\nnode start", &[]);
    }

    #[test]
    fn stage_once_for_all_pods() {
        let rule = &STAGED_ONCE;
        keeps(rule, "stage v1 Internal\nstage v1\nunstage v1\nstage v1", &[]);
        keeps(rule, "stage v1\nnode kill\nnode exit\nnode start\nstage v1", &[]);
        keeps(rule, "stage v1\nstate v1 DeviceMountUncertain\nstage v1", &[]);
        let again = "staged again while it was staged";
        breaks(rule, again, "stage v1\npublish v1 a\nstage v1", &[]);
        breaks(rule, again, "stage v1\nstate v1 DeviceGloballyMounted\nstage v1", &[]);
    }

    #[test]
    fn ready_means_all_of_them() {
        let rule = &ALL_OR_NOT_READY;
        let wanted = "wants v1/a yes\nwants v2/a yes\nwants v3/b yes\nstate v1/a VolumeMounted\n";
        keeps(rule, &[wanted, "state v2/a VolumeMounted\nwait mounted a"].concat(), &[]);
        passes_over(rule, &[wanted, "wait mounted a timed out"].concat(), &[]);
        let early = "counted as ready while a volume was not mounted";
        breaks(rule, early, &[wanted, "state v2/a VolumeMountUncertain\nwait mounted a"].concat(), &[]);
    }

    #[test]
    fn wanted_volume_stays_published() {
        let rule = &WANTED_STAYS;
        keeps(rule, "wants v1/b yes\nwants v2/a yes\nwants v1/a yes\nwants v1/a -\nunpublish v1 a", &[]);
        breaks(
            rule,
            "unpublished while its pod wanted it",
            "publish v1 a\nnode kill\nnode start\nwants v1/a yes\nunpublish v1 a",
            &[],
        );
    }

    #[test]
    fn mounted_means_published_now() {
        let rule = &PUBLISHED_IN_THIS_LIFE;
        keeps(rule, "publish v1 a\nstate v1/a VolumeMounted", &[]);
        keeps(rule, "publish b1 a\nstate b1/a VolumeMounted", &[]);
        let unpublished = "counted as mounted without having been published";
        breaks(rule, unpublished, "publish v1 b\nstate v1/a VolumeMounted", &[]);
        breaks(rule, unpublished, "publish v1 a\nnode kill\nnode start\nstate v1/a VolumeMounted", &[]);
    }

    #[test]
    fn a_label_is_taken_off_before_another_is_put_on() {
        let rule = &ONE_LABEL_AT_A_TIME;
        let with = |call: &str, label: &str| {
            format!(
                "{call} {{\"volumeCapability\":{{\"mount\":{{\"mountFlags\":[\"ro\",\"context={label}\"]}}}}}}\n"
            )
        };
        let had = [with("stage v1", "x"), with("publish v1 a", "x")].concat();
        let other = with("publish v1 b", "y");
        let both = "used with a label while it had another";
        keeps(rule, &[&had, &*with("publish v1 b", "x")].concat(), &[]);
        keeps(rule, &[&had, "unpublish v1 a\nunstage v1\n", &with("stage v1", "y"), &other].concat(), &[]);
        breaks(rule, both, &[&had, &*other].concat(), &[]);
        breaks(rule, both, &[&had, "unpublish v1 a\n", &other].concat(), &[]);
        breaks(
            rule,
            both,
            &[&had, "unpublish v1 a\nunstage v1 Internal\n", &with("stage v1", "y")].concat(),
            &[],
        );
        breaks(rule, both, &[&had, "publish v1 b"].concat(), &[]);
    }

    #[test]
    fn a_refusal_to_grow_in_use_is_remembered() {
        let rule = &REFUSED_IN_USE_IS_FINAL;
        let refused = "state v1 DeviceGloballyMounted\nexpand v1 a FailedPrecondition\n";
        keeps(rule, &[refused, "expand v2 a"].concat(), &[]);
        keeps(rule, &[refused, "state v1 -\nexpand v1 a"].concat(), &[]);
        keeps(rule, &[refused, "node kill\nnode start\nexpand v1 a"].concat(), &[]);
        passes_over(rule, "expand v1 a Internal\nexpand v1 a", &[]);
        breaks(rule, "asked again to grow a volume in use", &[refused, "expand v1 a"].concat(), &[]);
    }

    #[test]
    fn expansion_needs_a_target() {
        let rule = &EXPANDED_WHEN_PUBLISHED;
        keeps(rule, "stage v1\npublish v1 a\nexpand v1 a", &[]);
        breaks(rule, "expanded while it was published nowhere", "stage v1\nexpand v1 a", &[]);
    }
}
