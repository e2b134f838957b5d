//! Every gRPC code from every call, at the first attempt and after an attempt with an unknown outcome: the marks that the
//! manager gets, and the files that stay on disk.

use std::sync::Arc;
use std::time::Duration;

use plugin_api::Before;
use tonic::Code;

use crate::operation::Operation;
use crate::plugin::csi::status::code_name;
use crate::plugin::testing::Bench;
use testing::Answer;

/// All codes but OK.
fn codes() -> impl Iterator<Item = Code> {
    (1..17).map(Code::from_i32)
}

fn is_uncertain(code: Code) -> bool {
    matches!(
        code_name(code),
        "Canceled" | "DeadlineExceeded" | "Unavailable" | "ResourceExhausted" | "Aborted"
    )
}

fn class(code: Code) -> &'static str {
    if is_uncertain(code) { "Uncertain" } else { "Final" }
}

#[tokio::test]
async fn record_of_a_failed_stage_is_removed_only_after_a_final_error_of_the_first_attempt() {
    for before in [Before::Absent, Before::Uncertain] {
        for code in codes() {
            let mut bench = Bench::new();
            let mut mount = bench.mounting();
            mount.device = before;
            bench.driver.fail("NodeStageVolume", code);
            let story = bench.run(Operation::Mount(Arc::new(mount))).await;
            let class = class(code);
            let message = format!(
                "MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = {} desc = on order",
                code_name(code)
            );
            let end = format!(
                "mark device uncertain\ncall NodeStageVolume\nmark device failed: {class}\n\
                 event Pod Warning FailedMount: {message}\nfailed {class}: {message}\n"
            );
            assert!(story.ends_with(&end), "{before:?} {code:?}: {story}");
            let keeps = class == "Uncertain" || before == Before::Uncertain;
            let files = bench.files().await;
            assert_eq!(files.len(), usize::from(keeps), "{before:?} {code:?}: {files:?}");
            let staging = bench.path(format!("plugins/kubernetes.io/csi/{}", "d.example"));
            let left = bench.context.host.read_dir(&staging).await.unwrap();
            assert_eq!(left.len(), usize::from(keeps), "{before:?} {code:?}: the staging directory");
        }
    }
}

#[tokio::test]
async fn record_of_a_failed_publish_is_removed_only_after_a_final_error_of_the_first_attempt() {
    for before in [Before::Absent, Before::Uncertain, Before::Mounted] {
        for code in codes() {
            let mut bench = Bench::new();
            let mut mount = bench.mounting();
            mount.before = before;
            bench.driver.fail("NodePublishVolume", code);
            let story = bench.run(Operation::Mount(Arc::new(mount))).await;
            let class = class(code);
            let message = format!(
                "MountVolume.SetUp failed for volume \"pv\" : rpc error: code = {} desc = on order",
                code_name(code)
            );
            let end = format!(
                "mark pod uncertain\ncall NodePublishVolume\nmark pod failed: {class}\n\
                 event Pod Warning FailedMount: {message}\nfailed {class}: {message}\n"
            );
            assert!(story.ends_with(&end), "{before:?} {code:?}: {story}");
            let keeps = class == "Uncertain" || before != Before::Absent;
            let files = bench.files().await;
            // The record of the staged volume is always there.
            assert_eq!(files.len(), 1 + usize::from(keeps), "{before:?} {code:?}: {files:?}");
        }
    }
}

#[tokio::test]
async fn failed_unpublish_or_unstage_keeps_all_files_and_emits_no_event() {
    for code in codes() {
        let mut bench = Bench::new();
        bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let there = bench.tree().await;

        bench.driver.fail("NodeUnpublishVolume", code);
        let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        let class = class(code);
        let failed = format!(
            "mark pod undoing\ncall NodeUnpublishVolume\nfailed {class}: UnmountVolume.TearDown failed for \
             volume \"kubernetes.io/csi/d.example^h\" : rpc error: code = {} desc = on order\n",
            code_name(code)
        );
        assert_eq!(story, failed);
        assert_eq!(bench.tree().await, there, "{code:?}");

        bench.driver.fail("NodeUnstageVolume", code);
        let story = bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
        let failed = format!(
            "mark device undoing\ncall NodeGetCapabilities\ncall NodeUnstageVolume\nfailed {class}: \
             UnmountDevice failed for volume \"kubernetes.io/csi/d.example^h\" : rpc error: code = {} desc = \
             on order\n",
            code_name(code)
        );
        assert_eq!(story, failed);
        assert_eq!(bench.tree().await, there, "{code:?}");

        bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
        assert_eq!(bench.files().await, [""; 0], "the second attempts work");
    }
}

