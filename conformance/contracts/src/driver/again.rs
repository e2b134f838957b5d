//! What a driver promises of a call that is made a second time, because its first answer was lost: the same answer.

use crate::event::TraceLine;
use crate::rule::books::{is_unknown, text};
use crate::rule::{Books, Checked, Report, Rule, Witness};

use super::{answered, differs, was_made_twice};

/// DRV-010.
pub(super) static CREATED: Rule = Rule {
    id: "DRV-010",
    sentence: "creating a volume again by its name and with the same request gives the same volume",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| again(books, line, report, "CreateVolume")),
};

/// DRV-020.
pub(super) static DELETED: Rule = Rule {
    id: "DRV-020",
    sentence: "deleting a volume that is not there is OK",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| again(books, line, report, "DeleteVolume")),
};

/// DRV-030.
pub(super) static ATTACHED: Rule = Rule {
    id: "DRV-030",
    sentence: "publishing a volume to a node again gives the same publish context",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| again(books, line, report, "ControllerPublishVolume")),
};

/// DRV-034.
pub(super) static DETACHED: Rule = Rule {
    id: "DRV-034",
    sentence: "unpublishing from a node again is OK, also when node or volume are gone",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| again(books, line, report, "ControllerUnpublishVolume")),
};

fn again(books: &Books, line: &TraceLine, report: &mut Report, method: &'static str) {
    let Some((call, end)) = answered(books, line, method).filter(|(_, end)| was_made_twice(end)) else {
        return;
    };
    let name = match call.volume() {
        "" => text(&call.request, "name"),
        volume => volume,
    };
    if end.code != "OK" && !is_unknown(&end.code) {
        report.broken(method, "the same call was refused the second time", format!("{name}: {}", end.code));
    } else if differs(end) {
        report.broken(method, "the same call was answered otherwise the second time", name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps};

    const TWICE: &str = "code= delay=0 after=0 forward=false hang=false duplicate=true";

    #[test]
    fn the_second_answer_is_the_first() {
        let rules = [
            (&CREATED, "CreateVolume {\"name\":\"n\"}"),
            (&DELETED, "DeleteVolume {\"volumeId\":\"v\"}"),
            (&ATTACHED, "ControllerPublishVolume {\"volumeId\":\"v\"}"),
            (&DETACHED, "ControllerUnpublishVolume {\"volumeId\":\"v\"}"),
        ];
        for (rule, call) in rules {
            let answered = |code: &str, injected: &str| format!("calls {call} {{}} {code} {injected}");
            keeps(rule, &answered("OK", TWICE), &[]);
            keeps(rule, &answered("Unavailable", TWICE), &[]);
            // Of one that was made once nobody knows whether it was the first.
            keeps(rule, &answered("NotFound", ""), &[]);
            // Here it was not the driver who answered.
            keeps(rule, &answered("Internal", "code=Internal delay=0 hang=false duplicate=true"), &[]);
            breaks(rule, "the same call was refused the second time", &answered("NotFound", TWICE), &[]);
            let otherwise = format!("{TWICE} answers=differ");
            let cause = "the same call was answered otherwise the second time";
            breaks(rule, cause, &answered("OK", &otherwise), &[]);
        }
    }
}
