//! Promises about every answer, from the node and from controllers alike.

use crate::csi::Response;
use crate::event::{DriverAnswer, Event, TraceLine};
use crate::rule::{Checked, Rule, Witness};

use super::said_by_driver;

/// An answer of the driver's own that the proxy has not touched, and that its caller has waited for.
pub(super) fn of_driver(line: &TraceLine) -> Option<DriverAnswer<'_>> {
    match &line.event {
        Event::RpcEnd(end) if end.abandoned || said_by_driver(line).is_none() => None,
        event => DriverAnswer::by(event),
    }
}

/// The method and the response of an OK answer.
pub(super) fn good(line: &TraceLine) -> Option<(&str, Response<'_>)> {
    let answer = of_driver(line).filter(DriverAnswer::is_ok)?;
    Some((answer.method, Response::of(answer.resp)))
}

pub(super) static SNAPSHOT: Rule = Rule {
    id: "DRV-144",
    sentence: "a snapshot says its id, its source and when it was taken, and whether it can be used",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|_, line, report| {
        let Some((method, answer)) = good(line) else { return };
        let Some(missing) = answer.missing_of_snapshot(method) else { return };
        report.tried();
        if let Some(field) = missing {
            report.broken(method, "a snapshot lacks a field that CSI requires", field);
        }
    }),
};

pub(super) static COMPLETE: Rule = Rule {
    id: "DRV-170",
    sentence: "an answer has each field that CSI requires",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|_, line, report| {
        let Some((method, answer)) = good(line) else { return };
        report.tried();
        if let Some(field) = answer.missing(method) {
            report.broken(method, "an answer lacks a field that CSI requires", field);
        }
    }),
};

pub(super) static WELL_IN_WORDS: Rule = Rule {
    id: "DRV-088",
    sentence: "the condition of a volume that is well has a message",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|_, line, report| {
        let Some((method, answer)) = good(line) else { return };
        let Some(is_silent) = answer.is_well_without_words() else { return };
        report.tried();
        if is_silent {
            report.broken(method, "the condition of a volume that is well has no message", "");
        }
    }),
};

pub(super) static NO_NEGATIVE_SIZE: Rule = Rule {
    id: "DRV-171",
    sentence: "no size and no number of volumes in an answer is negative",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|_, line, report| {
        let Some((method, answer)) = good(line) else { return };
        let Some(negative) = answer.negative() else { return };
        report.tried();
        if let Some(number) = negative {
            report.broken(method, "a number in an answer is negative", number);
        }
    }),
};

/// Codes that gRPC libraries answer by themselves, some without a message: for a method that is not served, a lost
/// connection, and an expired deadline.
const BY_LIBRARIES: [&str; 4] = ["Unimplemented", "Unavailable", "DeadlineExceeded", "Canceled"];

pub(super) static ERRORS_IN_WORDS: Rule = Rule {
    id: "DRV-172",
    sentence: "an error says in words what went wrong",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|_, line, report| {
        let failed = |answer: &DriverAnswer<'_>| !answer.is_ok() && !BY_LIBRARIES.contains(&answer.code);
        let Some(error) = of_driver(line).filter(failed) else { return };
        report.tried();
        if error.message.trim().is_empty() {
            report.broken(error.method, "an error has no message", error.code);
        }
    }),
};

/// DRV-182. Only calls that a case makes say whether there are details.
pub(super) static NO_DETAILS: Rule = Rule {
    id: "DRV-182",
    sentence: "the status of an error has no details",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|_, line, report| {
        let Event::DirectCall(call) = &line.event else { return };
        let failed = call.answer.as_ref().filter(|answer| answer.code != "OK");
        let Some(failed) = failed.filter(|answer| !BY_LIBRARIES.contains(&&*answer.code)) else { return };
        report.tried();
        if failed.details {
            report.broken(&failed.method, "the status of an error has details", &failed.code);
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn snapshot_has_its_creation_time() {
        let rule = &SNAPSHOT;
        let taken = |time: &str| {
            format!(
                r#"calls CreateSnapshot {{}} {{"snapshot":{{"snapshotId":"s","sourceVolumeId":"v"{time}}}}} OK"#
            )
        };
        keeps(rule, &taken(r#","creationTime":"2026-01-01T00:00:00Z""#), &[]);
        breaks(rule, "a snapshot lacks a field that CSI requires", &taken(""), &[]);
        passes_over(rule, "calls CreateSnapshot {} {} Internal", &[]);
    }

    #[test]
    fn answer_has_what_csi_requires() {
        let rule = &COMPLETE;
        keeps(rule, r#"calls CreateVolume {} {"volume":{"volumeId":"v"}} OK"#, &[]);
        breaks(
            rule,
            "an answer lacks a field that CSI requires",
            r#"calls CreateVolume {} {"volume":{}} OK"#,
            &[],
        );
        passes_over(rule, "calls CreateVolume {} {} Internal", &[]);
    }

    /// The letter of CSI demands a message of both; only where something is wrong there is anything to say.
    #[test]
    fn condition_has_words_above_all_if_it_is_abnormal() {
        let stats = |condition: &str| {
            format!(r#"calls NodeGetVolumeStats {{}} {{"volumeCondition":{{{condition}}}}} OK"#)
        };
        let abnormal = stats(r#""abnormal":true"#);
        breaks(&COMPLETE, "an answer lacks a field that CSI requires", &abnormal, &[]);
        passes_over(&WELL_IN_WORDS, &abnormal, &[]);
        let well = stats("");
        keeps(&COMPLETE, &well, &[]);
        breaks(&WELL_IN_WORDS, "the condition of a volume that is well has no message", &well, &[]);
        keeps(&WELL_IN_WORDS, &stats(r#""message":"mounted""#), &[]);
    }

    #[test]
    fn sizes_are_not_negative() {
        let rule = &NO_NEGATIVE_SIZE;
        let limit = |limit: &str| {
            format!(r#"calls NodeGetInfo {{}} {{"nodeId":"n","maxVolumesPerNode":"{limit}"}} OK"#)
        };
        keeps(rule, &limit("8"), &[]);
        passes_over(rule, r#"calls NodeGetInfo {} {"nodeId":"n"} OK"#, &[]);
        breaks(rule, "a number in an answer is negative", &limit("-1"), &[]);
    }

    #[test]
    fn errors_have_words() {
        let rule = &ERRORS_IN_WORDS;
        let silent = |code: &str| format!("calls CreateVolume {{}} null {code}");
        passes_over(rule, &silent("OK"), &[]);
        passes_over(rule, &silent("Unimplemented"), &[]);
        passes_over(rule, &silent("Unavailable"), &[]);
        breaks(rule, "an error has no message", &silent("Internal"), &[]);
    }

    #[test]
    fn errors_have_no_details() {
        let rule = &NO_DETAILS;
        keeps(rule, "directly CreateVolume Internal", &[]);
        breaks(rule, "the status of an error has details", "directly CreateVolume Internal details", &[]);
        passes_over(rule, "directly CreateVolume OK", &[]);
        // The gRPC library answers these by itself.
        passes_over(rule, "directly CreateVolume Unimplemented details", &[]);
    }
}
