//! Failures that are known: the status of a case that a manifest, or the case itself, expects to fail.

use harness::manifest::{Day, ExpectedFailure};
use harness::printable::printable;

use crate::event::{CaseReport, Status};

/// Applies what the manifest says of a case. After the last day of an expected failure it counts as any other.
pub(super) fn apply(report: &mut CaseReport, known: &ExpectedFailure, today: &Day) {
    if known.holds_on(today) || report.status == Status::Passed {
        return expect(report, &known.reason);
    }
    if let (Some(last), true) = (&known.until, report.status.is_bad()) {
        let reason = printable(&known.reason);
        report.reasons.insert(0, format!("this failure was expected until {last}: {reason}"));
    }
}

pub(super) fn expect(report: &mut CaseReport, reason: &str) {
    report.status = match report.status {
        Status::Passed => Status::Xpass,
        // An error is no expected failure: the case could not begin, or the fault is volproof's.
        Status::Error => Status::Error,
        _ => Status::Xfail,
    };
    report.reasons = vec![printable(reason).into_owned()];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(until: &str, status: Status, expected: Status, reason: &str) {
        let day = |text: &str| Day::try_from(text.to_owned()).unwrap();
        let known = ExpectedFailure { reason: "issue 41".to_owned(), until: Some(day(until)) };
        let mut report = CaseReport::sample("csi::a", status);
        apply(&mut report, &known, &day("2027-03-31"));
        assert_eq!((report.status, report.reasons.concat().as_str()), (expected, reason), "{until}");
    }

    #[test]
    fn failure_counts_again_after_its_last_day() {
        check("2027-03-31", Status::Failed, Status::Xfail, "issue 41");
        let reason = "this failure was expected until 2027-03-30: issue 41";
        check("2027-03-30", Status::Failed, Status::Failed, reason);
        check("2027-03-30", Status::Leaked, Status::Leaked, reason);
    }

    #[test]
    fn success_is_not_expected_on_any_day() {
        check("2027-03-31", Status::Passed, Status::Xpass, "issue 41");
        check("2027-03-30", Status::Passed, Status::Xpass, "issue 41");
    }
}
