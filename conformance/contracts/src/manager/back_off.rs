//! Failures: how long until the next attempt, and who is told.

use std::collections::BTreeMap;

use crate::event::{Event, OperationEdge, ProcessEdge, TraceLine};
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

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
    fn event(&mut self, _books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::Operation(edge) => self.operation(edge, line.t_ms, report),
            // A driver that registers ends the wait of its operations, and a new node has no memory of one.
            Event::Process(ProcessEdge { edge, .. }) if edge != "exit" => self.failed.clear(),
            _ => {}
        }
    }
}

impl Ladder {
    fn operation(&mut self, edge: &OperationEdge, now: f64, report: &mut Report) {
        let key = (edge.name.clone(), edge.volume.clone(), edge.pod.clone());
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
            (_, Some(_)) => {
                let (failures, since) = self.failed.entry(key).or_default();
                *failures += 1;
                *since = now;
            }
        }
    }
}

/// How long to wait after so many failures in a row.
fn wait_ms(failures: u32) -> f64 {
    (500.0 * 2f64.powi(failures.saturating_sub(1).min(16) as i32)).min(CAP_MS)
}

/// INV-029.
pub(super) static EVERY_FAILURE_IS_TOLD: Rule = Rule {
    id: "INV-029",
    sentence: "each failed attempt to mount or map is told as an event on the pod",
    witnesses: &[Witness::Operations, Witness::Api],
    check: Checked::With(|| Box::new(EveryFailureIsTold::default())),
};

#[derive(Default)]
struct EveryFailureIsTold {
    failures: u64,
    told: u64,
}

impl Check for EveryFailureIsTold {
    fn event(&mut self, _books: &Books, line: &TraceLine, _report: &mut Report) {
        match &line.event {
            Event::Operation(edge) if matches!(edge.name.as_str(), "volume_mount" | "map_volume") => {
                self.failures += u64::from(edge.error.is_some());
            }
            Event::Event(event) if matches!(event.reason.as_str(), "FailedMount" | "FailedMapVolume") => {
                self.told += 1;
            }
            _ => {}
        }
    }

    fn rest(&mut self, _books: &Books, _rest: &Rest, report: &mut Report) {
        if self.told < self.failures {
            let detail = format!("{} failures, {} events", self.failures, self.told);
            report.broken("", "a failed mount was not told", detail);
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
        let twice = "op start volume_mount v1\nop end volume_mount v1 no\nat 500\n\
                     op start volume_mount v1\nop end volume_mount v1 no\n";
        let again = "op start volume_mount v1";
        keeps(rule, &[twice, "at 1500\n", again].concat(), &[]);
        keeps(rule, &[twice, "at 1499\nop start unmount_device v1"].concat(), &[]);
        keeps(rule, &[twice, "at 600\ndriver registered\n", again].concat(), &[]);
        breaks(rule, "tried again before its back-off was over", &[twice, "at 1499\n", again].concat(), &[]);
        // Success ends the ladder.
        let well = "at 9000\nop start volume_mount v1\nop end volume_mount v1\n";
        keeps(rule, &[twice, well, again].concat(), &[]);
    }

    #[test]
    fn failures_are_told() {
        let rule = &EVERY_FAILURE_IS_TOLD;
        keeps(rule, "op end volume_mount v1 no\nevent FailedMount\nop end volume_unmount v1/a no", &[]);
        breaks(rule, "a failed mount was not told", "op end map_volume b1 no", &[]);
    }
}
