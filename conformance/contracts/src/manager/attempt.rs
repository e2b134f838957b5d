//! The actual state after a failed mount: unchanged if the driver was not called, uncertain if the volume did not grow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::event::{
    Disturbance, Edge, EffectKind, Event, OperationEdge, OperationName, Role, RpcEnd, TraceLine, World,
};
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

use super::staging::{handle, pod_and_handle};

/// Operations that mount or map a volume for a pod.
const MOUNTS: &[OperationName] = &[OperationName::Mount, OperationName::Map];

/// Calls that may change a volume on the node.
const RISKS: &[&str] = &["NodeStageVolume", "NodePublishVolume", "NodeExpandVolume"];

/// The start or end of a mount for a pod, and the handle of its CSI volume.
fn mount_edge(line: &TraceLine, edge: Edge) -> Option<(&OperationEdge, &str)> {
    let Event::Operation(operation) = &line.event else { return None };
    let volume = handle(&operation.volume)?;
    (operation.edge == edge && MOUNTS.contains(&operation.name)).then_some((operation, volume))
}

fn pod_key(edge: &OperationEdge) -> String {
    format!("pod {} {}", edge.pod, edge.volume)
}

pub(super) static NOTHING_RISKED: Rule = Rule {
    id: "INV-021",
    sentence: "an attempt that ended before it had asked the driver for anything changes nothing in the books",
    witnesses: &[Witness::Rpc, Witness::File, Witness::Manager, Witness::Operations],
    check: Checked::With(|| Box::new(NothingRisked::default())),
};

/// The mounts under way without one of the calls of [`RISKS`] yet, by volume: a volume has one operation at a time.
#[derive(Default)]
struct NothingRisked {
    attempts: BTreeMap<String, Attempt>,
}

struct Attempt {
    pod: String,
    /// The states of the volume and of the pod at its start.
    before: [String; 2],
    /// The paths that were made since, for any volume.
    made: Vec<String>,
    /// Whether the kernel has failed at one of these paths.
    kernel_failed: bool,
}

impl Attempt {
    fn kernel_failed_at(&mut self, path: &str) {
        let path = Path::new(path);
        let concerns = |made: &String| path.starts_with(made) || Path::new(made).starts_with(path);
        self.kernel_failed |= self.made.iter().any(concerns);
    }

    /// Whether the attempt failed, left no path, and changed a state all the same.
    fn changed_the_books(self, books: &Books, end: &OperationEdge) -> bool {
        // A path that the kernel failed to make or to remove may exist, and then the books have it as uncertain.
        let failed_without_kernel = end.error.as_ref().is_some_and(|error| !error.contains("os error"));
        let path_left = self.kernel_failed || self.made.iter().any(|path| books.entries.contains_key(path));
        let ([volume, pod], [volume_before, pod_before]) = (states(books, end), self.before);
        // A driver without NodeStageVolume is not called, and the volume counts as staged.
        let changed = pod != pod_before || volume != volume_before && volume != "DeviceGloballyMounted";
        failed_without_kernel && !path_left && changed
    }
}

/// The states of a volume and of its mount for a pod, without details.
fn states(books: &Books, edge: &OperationEdge) -> [String; 2] {
    [format!("volume {}", edge.volume), pod_key(edge)].map(|key| {
        let state = books.actual.get(&key).map_or("", String::as_str);
        state.split(' ').next().unwrap_or_default().to_owned()
    })
}

impl Check for NothingRisked {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        if let Some((edge, volume)) = mount_edge(line, Edge::Start) {
            let (pod, before) = (edge.pod.to_string(), states(books, edge));
            let attempt = Attempt { pod, before, made: Vec::new(), kernel_failed: false };
            self.attempts.insert(volume.to_owned(), attempt);
        } else if let Some((edge, volume)) = mount_edge(line, Edge::End) {
            let Some(attempt) = self.attempts.remove(volume) else { return };
            report.tried();
            if attempt.changed_the_books(books, edge) {
                report.broken("", "an attempt that risked nothing changed the books", pod_key(edge));
            }
        }
        match &line.event {
            Event::RpcStart(start) if RISKS.contains(&start.method.as_str()) => {
                self.attempts.remove(start.request().volume_id());
            }
            Event::Effect(effect)
                if matches!(effect.effect, EffectKind::Mkdir | EffectKind::Write | EffectKind::Link) =>
            {
                self.attempts.values_mut().for_each(|attempt| attempt.made.push(effect.path.clone()));
            }
            // A kernel that fails on order may have removed the path although it reports an error.
            Event::Disturbed(Disturbance::StepFailed { path, .. }) => {
                self.attempts.values_mut().for_each(|attempt| attempt.kernel_failed_at(path));
            }
            // Another pod is found to have the volume: no attempt says that, but recovery, of both the volume and the pod.
            Event::State(change) if change.world == World::Actual && change.from.is_empty() => {
                let Some((pod, volume)) = pod_and_handle(&change.key) else { return };
                self.attempts.retain(|tried, attempt| tried != volume || attempt.pod == pod);
            }
            Event::Process(edge) if edge.who == Role::Node => self.attempts.clear(),
            _ => {}
        }
    }
}

