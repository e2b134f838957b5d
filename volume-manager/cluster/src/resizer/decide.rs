//! What the size that a claim asks for calls for: decided without a call (docs/behaviour/09-controllers.md, section 6).

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

/// The next step for a claim that is bound. `node_only` says that the driver's controller has no part in growing.
pub(super) fn next(claim: &Claim, node_only: bool) -> Step {
    let requested = claim.spec.request;
    let allocated = claim.status.allocated.unwrap_or(requested);
    match claim.status.resize.as_str() {
        // The controller's part is done, and the node's may be under way.
        NODE_PENDING | NODE_IN_PROGRESS => Step::Nothing,
        // The node needs the controller's word again before it tries once more.
        NODE_INFEASIBLE if node_only => Step::Grow(requested),
        // A size that may be there already is seen through, whatever is asked for by now.
        NODE_INFEASIBLE | IN_PROGRESS => Step::Grow(allocated),
        // After a refusal for good, a user recovers by asking for less.
        _ if requested > claim.status.capacity => Step::Grow(requested),
        _ => Step::Nothing,
    }
}

pub(super) fn is_given_up_by_node(claim: &Claim) -> bool {
    claim.status.resize == NODE_INFEASIBLE
}

/// What others write that the step depends on.
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
            ("as large as asked", claim(1, 1, "", None), Step::Nothing),
            ("larger", claim(2, 1, "", None), Step::Grow(Bytes(2))),
            ("smaller", claim(1, 2, "", None), Step::Nothing),
            ("cut off", claim(2, 1, IN_PROGRESS, Some(2)), Step::Grow(Bytes(2))),
            ("cut off, and more is asked since", claim(3, 1, IN_PROGRESS, Some(2)), Step::Grow(Bytes(2))),
            ("refused for good", claim(3, 1, INFEASIBLE, Some(3)), Step::Grow(Bytes(3))),
            ("refused for good, less is asked", claim(2, 1, INFEASIBLE, Some(3)), Step::Grow(Bytes(2))),
            ("refused for good, growth is given up", claim(1, 1, INFEASIBLE, Some(3)), Step::Nothing),
            ("the node's turn", claim(2, 1, NODE_PENDING, Some(2)), Step::Nothing),
            ("the node is at it", claim(2, 1, NODE_IN_PROGRESS, Some(2)), Step::Nothing),
        ];
        rows.iter().for_each(|(row, claim, step)| assert_eq!(next(claim, false), *step, "{row}"));
    }

    #[test]
    fn growth_that_the_node_gave_up_is_begun_again() {
        let claim = claim(2, 1, NODE_INFEASIBLE, Some(3));
        assert_eq!(next(&claim, false), Step::Grow(Bytes(3)));
        assert_eq!(next(&claim, true), Step::Grow(Bytes(2)), "the driver's controller has grown nothing");
    }
}
