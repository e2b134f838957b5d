//! Failures: the time until the next attempt, and the events about them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::event::{
    ApiChange, Edge, Event, Lifecycle, ObjectKind, OperationEdge, OperationName, ProcessEdge, TraceLine,
};
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

use super::attachment::persistent_volume;
use super::staging::handle;

pub(super) static LADDER: Rule = Rule {
    id: "INV-026",
    sentence: "after the n-th failure in a row an operation waits 0.5, 1, 2, … 64, 122 s, and never less",
    witnesses: &[Witness::Operations, Witness::Clock, Witness::Api],
    check: Checked::With(|| Box::new(Ladder::default())),
};

/// The longest wait, in milliseconds.
const CAP_MS: f64 = 122_000.0;

const CLAIM: ObjectKind = ObjectKind::Claim;

/// The operation that grows a volume.
const GROW: OperationName = OperationName::Expand;

/// Failures in a row of each operation, and when the last one ended.
#[derive(Default)]
struct Ladder {
    failed: BTreeMap<(OperationName, String, String), (u32, f64)>,
    /// Persistent volumes whose claims have newly reported that the node must expand them. That ends one wait when the node
    /// learns of it.
    turns: BTreeSet<String>,
}

impl Check for Ladder {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::Operation(edge) => self.operation(books, edge, line.t_ms, report),
            // A volume that has left both books is a new one when it comes back.
            Event::State(change) if change.to.is_empty() => {
                let Some(volume) = change.key.rsplit(' ').next() else { return };
                let last = !entries_of(books, volume).any(|key| *key != change.key);
                if last {
                    self.failed.retain(|(_, of, _), _| of != volume);
                }
            }
            // A driver that registers ends the wait of its operations, and a new node has no memory of one.
            Event::Process(ProcessEdge { edge, .. }) if *edge != Lifecycle::Exit => self.failed.clear(),
            Event::Api(change) if change.kind == CLAIM => self.claim(books, change),
            _ => {}
        }
    }
}

impl Ladder {
    /// Notes the volume of a claim that newly reports the node's turn. A repeated report does not count.
    fn claim(&mut self, books: &Books, change: &ApiChange) {
        let before = books.object(CLAIM, &change.object).and_then(size_by_turn);
        let now = size_by_turn(&change.body);
        if let (Some(volume), true) =
            (change.body["spec"]["volumeName"].as_str(), now.is_some() && now != before)
        {
            self.turns.insert(volume.to_owned());
        }
    }

    fn operation(&mut self, books: &Books, edge: &OperationEdge, now: f64, report: &mut Report) {
        let key = (edge.name, edge.volume.clone(), pod_of_key(edge).to_owned());
        match (edge.edge, &edge.error) {
            (Edge::Start, _) => {
                let Some((failures, since)) = self.failed.get(&key) else { return };
                report.tried();
                // Half a millisecond for what rounding does to the times of a trace.
                let early = now - since + 0.5 < wait_ms(*failures);
                if early && grown(books, edge).is_some_and(|volume| self.turns.remove(volume)) {
                    self.failed.remove(&key);
                } else if early {
                    report.broken(
                        "",
                        "tried again before its back-off was over",
                        format!("{} {}", edge.name, edge.volume),
                    );
                }
            }
            (Edge::End, None) => {
                self.failed.remove(&key);
                if let Some(volume) = grown(books, edge) {
                    self.turns.remove(volume);
                }
            }
            // An operation that stops because its pod is gone has not failed, and its back-off does not grow.
            (Edge::End, Some(_)) if MOUNTS.contains(&edge.name) && !is_wanted(books, edge) => {}
            // Nor has what ends when the volume has left both books.
            (Edge::End, Some(_)) if !is_known(books, &edge.volume) => _ = self.failed.remove(&key),
            (Edge::End, Some(_)) => {
                let (failures, since) = self.failed.entry(key).or_default();
                *failures += 1;
                *since = now;
            }
        }
    }
}

/// The requested size of a volume whose claim says that the node must expand it.
fn size_by_turn(claim: &Value) -> Option<&Value> {
    let status = &claim["status"];
    let turn = status["allocatedResourceStatuses"]["storage"] == "NodeResizePending";
    turn.then(|| &status["allocatedResources"]["storage"])
}

/// The persistent volume that an operation expands, if the trace has its object.
fn grown<'a>(books: &'a Books, edge: &OperationEdge) -> Option<&'a str> {
    let volume = handle(&edge.volume).filter(|_| edge.name == GROW)?;
    persistent_volume(books, volume).map(|(name, _)| name)
}

