//! Steps with an unknown outcome: marked uncertain, and not forgotten before they are resolved.

use std::collections::BTreeMap;

use crate::event::{
    Edge, Effect, EffectKind, Event, OperationEdge, OperationName, Role, RpcEnd, TraceLine, World,
};
use crate::rule::books::{Progress, is_unknown};
use crate::rule::place::{Place, parent};
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

use super::damage::{has_damaged_record, is_unidentifiable};
use super::staging::{handle, pod_and_handle};

/// Operations that do something for a pod.
const MOUNTS: &[OperationName] = &[OperationName::Mount, OperationName::Map];

/// Operations that take it back.
const UNMOUNTS: &[OperationName] = &[OperationName::Unmount, OperationName::Unmap];

pub(super) static UNKNOWN_IS_UNCERTAIN: Rule = Rule {
    id: "INV-018",
    sentence: "after an answer that leaves open what happened the volume is uncertain, and its directories stay",
    witnesses: &[Witness::Rpc, Witness::File, Witness::Manager, Witness::Operations],
    check: Checked::Each(unknown_is_uncertain),
};

fn unknown_is_uncertain(books: &Books, line: &TraceLine, report: &mut Report) {
    match &line.event {
        Event::Effect(effect) => directories_stay(books, effect, report),
        Event::Operation(edge) if edge.edge == Edge::End && MOUNTS.contains(&edge.name) => {
            entry_is_uncertain(books, edge, report);
        }
        _ => {}
    }
}

fn directories_stay(books: &Books, effect: &Effect, report: &mut Report) {
    if !matches!(effect.effect, EffectKind::Rmdir | EffectKind::Remove) {
        return;
    }
    for (volume, known) in &books.volumes {
        let steps = known.staged.iter().chain(&known.published);
        for (path, _) in steps.filter(|(_, progress)| **progress == Progress::Uncertain) {
            report.tried();
            let undoing = books.methods_in_flight(volume).any(|method| method.contains("Un"));
            let identifiable = !is_unidentifiable(books, volume, path);
            if identifiable && !undoing && (effect.path == *path || effect.path == parent(path)) {
                report.broken("", "a directory of an uncertain step was removed", effect.path.as_str());
            }
        }
    }
}

fn entry_is_uncertain(books: &Books, edge: &OperationEdge, report: &mut Report) {
    let Some(known) = handle(&edge.volume).and_then(|volume| books.volume(volume)) else { return };
    for (target, _) in known.published.iter().filter(|(_, progress)| **progress == Progress::Uncertain) {
        let Some(pod) = Place::of(target).and_then(Place::pod) else { continue };
        report.tried();
        let key = format!("pod {pod} {}", edge.volume);
        // Without its record it gets there when its pod is known to want it.
        if has_damaged_record(books, target) && !books.desired.contains_key(&key) {
            continue;
        }
        let entry = books.actual.get(&key);
        if !entry.is_some_and(|entry| entry.contains("Uncertain")) {
            report.broken("NodePublishVolume", "an uncertain publish is not in the books", target.as_str());
        }
    }
}

pub(super) static FAILED_LEAVES_NOTHING: Rule = Rule {
    id: "INV-019",
    sentence: "a first attempt that failed for certain leaves no directory and no metadata, or stays uncertain",
    witnesses: &[Witness::Rpc, Witness::File, Witness::Manager, Witness::Operations],
    check: Checked::With(|| Box::new(FailedLeavesNothing::default())),
};

/// Steps that failed for certain and were never done, with the volume they belong to.
#[derive(Default)]
struct FailedLeavesNothing {
    failed: BTreeMap<String, String>,
}

