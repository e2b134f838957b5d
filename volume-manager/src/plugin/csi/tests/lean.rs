//! The two client styles: the number of capability calls and of connections.

use std::sync::Arc;

use expect_test::expect;
use plugin_api::ClientStyle;
use tonic::Code;

use crate::operation::Operation;
use crate::plugin::testing::Bench;

async fn in_and_out(bench: &mut Bench) -> String {
    let mut story = String::new();
    story += &bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    story += &bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    story += &bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
    story.lines().filter(|line| line.starts_with("call")).map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn the_kubelets_way_is_a_connection_for_every_call() {
    let mut bench = Bench::new();
    let calls = in_and_out(&mut bench).await;
    assert_eq!(calls.lines().count(), 11);
    assert_eq!(bench.driver.connections(), 11);
}

#[tokio::test]
async fn the_lean_way_is_one_connection_and_one_question() {
    let mut bench = Bench::on(host::linux::LinuxHost::shared(), ClientStyle::Lean);
    let calls = in_and_out(&mut bench).await;
    expect![[r#"
        call NodeGetCapabilities
        call NodeStageVolume
        call NodePublishVolume
        call NodeUnpublishVolume
        call NodeUnstageVolume
    "#]]
    .assert_eq(&calls);
    assert_eq!(bench.driver.connections(), 1);

    // Another registration is another driver: nothing that was learned holds.
    bench.know(|facts| {
        for driver in facts.registered.values_mut() {
            driver.instance += 1;
        }
    });
    let calls = in_and_out(&mut bench).await;
    assert_eq!(calls.matches("NodeGetCapabilities").count(), 1);
    assert_eq!(bench.driver.connections(), 2);
}

#[tokio::test]
async fn a_driver_that_was_lost_is_asked_anew() {
    let mut bench = Bench::on(host::linux::LinuxHost::shared(), ClientStyle::Lean);
    bench.driver.fail("NodeStageVolume", Code::Unavailable);
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let calls = in_and_out(&mut bench).await;
    assert_eq!(calls.matches("NodeGetCapabilities").count(), 1);
    assert_eq!(bench.driver.connections(), 2);
}

#[tokio::test]
async fn a_driver_that_only_refuses_is_not_lost() {
    let mut bench = Bench::on(host::linux::LinuxHost::shared(), ClientStyle::Lean);
    bench.driver.fail("NodeStageVolume", Code::Internal);
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let calls = in_and_out(&mut bench).await;
    assert!(!calls.contains("NodeGetCapabilities"), "{calls}");
    assert_eq!(bench.driver.connections(), 1);
}
