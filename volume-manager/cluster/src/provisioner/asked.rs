//! Whether a claim asks for a volume to be made; pure functions.

use api::Claim;

use super::{BEING_CLONED, BEING_MADE};
use crate::annotations;

/// The fields of a claim that other writers set and that the next step depends on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    provisioner: Option<&'a String>,
    node: Option<&'a String>,
    volume: &'a str,
    attributes_class: &'a str,
    deleting: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn of(claim: &'a Claim) -> Self {
        Self {
            provisioner: claim.meta.annotations.get(annotations::PROVISIONER),
            node: claim.meta.annotations.get(annotations::SELECTED_NODE),
            volume: &claim.spec.volume,
            attributes_class: &claim.spec.attributes_class,
            deleting: claim.meta.is_deleting(),
        }
    }
}

/// The next step for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Make,
    /// Let the claim go: no call for it is open.
    Release,
    Nothing,
}

/// The next step for a claim. `refused` says that the last call is known to have made nothing.
pub(super) fn next(claim: &Claim, driver: &str, refused: bool) -> Step {
    if claim.meta.annotations.get(annotations::PROVISIONER).is_none_or(|asked| asked != driver) {
        return Step::Nothing;
    }
    let kept = claim.meta.has_finalizer(BEING_MADE);
    match (claim.spec.volume.is_empty(), claim.meta.is_deleting()) {
        (true, false) => Step::Make,
        // A call that may have made a volume is seen through, or nothing would delete that volume.
        (true, true) if kept && !refused => Step::Make,
        _ if kept => Step::Release,
        _ => Step::Nothing,
    }
}

/// Whether a claim that is being deleted waits for the end of its copies.
pub(super) fn is_cloned(claim: &Claim) -> bool {
    claim.meta.is_deleting() && claim.meta.has_finalizer(BEING_CLONED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(volume: &str, deleting: bool, kept: bool) -> Claim {
        let mut claim = Claim::default();
        claim.meta.annotations.insert(annotations::PROVISIONER.to_owned(), "a.csi".to_owned());
        claim.meta.deleted = deleting.then(|| "now".to_owned());
        claim.meta.finalizers = kept.then(|| BEING_MADE.to_owned()).into_iter().collect();
        claim.spec.volume = volume.to_owned();
        claim
    }

    #[test]
    fn step_follows_from_volume_deletion_and_outcome() {
        let rows = [
            ("new", claim("", false, false), false, Step::Make),
            ("outcome unknown", claim("", false, true), false, Step::Make),
            ("refused", claim("", false, true), true, Step::Make),
            ("bound", claim("v", false, true), false, Step::Release),
            ("bound, and released", claim("v", false, false), false, Step::Nothing),
            ("deleted before any call", claim("", true, false), false, Step::Nothing),
            ("deleted, outcome unknown", claim("", true, true), false, Step::Make),
            ("deleted, refused", claim("", true, true), true, Step::Release),
            ("deleted when bound", claim("v", true, true), false, Step::Release),
        ];
        for (row, claim, refused, step) in rows {
            assert_eq!(next(&claim, "a.csi", refused), step, "{row}");
            assert_eq!(next(&claim, "b.csi", refused), Step::Nothing, "another driver's");
        }
    }
}