impl Check for FailedLeavesNothing {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::RpcEnd(end) => self.answered(books, end),
            Event::Process(edge) if edge.who == Role::Node => self.failed.clear(),
            Event::Operation(edge) if edge.edge == Edge::End && MOUNTS.contains(&edge.name) => {
                let Some(ended) = handle(&edge.volume) else { return };
                let of_it: Vec<String> = self
                    .failed
                    .iter()
                    .filter(|(_, volume)| *volume == ended)
                    .map(|(path, _)| path.clone())
                    .collect();
                for path in of_it {
                    report.tried();
                    self.failed.remove(&path);
                    // A path that could not be removed stays uncertain in the books, and is undone later.
                    if !may_be_there(books, &edge.volume, &path) {
                        judge_leftovers(books, &path, report);
                    }
                }
            }
            _ => {}
        }
    }
}

impl FailedLeavesNothing {
    fn answered(&mut self, books: &Books, end: &RpcEnd) {
        let Some(call) = books.calls.get(&end.id) else { return };
        let known = books.volume(call.volume());
        let (path, before) = match call.method.as_str() {
            "NodeStageVolume" => (call.staging(), known.and_then(|known| known.staged.get(call.staging()))),
            "NodePublishVolume" => {
                (call.target(), known.and_then(|known| known.published.get(call.target())))
            }
            _ => return,
        };
        if end.code == "OK" || is_unknown(&end.code) || before.is_some() {
            self.failed.remove(path);
        } else {
            self.failed.insert(path.to_owned(), call.volume().to_owned());
        }
    }
}

/// Whether the books say that the step at a path may have been done.
fn may_be_there(books: &Books, volume: &str, path: &str) -> bool {
    let key = match Place::of(path).and_then(Place::pod) {
        Some(pod) => format!("pod {pod} {volume}"),
        None => format!("volume {volume}"),
    };
    books.actual.get(&key).is_some_and(|state| state.contains("Uncertain"))
}

fn judge_leftovers(books: &Books, path: &str, report: &mut Report) {
    // A block volume's metadata is shared by all of its pods and has a life of its own.
    let Some(place @ (Place::Target(_) | Place::Staging { .. })) = Place::of(path) else { return };
    let metadata = place.metadata();
    if books.entries.contains_key(&metadata) {
        report.broken("", "metadata was left after a step failed for certain", metadata);
    }
    if books.entries.contains_key(path) {
        report.broken("", "a directory was left after a step failed for certain", path);
    }
}

pub(super) static NEVER_FORGOTTEN: Rule = Rule {
    id: "INV-020",
    sentence: "what may have happened stays in the books until it, or its undoing, has succeeded",
    witnesses: &[Witness::Rpc, Witness::Manager],
    check: Checked::Each(never_forgotten),
};

fn never_forgotten(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::State(change) = &line.event else { return };
    if change.world != World::Actual || !(change.to.is_empty() || change.to.starts_with("DeviceNotMounted")) {
        return;
    }
    report.tried();
    if let Some((pod, volume)) = pod_and_handle(&change.key) {
        let mut targets = books.volume(volume).into_iter().flat_map(|known| known.published.keys());
        if targets.any(|target| Place::of(target).and_then(Place::pod) == Some(pod)) {
            report.broken("", "a pod's volume was forgotten while it may be published", change.key.as_str());
        }
    } else if let Some(volume) = change.key.strip_prefix("volume ").and_then(handle)
        && let Some(known) = books.volume(volume)
        && known.staged.keys().any(|path| !is_unidentifiable(books, volume, path))
    {
        report.broken("", "a volume was forgotten while it may be staged", change.key.as_str());
    }
}

pub(super) static REMOUNT_KEEPS_MOUNTED: Rule = Rule {
    id: "INV-022",
    sentence: "a mounted volume stays mounted in the books until its unmount begins",
    witnesses: &[Witness::Manager, Witness::Operations],
    check: Checked::Each(remount_keeps_mounted),
};

