//! The reports of an expansion: events at the pod if it fails while the volume is used, and writes to the claim in their
//! order.

use api::PatchBody;

use super::*;

#[tokio::test]
async fn failed_growth_in_use_is_one_event_of_the_pod() {
    let mut bench = grown("NodeResizePending");
    bench.driver.fail("NodeExpandVolume", Code::Internal);
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    let events: Vec<_> = story.lines().filter(|line| line.starts_with("event")).collect();
    assert_eq!(
        events,
        [
            "event Pod Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : \
             Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = on order"
        ]
    );
}

#[tokio::test]
async fn impossible_size_is_reported_without_the_colon() {
    let mut bench = grown("NodeResizePending");
    bench.driver.fail("NodeExpandVolume", Code::NotFound);
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(
        story.contains("failed to expand the volume rpc error: code = NotFound desc = on order"),
        "{story}"
    );
}

/// Progress must not overwrite a claim that another client changed meanwhile. The reason of a failure is written to any
/// version of the claim.
#[tokio::test]
async fn progress_is_written_to_the_claim_that_was_read_and_a_failure_to_any() {
    for (code, written) in [
        (None, &[("1", Some("NodeResizeInProgress")), ("2", Some(""))][..]),
        (Some(Code::Internal), &[("1", Some("NodeResizeInProgress")), ("", None)]),
        (Some(Code::OutOfRange), &[("1", Some("NodeResizeInProgress")), ("", Some("NodeResizeInfeasible"))]),
    ] {
        let mut bench = grown("NodeResizePending");
        if let Some(code) = code {
            bench.driver.fail("NodeExpandVolume", code);
        }
        bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
        let patches = bench.api.patches();
        let patches: Vec<_> = patches
            .iter()
            .map(|patch| match &patch.body {
                PatchBody::ClaimStatus(status) => (patch.resource_version.as_str(), status.resize.as_deref()),
                other => panic!("growing changes the status of claims alone, not {other:?}"),
            })
            .collect();
        assert_eq!(patches, written, "{code:?}");
    }
}

#[tokio::test]
async fn expansion_needs_its_status_written_first() {
    let mut bench = grown("NodeResizePending");
    bench.api.freeze();
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(!story.contains("call") && story.lines().last().unwrap().starts_with("failed"), "{story}");
    assert_eq!(marks(&story), [""; 0]);
}

/// Each of the two fields may be missing.
#[tokio::test]
async fn a_claim_that_does_not_say_how_much_is_allocated_grows_to_what_is_wanted() {
    let mut bench = grown("NodeResizePending");
    claims(&bench, |claim| claim.status.allocated = None);
    bench.driver.tell_all();
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(story.contains(r#""requiredBytes":"2""#), "{story}");
    assert_eq!(marks(&story), ["Resized(Bytes(2))"]);
}

/// The volume may have been grown while no pod used it, and the pod would find it too small.
#[tokio::test]
async fn volume_of_unknown_size_is_not_mounted() {
    let mut bench = grown("");
    bench.api.set_away(true);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain\n") && !story.contains("NodeExpandVolume"), "{story}");
    assert!(story.contains("FailedMount: MountVolume.Setup failed while expanding volume"), "{story}");
}