pub(super) static NOT_GROWN_IS_UNCERTAIN: Rule = Rule {
    id: "INV-067",
    sentence: "a mount that failed to grow its volume leaves the pod waiting and the volume uncertain",
    witnesses: &[Witness::Rpc, Witness::Manager, Witness::Operations],
    check: Checked::With(|| Box::new(NotGrownIsUncertain::default())),
};

/// The mounts under way whose expansion has failed, by their volumes, and whether the pod had the volume before.
#[derive(Default)]
struct NotGrownIsUncertain {
    had: BTreeMap<String, bool>,
    failed: BTreeSet<String>,
}

impl Check for NotGrownIsUncertain {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        if let Some((edge, volume)) = mount_edge(line, Edge::Start) {
            let had =
                books.actual.get(&pod_key(edge)).is_some_and(|state| state.starts_with("VolumeMounted"));
            self.failed.remove(volume);
            self.had.insert(volume.to_owned(), had);
        } else if let Some((edge, volume)) = mount_edge(line, Edge::End) {
            let had = self.had.remove(volume) == Some(true);
            let failed = self.failed.remove(volume);
            if failed {
                report.tried();
            }
            let state = books.actual.get(&pod_key(edge));
            let uncertain = state.is_some_and(|state| state.contains("Uncertain"));
            if failed && edge.error.is_some() && !had && !uncertain {
                report.broken(
                    "NodeExpandVolume",
                    "a volume that was not grown is not uncertain",
                    pod_key(edge),
                );
            }
        }
        match &line.event {
            Event::RpcEnd(end) if end.method == "NodeExpandVolume" => self.expanded(books, end),
            Event::Process(edge) if edge.who == Role::Node => *self = Self::default(),
            _ => {}
        }
    }
}

impl NotGrownIsUncertain {
    fn expanded(&mut self, books: &Books, end: &RpcEnd) {
        // FAILED_PRECONDITION is a final error: the volume is in use and did not grow.
        let failed = !matches!(end.code.as_str(), "OK" | "FailedPrecondition");
        let Some(call) = books.calls.get(&end.id).filter(|call| call.life == books.life) else { return };
        if failed && self.had.contains_key(call.volume()) {
            self.failed.insert(call.volume().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn attempt_without_risk_changes_no_state() {
        let rule = &NOTHING_RISKED;
        let begin = "state v1 DeviceNotMounted\nop start volume_mount v1/a\n";
        let end = "op end volume_mount v1/a driver not registered\n";
        let doubt = "state v1/a VolumeMountUncertain\n";
        let changed = "an attempt that risked nothing changed the books";
        keeps(rule, &[begin, end].concat(), &[]);
        keeps(rule, &[begin, doubt, "state v1/a -\n", end].concat(), &[]);
        passes_over(rule, &[begin, "publish v1 a Aborted\n", doubt, end].concat(), &[]);
        keeps(rule, &[begin, doubt, "op end volume_mount v1/a"].concat(), &[]);
        keeps(rule, &[begin, doubt, "op end volume_mount v1/a no space (os error 28)"].concat(), &[]);
        keeps(rule, &[begin, "write data:v1\n", doubt, end].concat(), &[]);
        keeps(rule, &[begin, "state v1 DeviceGloballyMounted\n", end].concat(), &[]);
        let removed = "remove /kept/v1\n";
        let made = [begin, "write /kept/v1\n"].concat();
        keeps(rule, &[&made, "step fail remove_tree /kept\n", removed, doubt, end].concat(), &[]);
        breaks(rule, changed, &[&made, "step fail remove_tree /else\n", removed, doubt, end].concat(), &[]);
        breaks(rule, changed, &[begin, "write data:v1\nremove data:v1\n", doubt, end].concat(), &[]);
        breaks(rule, changed, &[begin, doubt, end].concat(), &[]);
        breaks(rule, changed, &[begin, "state v1 DeviceMountUncertain\n", end].concat(), &[]);
        let found = "state v1/b VolumeMountUncertain\n";
        passes_over(rule, &[begin, "state v1 DeviceMountUncertain\n", found, end].concat(), &[]);
        let known = [found, begin].concat();
        breaks(rule, changed, &[&known, "state v1 DeviceMountUncertain\n", end].concat(), &[]);
        let had = ["state v1/a VolumeMounted\n", begin].concat();
        breaks(rule, changed, &[&had, "state v1/a -\n", end].concat(), &[]);
    }

    #[test]
    fn mount_without_growth_is_uncertain() {
        let rule = &NOT_GROWN_IS_UNCERTAIN;
        let begin = "op start volume_mount v1/a\npublish v1 a\n";
        let end = "op end volume_mount v1/a no\n";
        let doubt = "state v1/a VolumeMountUncertain\n";
        let wrong = "a volume that was not grown is not uncertain";
        keeps(rule, &[begin, "expand v1 a Internal\n", doubt, end].concat(), &[]);
        passes_over(rule, &[begin, "expand v1 a FailedPrecondition\n", end].concat(), &[]);
        passes_over(rule, &[begin, end, "expand v1 a Internal\n", begin, end].concat(), &[]);
        keeps(rule, &["state v1/a VolumeMounted\n", begin, "expand v1 a Internal\n", end].concat(), &[]);
        breaks(rule, wrong, &[begin, "expand v1 a Internal\n", end].concat(), &[]);
        let mounted = "state v1/a VolumeMounted\n";
        breaks(rule, wrong, &[begin, "expand v1 a Internal\n", mounted, end].concat(), &[]);
    }
}
