//! Why cases were skipped: one line a reason, with the number of cases, instead of a line a case.

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
            groups.entry((lacking(case.status), first_reason(case))).or_default().push(case);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, cases)| std::cmp::Reverse(cases.len()));
        let quiet = palette.quiet();
        for ((lacking, reason), cases) in &groups {
            let cases = count(cases.len(), "case");
            writeln!(f, "{quiet}{:>12}{quiet:#} {cases}: {lacking} {reason}", "Skipped")?;
        }
        // What else was tried for them, such as a guest, failed in the same way for most of them.
        let others: BTreeSet<&str> =
            skipped().flat_map(|case| case.reasons.iter().skip(1)).map(String::as_str).collect();
        let others =
            others.into_iter().filter(|other| !groups.iter().any(|((_, reason), _)| reason == other));
        others.into_iter().try_for_each(|other| writeln!(f, "{:12} {quiet}{other}{quiet:#}", ""))
    }
}

/// Who lacks something.
fn lacking(status: Status) -> &'static str {
    if status == Status::SkippedDriver { "the driver" } else { "this machine:" }
}

fn first_reason(case: &CaseReport) -> &str {
    case.reasons.first().map_or("", String::as_str)
}
