//! The reasons why cases were skipped: one line for each reason, with the number of its cases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use super::line::{Palette, count};
use crate::event::{CaseReport, RunRecord, Status};

/// The lines about all skipped cases of a run, the most frequent reason first.
pub(super) struct SkipLines<'a>(pub(super) Palette, pub(super) &'a RunRecord);

impl Display for SkipLines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(palette, run) = *self;
        let skipped = || run.cases.iter().filter(|case| case.status.is_skip());
        let mut groups: BTreeMap<(&str, &str), Vec<&CaseReport>> = BTreeMap::new();
        for case in skipped() {
            let reason = first_reason(case);
            groups.entry((lacking(case.status, reason), reason)).or_default().push(case);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, cases)| std::cmp::Reverse(cases.len()));
        let quiet = palette.quiet();
        // Further reasons, such as that no guest could be used, are the same for most of these cases: each is shown once.
        let mut shown: BTreeSet<&str> = groups.iter().map(|((_, reason), _)| *reason).collect();
        for ((lacking, reason), cases) in &groups {
            let number = count(cases.len(), "case");
            writeln!(f, "{quiet}{:>12}{quiet:#} {number}: {lacking}{reason}", "Skipped")?;
            for other in cases.iter().flat_map(|case| case.reasons.iter().skip(1)) {
                if shown.insert(other) {
                    writeln!(f, "{:12} {quiet}  and: {other}{quiet:#}", "")?;
                }
            }
        }
        Ok(())
    }
}

/// The words before a reason that say whether the driver or the machine lacks it.
fn lacking(status: Status, reason: &str) -> &'static str {
    let is_of_driver = status == Status::SkippedDriver;
    match reason.chars().next() {
        _ if !is_of_driver => "this machine: ",
        // The reason names the part itself.
        _ if reason.starts_with("the ") => "",
        // The reason begins with a call, such as CreateVolume.
        Some(letter) if letter.is_uppercase() => "the driver's ",
        _ => "the driver ",
    }
}

fn first_reason(case: &CaseReport) -> &str {
    case.reasons.first().map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_names_the_driver_or_the_machine_once() {
        let line = |status, reason: &str| format!("{}{reason}", lacking(status, reason));
        for (reason, expected) in [
            ("does not report EXPAND_VOLUME", "the driver does not report EXPAND_VOLUME"),
            ("the driver has no CreateVolume", "the driver has no CreateVolume"),
            ("the manifest names none", "the manifest names none"),
            ("CreateVolume refuses block volumes", "the driver's CreateVolume refuses block volumes"),
        ] {
            assert_eq!(line(Status::SkippedDriver, reason), expected);
        }
        assert_eq!(line(Status::SkippedHost, "no nfsd"), "this machine: no nfsd");
    }
}
