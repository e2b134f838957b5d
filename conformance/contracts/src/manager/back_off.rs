//! Failed operations: the wait before the next attempt, and the event about each failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{ApiChange, Edge, Event, Lifecycle, OperationEdge, OperationName, ProcessEdge, TraceLine};
use crate::object::Claim;
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

use super::staging::handle;

pub(super) static LADDER: Rule = Rule {
    id: "INV-026",
    sentence: "after the n-th failure in a row an operation waits 0.5, 1, 2, … 64, 122 s, and never less",
    witnesses: &[Witness::Operations, Witness::Clock, Witness::Api],
    check: Checked::With(|| Box::new(Ladder::default())),
};

/// The longest wait, in milliseconds.
const CAP_MS: f64 = 122_000.0;

/// The operation that grows a volume.
const GROW: OperationName = OperationName::Expand;

#[derive(Default)]
struct Ladder {
    /// By operation, volume and pod: the number of failures in a row, and the end of the last one.
    failed: BTreeMap<(OperationName, String, String), (u32, f64)>,
    /// Persistent volumes whose claims have newly become `NodeResizePending`. Each such change ends one wait.
    resize_pending: BTreeSet<String>,
}

impl Check for Ladder {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        if let Some((change, claim)) = line.change_of() {
            self.claim_changed(books, change, claim);
        }
        match &line.event {
            Event::Operation(edge) => self.operation(books, edge, line.t_ms, report),
            // A volume that is in neither book any more is a new one when it comes back.
            Event::State(change) if change.to.is_empty() => {
                let Some(volume) = change.key.rsplit(' ').next() else { return };
                let last = !entries_of(books, volume).any(|key| *key != change.key);
                if last {
                    self.failed.retain(|(_, of, _), _| of != volume);
                }
            }
            // A registration ends the waits of the driver's operations, and a new node knows of none. The trace does
            // not name the driver of an operation, so every wait is forgotten.
            Event::Process(ProcessEdge { edge, .. }) if *edge != Lifecycle::Exit => self.failed.clear(),
            _ => {}
        }
    }
}

impl Ladder {
    /// Records the volume of a claim that newly becomes `NodeResizePending`, or for another size.
    fn claim_changed(&mut self, books: &Books, change: &ApiChange, claim: Claim<'_>) {
        let before = books.object(&change.object).and_then(Claim::pending_node_size);
        let now = claim.pending_node_size();
        if let Some(volume) = claim.volume_name().filter(|_| now.is_some() && now != before) {
            self.resize_pending.insert(volume.to_owned());
        }
    }

    fn operation(&mut self, books: &Books, edge: &OperationEdge, now: f64, report: &mut Report) {
        let key = (edge.name, edge.volume.clone(), pod_of_key(edge).to_owned());
        match (edge.edge, &edge.error) {
            (Edge::Start, _) => {
                let Some((failures, since)) = self.failed.get(&key) else { return };
                report.tried();
                // The times of a trace are rounded, which may make a wait half a millisecond shorter.
                let early = now - since + 0.5 < wait_ms(*failures);
                if early && expanded(books, edge).is_some_and(|volume| self.resize_pending.remove(volume)) {
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
                if let Some(volume) = expanded(books, edge) {
                    self.resize_pending.remove(volume);
                }
            }
            // A mount that stops because its pod is gone has not failed, and its back-off does not grow.
            (Edge::End, Some(_)) if MOUNTS.contains(&edge.name) && !is_wanted(books, edge) => {}
            // The volume is in neither book any more, and so has no back-off.
            (Edge::End, Some(_)) if !is_known(books, &edge.volume) => _ = self.failed.remove(&key),
            (Edge::End, Some(_)) => {
                let (failures, since) = self.failed.entry(key).or_default();
                *failures += 1;
                *since = now;
            }
        }
    }
}

/// The persistent volume that an operation expands, if the trace has its object.
fn expanded<'a>(books: &'a Books, edge: &OperationEdge) -> Option<&'a str> {
    let volume = handle(&edge.volume).filter(|_| edge.name == GROW)?;
    books.persistent_volume(volume).map(|(name, _)| name)
}

/// The entries of a volume in the books of the desired and of the actual state.
fn entries_of<'a>(books: &'a Books, volume: &'a str) -> impl Iterator<Item = &'a String> {
    let entries = books.actual.keys().chain(books.desired.keys());
    entries.filter(move |key| key.rsplit(' ').next() == Some(volume))
}

/// Whether a volume is in either book.
fn is_known(books: &Books, volume: &str) -> bool {
    entries_of(books, volume).next().is_some()
}

/// The operations that mount or map a volume for a pod.
const MOUNTS: &[OperationName] = &[OperationName::Mount, OperationName::Map];

/// Whether the pod of an operation wants its volume.
fn is_wanted(books: &Books, edge: &OperationEdge) -> bool {
    books.desired.contains_key(&format!("pod {} {}", edge.pod, edge.volume))
}