/// The entries of a volume in both books.
fn entries_of<'a>(books: &'a Books, volume: &'a str) -> impl Iterator<Item = &'a String> {
    let entries = books.actual.keys().chain(books.desired.keys());
    entries.filter(move |key| key.rsplit(' ').next() == Some(volume))
}

/// Whether a volume is in either book.
fn is_known(books: &Books, volume: &str) -> bool {
    entries_of(books, volume).next().is_some()
}

/// Operations that do something for a pod.
const MOUNTS: &[OperationName] = &[OperationName::Mount, OperationName::Map];

/// Whether the pod of an operation wants its volume.
fn is_wanted(books: &Books, edge: &OperationEdge) -> bool {
    books.desired.contains_key(&format!("pod {} {}", edge.pod, edge.volume))
}

/// The pod in the key that an operation climbs its ladder under. Mounts of a volume that pods share have one
/// ladder, whichever pod they are for: a success for one of them ends it for all.
fn pod_of_key(edge: &OperationEdge) -> &str {
    let unmount = matches!(edge.name, OperationName::Unmount | OperationName::Unmap);
    if unmount || handle(&edge.volume).is_none() { &edge.pod } else { "" }
}

/// The back-off after a number of failures in a row.
fn wait_ms(failures: u32) -> f64 {
    (500.0 * 2f64.powi(failures.saturating_sub(1).min(16) as i32)).min(CAP_MS)
}

pub(super) static EACH_FAILURE_HAS_AN_EVENT: Rule = Rule {
    id: "INV-029",
    sentence: "each failed attempt to mount or map for a pod that wants the volume has an event on the pod",
    witnesses: &[Witness::Operations, Witness::Manager, Witness::Api],
    check: Checked::With(|| Box::new(FailureEvents::default())),
};

/// For each error text, the number of failures and of events. An attempt that stops because its pod is gone has not
/// failed: nothing was risked, and there is no pod for an event.
#[derive(Default)]
struct FailureEvents {
    failures: BTreeMap<String, u64>,
    events: BTreeMap<String, u64>,
}

