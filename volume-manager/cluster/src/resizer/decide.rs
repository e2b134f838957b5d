//! The next step towards the size that a claim requests; pure functions (docs/behaviour/09-controllers.md, section 6).

use api::{Bytes, Claim};

pub(super) const IN_PROGRESS: &str = "ControllerResizeInProgress";
pub(super) const INFEASIBLE: &str = "ControllerResizeInfeasible";
pub(super) const NODE_PENDING: &str = "NodeResizePending";
const NODE_IN_PROGRESS: &str = "NodeResizeInProgress";
const NODE_INFEASIBLE: &str = "NodeResizeInfeasible";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Have the driver grow the volume to this size.
    Grow(Bytes),
    Nothing,
}

/// The next step for a claim that is bound. With `node_only` only the node expands volumes of the driver.
pub(super) fn next(claim: &Claim, node_only: bool) -> Step {
    let requested = claim.spec.request;
    let allocated = claim.status.allocated.unwrap_or(requested);
    match claim.status.resize.as_str() {
        // The controller's part is done, and the node's may be under way.
        NODE_PENDING | NODE_IN_PROGRESS => Step::Nothing,
        // The node tries again only after the controller has set the claim's status anew.
        NODE_INFEASIBLE if node_only => Step::Grow(requested),
        // The volume may have the allocated size already, so this size is finished first.
        NODE_INFEASIBLE | IN_PROGRESS => Step::Grow(allocated),
        // After a final error, a user recovers by requesting a smaller size.
        _ if requested > claim.status.capacity => Step::Grow(requested),
        _ => Step::Nothing,
    }
}

pub(super) fn is_given_up_by_node(claim: &Claim) -> bool {
    claim.status.resize == NODE_INFEASIBLE
}

/// The fields of a claim that other writers set and that the next step depends on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    request: Bytes,
    volume: &'a str,
    capacity: Bytes,
    given_up_by_node: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn of(claim: &'a Claim) -> Self {
        Self {
            request: claim.spec.request,
            volume: &claim.spec.volume,
            capacity: claim.status.capacity,
            given_up_by_node: is_given_up_by_node(claim),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(request: u64, capacity: u64, resize: &str, allocated: Option<u64>) -> Claim {
        let mut claim = Claim::default();
        claim.spec.request = Bytes(request);
        claim.status.capacity = Bytes(capacity);
        claim.status.resize = resize.to_owned();
        claim.status.allocated = allocated.map(Bytes);
        claim
    }

    #[test]
    fn step_follows_from_sizes_and_progress() {
        let rows = [
            ("as large as requested", claim(1, 1, "", None), Step::Nothing),
            ("larger", claim(2, 1, "", None), Step::Grow(Bytes(2))),
            ("smaller", claim(1, 2, "", None), Step::Nothing),
            ("interrupted", claim(2, 1, IN_PROGRESS, Some(2)), Step::Grow(Bytes(2))),
            (
                "interrupted, and more is requested since",
                claim(3, 1, IN_PROGRESS, Some(2)),
                Step::Grow(Bytes(2)),
            ),
            ("infeasible", claim(3, 1, INFEASIBLE, Some(3)), Step::Grow(Bytes(3))),
            ("infeasible, and less is requested", claim(2, 1, INFEASIBLE, Some(3)), Step::Grow(Bytes(2))),
            ("infeasible, and the old size is requested", claim(1, 1, INFEASIBLE, Some(3)), Step::Nothing),
            ("the node's turn", claim(2, 1, NODE_PENDING, Some(2)), Step::Nothing),
            ("the node is expanding", claim(2, 1, NODE_IN_PROGRESS, Some(2)), Step::Nothing),
        ];
        rows.iter().for_each(|(row, claim, step)| assert_eq!(next(claim, false), *step, "{row}"));
    }

    #[test]
    fn expansion_that_is_infeasible_on_the_node_starts_again() {
        let claim = claim(2, 1, NODE_INFEASIBLE, Some(3));
        assert_eq!(next(&claim, false), Step::Grow(Bytes(3)));
        assert_eq!(
            next(&claim, true),
            Step::Grow(Bytes(2)),
            "the driver's controller has not expanded the volume"
        );
    }
}