fn remount_keeps_mounted(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::State(change) = &line.event else { return };
    let downgraded = change.from.starts_with("VolumeMounted") && !change.to.starts_with("VolumeMounted");
    if change.world == World::Actual && change.from.starts_with("VolumeMounted") {
        report.tried();
    }
    if change.world != World::Actual || !downgraded {
        return;
    }
    let unmounting = books.operations.iter().any(|edge| {
        UNMOUNTS.contains(&edge.name) && change.key == format!("pod {} {}", edge.pod, edge.volume)
    });
    if !unmounting {
        report.broken("", "a mounted volume was downgraded without being unmounted", change.key.as_str());
    }
}

pub(super) static UNCERTAIN_IS_CLEARED: Rule = Rule {
    id: "INV-023",
    sentence: "what may be mounted for a pod that wants it is mounted again until it certainly is",
    witnesses: &[Witness::Manager, Witness::Operations],
    check: Checked::AtRest(|books, rest, report| {
        let wanted = |key: &str| key.split(' ').nth(1).is_some_and(|pod| rest.pods.contains(pod));
        for (key, state) in books.actual.iter().filter(|(key, _)| key.starts_with("pod ")) {
            if !wanted(key) {
                continue;
            }
            report.tried();
            if !state.starts_with("VolumeMounted") {
                report.broken("", "a volume that its pod wants was left uncertain", key.as_str());
            }
        }
    }),
};

pub(super) static FAILED_UNMOUNT_IS_KEPT: Rule = Rule {
    id: "INV-024",
    sentence: "a pod's volume stays in the books until its unmount has succeeded",
    witnesses: &[Witness::Manager, Witness::Operations],
    check: Checked::Each(|books, line, report| {
        let Event::Operation(edge) = &line.event else { return };
        let failed = edge.edge == Edge::End && edge.error.is_some();
        let key = format!("pod {} {}", edge.pod, edge.volume);
        if !failed || !UNMOUNTS.contains(&edge.name) {
            return;
        }
        report.tried();
        if !books.actual.contains_key(&key) {
            report.broken("", "a volume was forgotten whose unmount had failed", key);
        }
    }),
};

pub(super) static FAILED_UNSTAGE_IS_UNCERTAIN: Rule = Rule {
    id: "INV-025",
    sentence: "after an unstaging that failed the device is uncertain, so it is staged anew before it is used",
    witnesses: &[Witness::Rpc, Witness::Manager, Witness::Operations],
    check: Checked::Each(failed_unstage_is_uncertain),
};