impl Check for FailureEvents {
    fn event(&mut self, books: &Books, line: &TraceLine, _report: &mut Report) {
        match &line.event {
            Event::Operation(edge) if MOUNTS.contains(&edge.name) => {
                if let Some(error) = edge.error.as_ref().filter(|_| is_wanted(books, edge)) {
                    *self.failures.entry(error.clone()).or_default() += 1;
                }
            }
            Event::Event(event) if matches!(event.reason.as_str(), "FailedMount" | "FailedMapVolume") => {
                *self.events.entry(event.message.clone()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn rest(&mut self, _books: &Books, _rest: &Rest, report: &mut Report) {
        for (error, failures) in &self.failures {
            report.tried();
            if self.events.get(error).is_none_or(|events| events < failures) {
                report.broken("", "a failed mount has no event", error.as_str());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn the_ladder_doubles_up_to_its_cap() {
        let waits: Vec<f64> = (1..=10).map(|failures| wait_ms(failures) / 1000.0).collect();
        assert_eq!(waits, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0]);
    }

    #[test]
    fn an_attempt_waits_its_time() {
        let rule = &LADDER;
        let early = "tried again before its back-off was over";
        let failed = |name: &str, pod: &str| format!("op start {name} v1/{pod}\nop end {name} v1/{pod} no\n");
        let twice =
            ["wants v1/a yes\n", &failed("volume_mount", "a"), "at 500\n", &failed("volume_mount", "a")];
        let twice = twice.concat();
        let again = "op start volume_mount v1/a\n";
        let unmount = || ["state v1/a VolumeMountUncertain\n", &failed("volume_unmount", "a")].concat();
        keeps(rule, &[&twice, "at 1500\n", again].concat(), &[]);
        keeps(rule, &[&twice, "at 1499\nop start unmount_device v1"].concat(), &[]);
        keeps(rule, &[&twice, "at 600\ndriver registered\n", again].concat(), &[]);
        breaks(rule, early, &[&twice, "at 1499\n", again].concat(), &[]);
        // Success ends the ladder, also that for another pod; unmounts have one for each pod.
        let well =
            |pod: &str| format!("at 9000\nop start volume_mount v1/{pod}\nop end volume_mount v1/{pod}\n");
        keeps(rule, &[&twice, &well("a"), again].concat(), &[]);
        keeps(rule, &[&twice, &well("b"), again].concat(), &[]);
        breaks(rule, early, &[&twice, "at 1499\nop start volume_mount v1/b"].concat(), &[]);
        passes_over(rule, &[&unmount(), "op start volume_unmount v1/b"].concat(), &[]);
        breaks(rule, early, &[&unmount(), "op start volume_unmount v1/a"].concat(), &[]);
        let verify =
            "op start verify_controller_attached_volume v1\nop end verify_controller_attached_volume v1 no\n";
        passes_over(rule, &[verify, "wants v1/a yes\n", verify].concat(), &[]);
        breaks(rule, early, &["wants v1/a yes\n", verify, verify].concat(), &[]);
        // An attempt for a volume that no pod wants any more has not failed, and a forgotten volume is a new one.
        passes_over(rule, &[&failed("volume_mount", "a"), again].concat(), &[]);
        keeps(rule, &[&twice, "wants v1/a -\nwants v1/b yes\nop start volume_mount v1/b"].concat(), &[]);
        let kept = "state v1 DeviceNotMounted\nwants v1/a -\nwants v1/b yes\nop start volume_mount v1/b";
        breaks(rule, early, &[&twice, kept].concat(), &[]);
    }

    /// The persistent volume of a handle.
    fn exists(volume: &str) -> String {
        let source = json!({"spec": {"csi": {"volumeHandle": volume}}});
        format!("api create PersistentVolume pv-{volume} case {source}\n")
    }

    /// A change of a claim's resize status and size.
    fn says(volume: &str, resize: &str, size: &str) -> String {
        let status = json!({
            "allocatedResourceStatuses": {"storage": resize},
            "allocatedResources": {"storage": size},
        });
        let body = json!({"spec": {"volumeName": format!("pv-{volume}")}, "status": status});
        format!("api update {CLAIM} default/{volume} controller {body}\n")
    }

    #[test]
    fn a_turn_to_grow_ends_one_wait() {
        let rule = &LADDER;
        let early = "tried again before its back-off was over";
        let turn = || says("v1", "NodeResizePending", "2Gi");
        let start = "op start volume_fs_resize v1/a\n";
        let failed = [start, "op end volume_fs_resize v1/a no\n"].concat();
        let known = [&exists("v1"), &exists("v2"), "state v1/a VolumeMounted\n"].concat();
        let waits = [&known, &failed, "at 500\n", &failed, "at 600\n"].concat();
        let script = |lines: &[&str]| waits.clone() + &lines.concat();
        breaks(rule, early, &script(&[start]), &[]);
        keeps(rule, &script(&[&turn(), start]), &[]);
        // From the bottom, and once.
        keeps(rule, &script(&[&turn(), &failed, "at 1100\n", start]), &[]);
        breaks(rule, early, &script(&[&turn(), &failed, "at 1099\n", start]), &[]);
        // A repeated status counts once, unless the size differs or another status came in between.
        breaks(rule, early, &script(&[&turn(), &failed, &turn(), start]), &[]);
        keeps(rule, &script(&[&turn(), &failed, &says("v1", "NodeResizePending", "3Gi"), start]), &[]);
        let meanwhile = says("v1", "NodeResizeInProgress", "2Gi");
        keeps(rule, &script(&[&turn(), &meanwhile, &failed, &turn(), start]), &[]);
        breaks(rule, early, &script(&[&turn(), &failed, &meanwhile, start]), &[]);
        // The status of another volume does not end the back-off, nor does one that came before an attempt that worked.
        breaks(rule, early, &script(&[&says("v2", "NodeResizePending", "2Gi"), start]), &[]);
        let worked = ["at 1500\n", start, "op end volume_fs_resize v1/a\n"].concat();
        breaks(rule, early, &script(&[&turn(), &worked, &failed, start]), &[]);
        let mounts = "wants v1/a yes\nop start volume_mount v1/a\nop end volume_mount v1/a no\n";
        breaks(rule, early, &script(&[mounts, &turn(), "op start volume_mount v1/a"]), &[]);
    }

    #[test]
    fn failures_are_told() {
        let rule = &EACH_FAILURE_HAS_AN_EVENT;
        let wanted = "wants v1/a yes\nop start volume_mount v1/a\n";
        let failed = "op end volume_mount v1/a no\n";
        keeps(
            rule,
            &[wanted, "event FailedMount no\n", failed, "op end volume_unmount v1/a no"].concat(),
            &[],
        );
        passes_over(rule, &[wanted, "wants v1/a -\n", failed].concat(), &[]);
        breaks(rule, "a failed mount has no event", &[wanted, failed].concat(), &[]);
        breaks(
            rule,
            "a failed mount has no event",
            &[wanted, "event FailedMount other\n", failed].concat(),
            &[],
        );
    }
}
