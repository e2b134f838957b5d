//! What may run at the same time on one volume, and what may not.

use crate::event::{Event, TraceLine};
use crate::rule::books::text;
use crate::rule::{Books, Checked, Report, Rule, Witness};

/// Calls that an operation on the whole volume makes.
const WHOLE: &[&str] = &["NodeStageVolume", "NodePublishVolume", "NodeUnstageVolume", "NodeExpandVolume"];

/// The call of an operation on one pod's share of it.
const UNMOUNT: &str = "NodeUnpublishVolume";

/// INV-010.
pub(super) static ONE_OPERATION_A_VOLUME: Rule = Rule {
    id: "INV-010",
    sentence: "of mounting, expanding and device operations, at most one runs on a volume at a time",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(one_operation_a_volume),
};

fn one_operation_a_volume(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if !WHOLE.contains(&start.method.as_str()) {
        return;
    }
    let volume = text(&start.req, "volumeId");
    if books.in_flight(volume).any(|call| WHOLE.contains(&call.method.as_str())) {
        report.broken(&start.method, "two operations ran on one volume at the same time", volume);
    }
}

/// INV-011.
pub(super) static NO_UNMOUNT_DURING_MOUNT: Rule = Rule {
    id: "INV-011",
    sentence: "an unmount never overlaps a mount, an expansion or a device operation of its volume",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(no_unmount_during_mount),
};

fn no_unmount_during_mount(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let volume = text(&start.req, "volumeId");
    let mut others = books.in_flight(volume).map(|call| call.method.as_str());
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
    fn one_operation_at_a_time() {
        let rule = &ONE_OPERATION_A_VOLUME;
        keeps(rule, "stage v1 begins\nstage v2 begins\nstage v1 ends\nstage v2 ends", &[]);
        keeps(rule, "publish v1 a\nunpublish v1 a begins\nunpublish v1 b begins", &[]);
        // A call of a life that has ended is nobody's operation any more.
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