fn failed_unstage_is_uncertain(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::Operation(edge) = &line.event else { return };
    let of_device = matches!(edge.name, OperationName::UnmountDevice | OperationName::UnmapDevice);
    if !of_device || edge.edge != Edge::End || edge.error.is_none() {
        return;
    }
    let Some(known) = handle(&edge.volume).and_then(|volume| books.volume(volume)) else { return };
    report.tried();
    let entry = books.actual.get(&format!("volume {}", edge.volume));
    let uncertain = entry.is_some_and(|entry| entry.starts_with("DeviceMountUncertain"));
    if known.staged.values().any(|progress| *progress == Progress::Uncertain) && !uncertain {
        report.broken("NodeUnstageVolume", "a failed unstaging is not in the books", edge.volume.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn unknown_outcomes_are_written_down() {
        let rule = &UNKNOWN_IS_UNCERTAIN;
        let begin = "op start volume_mount v1\nstage v1\npublish v1 a DeadlineExceeded\n";
        let end = "op end volume_mount v1 deadline";
        keeps(rule, &[begin, "state v1/a VolumeMountUncertain\n", end].concat(), &[]);
        breaks(rule, "an uncertain publish is not in the books", &[begin, end].concat(), &[]);
        breaks(
            rule,
            "a directory of an uncertain step was removed",
            &[begin, "rmdir parent:v1/a"].concat(),
            &[],
        );
        passes_over(rule, &[begin, "unpublish v1 a\nrmdir parent:v1/a"].concat(), &[]);
    }

    #[test]
    fn certain_failures_leave_nothing() {
        let rule = &FAILED_LEAVES_NOTHING;
        let begin = "op start volume_mount v1\nmkdir parent:v1/a\nwrite data:v1/a\npublish v1 a Internal\n";
        let end = "op end volume_mount v1 internal";
        keeps(rule, &[begin, "remove data:v1/a\nrmdir parent:v1/a\n", end].concat(), &[]);
        breaks(rule, "metadata was left after a step failed for certain", &[begin, end].concat(), &[]);
        keeps(rule, &[begin, "state v1/a VolumeMountUncertain\n", end].concat(), &[]);
        breaks(
            rule,
            "metadata was left after a step failed for certain",
            &[begin, "state v1/b VolumeMountUncertain\n", end].concat(),
            &[],
        );
        // A volume that was uncertain before stays uncertain, also after a final error.
        passes_over(rule, &["write data:v1/a\npublish v1 a Aborted\n", begin, end].concat(), &[]);
        breaks(
            rule,
            "a directory was left after a step failed for certain",
            "op start volume_mount v1\nmkdir staging:v1\nstage v1 Internal\nop end volume_mount v1 internal",
            &[],
        );
    }

    #[test]
    fn nothing_is_forgotten() {
        let rule = &NEVER_FORGOTTEN;
        keeps(rule, "publish v1 a\nunpublish v1 a\nstate v1/a -\nstage v1\nunstage v1\nstate v1 -", &[]);
        keeps(rule, "publish v1 a Internal\nstate v1/a -", &[]);
        breaks(
            rule,
            "a pod's volume was forgotten while it may be published",
            "publish v1 a Aborted\npublish v1 a Internal\nstate v1/a -",
            &[],
        );
        breaks(
            rule,
            "a volume was forgotten while it may be staged",
            "stage v1\nunstage v1 Internal\nstate v1 DeviceNotMounted",
            &[],
        );
    }

    #[test]
    fn a_failed_remount_keeps_mounted() {
        let rule = &REMOUNT_KEEPS_MOUNTED;
        keeps(
            rule,
            "state v1/a VolumeMounted\nop start volume_unmount v1/a\nstate v1/a VolumeMountUncertain",
            &[],
        );
        breaks(
            rule,
            "a mounted volume was downgraded without being unmounted",
            "state v1/a VolumeMounted\nop start volume_mount v1\nstate v1/a VolumeMountUncertain",
            &[],
        );
    }

    #[test]
    fn doubt_is_cleared_up_in_the_end() {
        let rule = &UNCERTAIN_IS_CLEARED;
        keeps(rule, "state v1/a VolumeMountUncertain\nstate v1/a VolumeMounted", &["a"]);
        passes_over(rule, "state v1/a VolumeMountUncertain", &["b"]);
        let left = "a volume that its pod wants was left uncertain";
        breaks(rule, left, "state v1/b VolumeMounted\nstate v1/a VolumeMountUncertain", &["a", "b"]);
    }

    #[test]
    fn a_failed_unmount_is_not_forgotten() {
        let rule = &FAILED_UNMOUNT_IS_KEPT;
        let begin =
            "state v1/a VolumeMounted\nop start volume_unmount v1/a\nstate v1/a VolumeMountUncertain\n";
        let (gone, failed) = ("state v1/a -\n", "op end volume_unmount v1/a no");
        keeps(rule, &[begin, failed].concat(), &[]);
        passes_over(rule, &[begin, gone, "op end volume_unmount v1/a"].concat(), &[]);
        breaks(rule, "a volume was forgotten whose unmount had failed", &[begin, gone, failed].concat(), &[]);
    }

    #[test]
    fn a_failed_unstage_is_written_down() {
        let rule = &FAILED_UNSTAGE_IS_UNCERTAIN;
        let begin =
            "stage v1\nstate v1 DeviceGloballyMounted\nop start unmount_device v1\nunstage v1 Internal\n";
        let end = "op end unmount_device v1 internal";
        keeps(rule, &[begin, "state v1 DeviceMountUncertain\n", end].concat(), &[]);
        breaks(rule, "a failed unstaging is not in the books", &[begin, end].concat(), &[]);
    }
}
