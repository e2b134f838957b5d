//! Failures: how long until the next attempt, and who is told.

use std::collections::BTreeMap;

use crate::event::{Event, OperationEdge, ProcessEdge, TraceLine};
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

use super::attachment::persistent_volume;
use super::staging::handle;

/// INV-026.
pub(super) static LADDER: Rule = Rule {
    id: "INV-026",
    sentence: "after the n-th failure in a row an operation waits 0.5, 1, 2, … 64, 122 s, and never less",
    witnesses: &[Witness::Operations, Witness::Clock],
    check: Checked::With(|| Box::new(Ladder::default())),
};

/// The longest wait, in milliseconds.
const CAP_MS: f64 = 122_000.0;

/// Failures in a row of each operation, and when the last one ended.
#[derive(Default)]
struct Ladder {
    failed: BTreeMap<(String, String, String), (u32, f64)>,
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
            Event::Process(ProcessEdge { edge, .. }) if edge != "exit" => self.failed.clear(),
            // A claim that says that it is the node's turn ends the wait of whoever grows its volume.
            Event::Api(change)
                if change.body["status"]["allocatedResourceStatuses"]["storage"] == "NodeResizePending" =>
            {
                let named = &change.body["spec"]["volumeName"];
                self.failed.retain(|(name, volume, _), _| {
                    let of = handle(volume).and_then(|handle| persistent_volume(books, handle));
                    name != "volume_fs_resize" || of.is_none_or(|(of, _)| named != of)
                });
            }
            _ => {}
        }
    }
}

impl Ladder {
    fn operation(&mut self, books: &Books, edge: &OperationEdge, now: f64, report: &mut Report) {
        let key = (edge.name.clone(), edge.volume.clone(), pod_of_key(edge).to_owned());
        match (edge.edge.as_str(), &edge.error) {
            ("start", _) => {
                let Some((failures, since)) = self.failed.get(&key) else { return };
                // Half a millisecond for what rounding does to the times of a trace.
                if now - since + 0.5 < wait_ms(*failures) {
                    report.broken(
                        "",
                        "tried again before its back-off was over",
                        format!("{} {}", edge.name, edge.volume),
                    );
                }
            }
            (_, None) => _ = self.failed.remove(&key),
            // What stops because its pod has gone has not failed, and climbs no further.
            (_, Some(_)) if MOUNTS.contains(&edge.name.as_str()) && !is_wanted(books, edge) => {}
            // Nor has what ends when the volume has left both books.
            (_, Some(_)) if !is_known(books, &edge.volume) => _ = self.failed.remove(&key),
            (_, Some(_)) => {
                let (failures, since) = self.failed.entry(key).or_default();
                *failures += 1;
                *since = now;
            }
        }
    }
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
const MOUNTS: &[&str] = &["volume_mount", "map_volume"];

/// Whether the pod of an operation wants its volume.
fn is_wanted(books: &Books, edge: &OperationEdge) -> bool {
    books.desired.contains_key(&format!("pod {} {}", edge.pod, edge.volume))
}

/// The pod in the key that an operation climbs its ladder under. Mounts of a volume that pods share have one
/// ladder, whichever pod they are for: a success for one of them ends it for all.
fn pod_of_key(edge: &OperationEdge) -> &str {
    let unmount = matches!(edge.name.as_str(), "volume_unmount" | "unmap_volume");
    if unmount || handle(&edge.volume).is_none() { &edge.pod } else { "" }
}

/// How long to wait after so many failures in a row.
fn wait_ms(failures: u32) -> f64 {
    (500.0 * 2f64.powi(failures.saturating_sub(1).min(16) as i32)).min(CAP_MS)
}

/// INV-029.
pub(super) static EVERY_FAILURE_IS_TOLD: Rule = Rule {
    id: "INV-029",
    sentence: "each failed attempt to mount or map for a pod that wants the volume is told as an event on it",
    witnesses: &[Witness::Operations, Witness::Manager, Witness::Api],
    check: Checked::With(|| Box::new(EveryFailureIsTold::default())),
};

/// How often each text was a failure, and how often it was told. An attempt that stops because its pod went
/// in between has not failed: nothing was risked, and there is nobody to tell.
#[derive(Default)]
struct EveryFailureIsTold {
    failures: BTreeMap<String, u64>,
    told: BTreeMap<String, u64>,
}

impl Check for EveryFailureIsTold {
    fn event(&mut self, books: &Books, line: &TraceLine, _report: &mut Report) {
        match &line.event {
            Event::Operation(edge) if MOUNTS.contains(&edge.name.as_str()) => {
                if let Some(error) = edge.error.as_ref().filter(|_| is_wanted(books, edge)) {
                    *self.failures.entry(error.clone()).or_default() += 1;
                }
            }
            Event::Event(event) if matches!(event.reason.as_str(), "FailedMount" | "FailedMapVolume") => {
                *self.told.entry(event.message.clone()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn rest(&mut self, _books: &Books, _rest: &Rest, report: &mut Report) {
        for (error, failures) in &self.failures {
            if self.told.get(error).is_none_or(|told| told < failures) {
                report.broken("", "a failed mount was not told", error.as_str());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps};

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
        keeps(rule, &[&unmount(), "op start volume_unmount v1/b"].concat(), &[]);
        breaks(rule, early, &[&unmount(), "op start volume_unmount v1/a"].concat(), &[]);
        let verify =
            "op start verify_controller_attached_volume v1\nop end verify_controller_attached_volume v1 no\n";
        keeps(rule, &[verify, "wants v1/a yes\n", verify].concat(), &[]);
        breaks(rule, early, &["wants v1/a yes\n", verify, verify].concat(), &[]);
        // What nobody wanted any more has not failed, and a volume that was forgotten is a new one.
        keeps(rule, &[&failed("volume_mount", "a"), again].concat(), &[]);
        keeps(rule, &[&twice, "wants v1/a -\nwants v1/b yes\nop start volume_mount v1/b"].concat(), &[]);
        let kept = "state v1 DeviceNotMounted\nwants v1/a -\nwants v1/b yes\nop start volume_mount v1/b";
        breaks(rule, early, &[&twice, kept].concat(), &[]);
    }

    #[test]
    fn failures_are_told() {
        let rule = &EVERY_FAILURE_IS_TOLD;
        let wanted = "wants v1/a yes\nop start volume_mount v1/a\n";
        let failed = "op end volume_mount v1/a no\n";
        keeps(
            rule,
            &[wanted, "event FailedMount no\n", failed, "op end volume_unmount v1/a no"].concat(),
            &[],
        );
        keeps(rule, &[wanted, "wants v1/a -\n", failed].concat(), &[]);
        breaks(rule, "a failed mount was not told", &[wanted, failed].concat(), &[]);
        breaks(
            rule,
            "a failed mount was not told",
            &[wanted, "event FailedMount other\n", failed].concat(),
            &[],
        );
    }
}
