//! The class of attributes that a volume is changed to next; pure functions.

use api::storage::ModifyProgress;
use api::{Claim, ClaimPhase};

/// The class to change the claim's volume to, if it is to change. `certain` says that the last call is known to have
/// changed nothing.
pub(super) fn next(claim: &Claim, certain: bool) -> Option<String> {
    if claim.status.phase != ClaimPhase::Bound || claim.meta.is_deleting() {
        return None;
    }
    let wanted = &claim.spec.attributes_class;
    let begun = claim.status.modifying.as_ref();
    if begun.is_none() && *wanted == claim.status.attributes_class {
        return None;
    }
    let in_progress = begun.filter(|modifying| modifying.progress == ModifyProgress::InProgress);
    match in_progress {
        // The volume may have the attributes of this class already.
        Some(modifying) if !certain || wanted.is_empty() => Some(modifying.target.clone()),
        _ => Some(wanted.clone()).filter(|wanted| !wanted.is_empty()),
    }
}

/// The fields of a claim that other writers set and that the next change depends on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    wanted: &'a str,
    has: &'a str,
    volume: &'a str,
    phase: ClaimPhase,
    deleting: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn of(claim: &'a Claim) -> Self {
        Self {
            wanted: &claim.spec.attributes_class,
            has: &claim.status.attributes_class,
            volume: &claim.spec.volume,
            phase: claim.status.phase,
            deleting: claim.meta.is_deleting(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ModifyProgress::{InProgress, Infeasible, Pending};
    use api::storage::Modifying;

    use super::*;

    fn claim(wanted: &str, has: &str, begun: Option<(&str, ModifyProgress)>) -> Claim {
        let mut claim = Claim::default();
        claim.status.phase = ClaimPhase::Bound;
        claim.spec.attributes_class = wanted.to_owned();
        claim.status.attributes_class = has.to_owned();
        claim.status.modifying =
            begun.map(|(target, progress)| Modifying { target: target.to_owned(), progress });
        claim
    }

    #[test]
    fn target_follows_from_class_and_progress() {
        let rows = [
            ("as wanted", claim("a", "a", None), true, ""),
            ("another class", claim("b", "a", None), false, "b"),
            ("begun, outcome unknown", claim("b", "a", Some(("b", InProgress))), false, "b"),
            ("begun, and another is wanted since", claim("c", "a", Some(("b", InProgress))), false, "b"),
            ("refused, and another is wanted since", claim("c", "a", Some(("b", InProgress))), true, "c"),
            ("begun, and none is wanted since", claim("", "a", Some(("b", InProgress))), true, "b"),
            ("infeasible, and another is wanted", claim("c", "a", Some(("b", Infeasible))), false, "c"),
            ("infeasible, and none is wanted", claim("", "", Some(("b", Infeasible))), false, ""),
            ("pending", claim("b", "a", Some(("b", Pending))), false, "b"),
        ];
        for (row, claim, certain, target) in rows {
            assert_eq!(next(&claim, certain).unwrap_or_default(), target, "{row}");
        }
        let unbound = Claim { status: Default::default(), ..claim("b", "", None) };
        assert_eq!(next(&unbound, false), None, "it is made with its class");
    }
}