/// The pod in the key of an operation's back-off. Mounts of a CSI volume, which pods may share, have one back-off for
/// all pods: a success for one pod ends it for all.
fn pod_of_key(edge: &OperationEdge) -> &str {
    let unmount = matches!(edge.name, OperationName::Unmount | OperationName::Unmap);
    if unmount || handle(&edge.volume).is_none() { &edge.pod } else { "" }
}

/// The least wait after a number of failures in a row.
fn wait_ms(failures: u32) -> f64 {
    (500.0 * 2f64.powi(failures.saturating_sub(1).min(16) as i32)).min(CAP_MS)
}

pub(super) static EACH_FAILURE_HAS_AN_EVENT: Rule = Rule {
    id: "INV-029",
    sentence: "each failed attempt to mount or map for a pod that wants the volume has an event on the pod",
    witnesses: &[Witness::Operations, Witness::Manager, Witness::Api],
    check: Checked::With(|| Box::new(FailureEvents::default())),
};

/// The numbers of failures and of events by the text of the error. A mount that stops because its pod is gone has not
/// failed, and has no pod for an event.
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
    fn wait_doubles_up_to_its_cap() {
        let waits: Vec<f64> = (1..=10).map(|failures| wait_ms(failures) / 1000.0).collect();
        assert_eq!(waits, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0]);
    }

    #[test]
    fn attempt_before_the_end_of_its_back_off_breaks_the_rule() {
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
        // A success for any pod ends the back-off of mounts; unmounts have a back-off for each pod.
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
        // A mount that its pod no longer wants has not failed; a volume that left both books is a new one.
        passes_over(rule, &[&failed("volume_mount", "a"), again].concat(), &[]);
        keeps(rule, &[&twice, "wants v1/a -\nwants v1/b yes\nop start volume_mount v1/b"].concat(), &[]);
        let kept = "state v1 DeviceNotMounted\nwants v1/a -\nwants v1/b yes\nop start volume_mount v1/b";
        breaks(rule, early, &[&twice, kept].concat(), &[]);
    }

    /// A script line: the persistent volume of a handle is created.
    fn exists(volume: &str) -> String {
        let source = json!({"spec": {"csi": {"volumeHandle": volume}}});
        format!("api create PersistentVolume pv-{volume} case {source}\n")
    }

    /// A script line: a claim's resize status and allocated size change.
    fn resize_status(volume: &str, resize: &str, size: &str) -> String {
        let status = json!({
            "allocatedResourceStatuses": {"storage": resize},
            "allocatedResources": {"storage": size},
        });
        let body = json!({"spec": {"volumeName": format!("pv-{volume}")}, "status": status});
        format!("api update PersistentVolumeClaim default/{volume} controller {body}\n")
    }

    #[test]
    fn newly_pending_resize_ends_one_wait() {
        let rule = &LADDER;
        let early = "tried again before its back-off was over";
        let pending = || resize_status("v1", "NodeResizePending", "2Gi");
        let start = "op start volume_fs_resize v1/a\n";
        let failed = [start, "op end volume_fs_resize v1/a no\n"].concat();
        let known = [&exists("v1"), &exists("v2"), "state v1/a VolumeMounted\n"].concat();
        let waits = [&known, &failed, "at 500\n", &failed, "at 600\n"].concat();
        let script = |lines: &[&str]| waits.clone() + &lines.concat();
        breaks(rule, early, &script(&[start]), &[]);
        keeps(rule, &script(&[&pending(), start]), &[]);
        // The back-off begins again at its shortest wait, and only one wait ends.
        keeps(rule, &script(&[&pending(), &failed, "at 1100\n", start]), &[]);
        breaks(rule, early, &script(&[&pending(), &failed, "at 1099\n", start]), &[]);
        // A repeated status counts only if the size differs or another status came in between.
        breaks(rule, early, &script(&[&pending(), &failed, &pending(), start]), &[]);
        keeps(
            rule,
            &script(&[&pending(), &failed, &resize_status("v1", "NodeResizePending", "3Gi"), start]),
            &[],
        );
        let meanwhile = resize_status("v1", "NodeResizeInProgress", "2Gi");
        keeps(rule, &script(&[&pending(), &meanwhile, &failed, &pending(), start]), &[]);
        breaks(rule, early, &script(&[&pending(), &failed, &meanwhile, start]), &[]);
        // The status of another volume does not end the wait, nor does one from before a success.
        breaks(rule, early, &script(&[&resize_status("v2", "NodeResizePending", "2Gi"), start]), &[]);
        let success = ["at 1500\n", start, "op end volume_fs_resize v1/a\n"].concat();
        breaks(rule, early, &script(&[&pending(), &success, &failed, start]), &[]);
        let mounts = "wants v1/a yes\nop start volume_mount v1/a\nop end volume_mount v1/a no\n";
        breaks(rule, early, &script(&[mounts, &pending(), "op start volume_mount v1/a"]), &[]);
    }

    #[test]
    fn failed_mount_without_its_event_breaks_the_rule() {
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
