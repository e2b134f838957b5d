//! Which operations may run at the same time on one volume, and their order.

use std::collections::BTreeSet;

use crate::event::{Edge, Event, OperationEdge, OperationName, Role, StateChange, TraceLine, World};
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

/// Calls that an operation on the whole volume makes.
const WHOLE: &[&str] = &["NodeStageVolume", "NodePublishVolume", "NodeUnstageVolume", "NodeExpandVolume"];

/// The call of an unmount operation.
const UNMOUNT: &str = "NodeUnpublishVolume";

pub(super) static UNMOUNT_FIRST: Rule = Rule {
    id: "INV-009",
    sentence: "a volume leaves a pod that does not want it any more before it enters another",
    witnesses: &[Witness::Manager, Witness::Operations],
    check: Checked::With(|| Box::new(UnmountFirst::default())),
};

/// The pods that have a volume and want it no more, and whose unmount has not begun: `pod <uid> <volume>`.
#[derive(Default)]
struct UnmountFirst {
    leaving: BTreeSet<String>,
    /// Whether this life may unmount already. One that took over what another left first reads the node's
    /// object, and mounts meanwhile (INV-039, INV-040), and so does one whose pods' claims are slow to come; the
    /// first unmount shows that it has.
    may_unmount: bool,
}

impl Check for UnmountFirst {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::State(change) => self.state(books, change),
            Event::Operation(edge) if edge.edge == Edge::Start => self.start(books, edge, report),
            Event::Process(edge) if edge.who == Role::Node => *self = Self::default(),
            _ => {}
        }
    }
}

impl UnmountFirst {
    fn state(&mut self, books: &Books, change: &StateChange) {
        let gone = change.to.is_empty();
        if change.world == World::Desired && gone && books.actual.contains_key(&change.key) {
            self.leaving.insert(change.key.clone());
        } else if gone || change.world == World::Desired {
            self.leaving.remove(&change.key);
        }
    }

    fn start(&mut self, books: &Books, edge: &OperationEdge, report: &mut Report) {
        match edge.name {
            OperationName::Unmount | OperationName::Unmap => {
                self.may_unmount = true;
                self.leaving.remove(&format!("pod {} {}", edge.pod, edge.volume));
            }
            OperationName::Mount | OperationName::Map => {
                let of_it = format!(" {}", edge.volume);
                let at_once = books.life == 0 && !books.slow_api;
                report.tried();
                if let Some(pod) = self.leaving.iter().find(|key| key.ends_with(&of_it))
                    && (self.may_unmount || at_once)
                {
                    report.broken("", "a volume entered a pod before it had left another", pod.as_str());
                }
            }
            _ => {}
        }
    }
}

pub(super) static ONE_OPERATION_A_VOLUME: Rule = Rule {
    id: "INV-010",
    sentence: "of mounting, expanding and device operations, at most one runs on a volume at a time",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(single_operation_for_each_volume),
};

fn single_operation_for_each_volume(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if !WHOLE.contains(&start.method.as_str()) {
        return;
    }
    report.tried();
    let volume = start.request().volume_id();
    if books.methods_in_flight(volume).any(|method| WHOLE.contains(&method)) {
        report.broken(&start.method, "two operations ran on one volume at the same time", volume);
    }
}

pub(super) static NO_UNMOUNT_DURING_MOUNT: Rule = Rule {
    id: "INV-011",
    sentence: "an unmount never overlaps a mount, an expansion or a device operation of its volume",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(no_unmount_during_mount),
};

fn no_unmount_during_mount(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let volume = start.request().volume_id();
    let mut others = books.methods_in_flight(volume);
    if start.method == UNMOUNT || WHOLE.contains(&start.method.as_str()) {
        report.tried();
    }
    let broken = match start.method.as_str() {
        UNMOUNT => others.any(|other| WHOLE.contains(&other)),
        whole if WHOLE.contains(&whole) => others.any(|other| other == UNMOUNT),
        _ => false,
    };
    if broken {
        report.broken(&start.method, "an unmount overlapped another operation of its volume", volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps};

    #[test]
    fn unmounts_go_first() {
        let rule = &UNMOUNT_FIRST;
        let moved = "wants v1/a yes\nstate v1/a VolumeMounted\nwants v1/b yes\nwants v1/a -\n";
        let out = "op start volume_unmount v1/a\n";
        let into = "op start volume_mount v1\n";
        keeps(rule, &[moved, out, into].concat(), &[]);
        // A failed unmount blocks the other pod only while it runs.
        keeps(rule, &[moved, out, "op end volume_unmount v1/a no\n", into].concat(), &[]);
        keeps(rule, &["wants v1/a yes\nstate v2/a VolumeMounted\nwants v1/a -\n", into].concat(), &[]);
        let early = "a volume entered a pod before it had left another";
        breaks(rule, early, &[moved, into, out].concat(), &[]);
        // A second life mounts before it may unmount, and when it has unmounted it may.
        let second = ["node kill\nnode start\n", moved].concat();
        keeps(rule, &[&second, into, out].concat(), &[]);
        let slow = ["step api slow\n", moved].concat();
        keeps(rule, &[&slow, into, out].concat(), &[]);
        let other = "op start volume_unmount v2/c\n";
        breaks(rule, early, &[&second, other, into, out].concat(), &[]);
        breaks(rule, early, &[&slow, other, into, out].concat(), &[]);
    }

    #[test]
    fn operations_on_a_volume_do_not_overlap() {
        let rule = &ONE_OPERATION_A_VOLUME;
        keeps(rule, "stage v1 begins\nstage v2 begins\nstage v1 ends\nstage v2 ends", &[]);
        keeps(rule, "publish v1 a\nunpublish v1 a begins\nunpublish v1 b begins", &[]);
        // A call of a node that was killed belongs to no operation of the next one.
        keeps(rule, "stage v1 begins\nnode kill\nnode start\nstage v1", &[]);
        let overlap = "two operations ran on one volume at the same time";
        breaks(rule, overlap, "publish v1 a begins\npublish v1 b", &[]);
        breaks(rule, overlap, "publish v1 a begins\nexpand v1 a", &[]);
        breaks(rule, overlap, "unstage v1 begins\nstage v1", &[]);
    }

    #[test]
    fn unmounts_keep_away_from_the_rest() {
        let rule = &NO_UNMOUNT_DURING_MOUNT;
        keeps(rule, "unpublish v1 a begins\nunpublish v1 b begins\npublish v2 a", &[]);
        let overlap = "an unmount overlapped another operation of its volume";
        breaks(rule, overlap, "publish v1 a begins\nunpublish v1 b", &[]);
        breaks(rule, overlap, "unpublish v1 b begins\npublish v1 a", &[]);
        breaks(rule, overlap, "unpublish v1 a begins\nunstage v1", &[]);
    }
}