#[tokio::test]
async fn failure_before_the_call_changes_no_state_and_no_file() {
    // The kubelet's messages; some begin with an empty prefix.
    let asked = [
        "MountDevice failed for volume \"pv\" : rpc error",
        "attacher.MountDevice failed to determine if the node service has VOLUME_MOUNT_GROUP capability: rpc error",
        "MountDevice failed for volume \"pv\" : rpc error",
        ": kubernetes.io/csi: mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability: rpc error",
        "mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: rpc error",
        "SetUp failed for volume \"pv\" : rpc error",
    ];
    for (at, words) in (1..).zip(asked) {
        let mut bench = Bench::new();
        let mut answers = vec![Answer::Work; at - 1];
        answers.push(Answer::Fail(Code::Unavailable));
        bench.driver.answer("NodeGetCapabilities", &answers);
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let staged = at > 3;
        assert_eq!(story.contains("call NodeStageVolume"), staged, "probe {at}: {story}");
        assert!(!story.contains("call NodePublishVolume"), "probe {at}: {story}");
        assert!(!story.contains("pod uncertain"), "probe {at}: {story}");
        assert!(story.contains("failed: Transient"), "probe {at}: {story}");
        assert!(story.contains(words), "probe {at}: {story}");
        assert_eq!(bench.files().await.len(), usize::from(staged), "probe {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_an_answer_ends_at_the_deadline_of_two_minutes() {
    let mut bench = Bench::new();
    bench.driver.answer("NodeStageVolume", &[Answer::Hang]);
    let began = bench.now();
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("code = DeadlineExceeded desc = context deadline exceeded"), "{story}");
    assert!(story.contains("mark device failed: Uncertain"), "{story}");
    let took = (bench.now() - began).as_secs();
    assert_eq!(took, 120);
}

#[tokio::test(start_paused = true)]
async fn deadline_of_a_step_covers_its_capability_calls_and_not_the_other_step() {
    let late = |seconds| Answer::Late(Duration::from_secs(seconds));
    for (failed, capabilities, took) in [
        ("device", vec![late(50), late(30)], 120),
        ("pod", vec![Answer::Work, Answer::Work, Answer::Work, late(50)], 60 + 120),
    ] {
        let mut bench = Bench::new();
        bench.driver.answer("NodeGetCapabilities", &capabilities);
        bench.driver.answer("NodeStageVolume", &[late(60)]);
        bench.driver.answer("NodePublishVolume", &[Answer::Hang]);
        let began = bench.now();
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.contains(&format!("mark {failed} failed: Uncertain\n")), "{failed}: {story}");
        assert_eq!((bench.now() - began).as_secs(), took, "{failed}: {story}");
    }
}

#[tokio::test]
async fn call_of_a_driver_that_dies_is_uncertain() {
    let mut bench = Bench::new();
    bench.driver.answer("NodePublishVolume", &[Answer::Break]);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    assert!(story.contains("code = Unavailable"), "{story}");
    assert_eq!(bench.files().await.len(), 2);
}

#[tokio::test]
async fn unreachable_driver_is_a_transient_error() {
    let mut bench = Bench::new();
    bench.driver.set_down(true);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark device failed: Transient"), "{story}");
    assert!(story.contains("code = Unavailable desc = connection error"), "{story}");
    assert_eq!(bench.files().await, [""; 0]);
}

#[tokio::test]
async fn unregistered_driver_is_named_in_the_error_and_changes_no_file() {
    let mut bench = Bench::new();
    bench.know(|facts| facts.registered.clear());
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let text = "MountVolume.MountDevice failed for volume \"pv\" : kubernetes.io/csi: attacher.MountDevice failed \
                to create newCsiDriverClient: driver name d.example not found in the list of registered CSI drivers";
    assert_eq!(
        story,
        format!(
            "mark device failed: Transient\nevent Pod Warning FailedMount: {text}\nfailed Transient: {text}\n"
        )
    );
    assert_eq!(bench.tree().await, "");
}

#[tokio::test]
async fn pod_that_is_gone_before_the_call_gets_no_call() {
    let mut bench = Bench::new();
    bench.withdrawn = true;
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(!story.contains("call NodeStageVolume"), "{story}");
    assert!(!story.contains("event"), "there is no pod for an event: {story}");
    assert_eq!(bench.files().await, [""; 0]);
}

#[tokio::test]
async fn publish_with_a_lost_answer_succeeds_when_it_is_repeated() {
    let mut bench = Bench::new();
    bench.driver.answer("NodePublishVolume", &[Answer::DoAndFail(Code::DeadlineExceeded)]);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    let mut again = bench.mounting();
    (again.device, again.before) = (Before::Mounted, Before::Uncertain);
    let story = bench.run(Operation::Mount(Arc::new(again))).await;
    assert!(story.ends_with("mark pod mounted\ndone\n"), "{story}");
}
