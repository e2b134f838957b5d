//! Repeated operations: after failures, after successes, and after a detach by another client.

use api::error::ErrorClass::Uncertain;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_success_ends_what_failures_have_climbed() {
    let control = Control::with_data_on_one().await;
    control.toy.story();
    control.toy.fail("attach data to one", &[Final]);
    control.toy.set_lost(true);
    control.pass(60_000).await;
    control.toy.set_lost(false);
    control.pass(600).await;
    assert_eq!(control.toy.story(), "attach data to one\n  Final\nattach data to one\n");
}

#[tokio::test(start_paused = true)]
async fn uncertain_attachment_is_detached_with_its_pod() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.toy.fail("attach data to one", &[Uncertain]);
    control.run("web", "one", &["data"]).await;
    control.end("web").await;
    assert_eq!(control.toy.story(), "attach data to one\n  Uncertain\ndetach data from one\n");
}

#[tokio::test(start_paused = true)]
async fn reattach_after_a_detach_skips_the_back_off() {
    for mode in [AccessMode::ReadWriteOnce, AccessMode::ReadWriteMany] {
        let control = Control::new().await;
        control.volume("data", mode);
        control.toy.fail("attach data to one", &[Final, Final, Final]);
        control.run("web", "one", &["data"]).await;
        control.pass(1600).await;
        assert_eq!(control.toy.story(), "attach data to one\n  Final\n".repeat(3));
        control.end("web").await;
        control.run("db", "one", &["data"]).await;
        assert_eq!(control.toy.story(), "detach data from one\nattach data to one\n", "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_detach_hurries_no_other_volumes_attempts() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &[]).await;
    control.volume("logs", AccessMode::ReadWriteOnce);
    control.toy.story();
    control.toy.fail("attach logs to one", &[Final, Final, Final]);
    control.run("db", "one", &["logs"]).await;
    control.pass(1600).await;
    assert_eq!(control.toy.story(), "attach logs to one\n  Final\n".repeat(3));
    control.end("web").await;
    control.pass(1000).await;
    assert_eq!(control.toy.story(), "detach data from one\n", "the others wait for two seconds");
    control.pass(1000).await;
    assert_eq!(control.toy.story(), "attach logs to one\n");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_goes_back_to_the_first_node_is_another_conflict() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.run("db", "two", &["data"]).await;
    control.toy.fail("attach data to two", &[Final]);
    control.end("web").await;
    control.in_use("one", &[]).await;
    control.run("again", "one", &["data"]).await;
    control.pass(600).await;
    control.sees(expect![[r#"
        attach data to one
        detach data from one
        attach data to two
          Final
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    expect![[r#"
        again SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "data" 
        db FailedAttachVolume: Multi-Attach error for volume "data" Volume is already used by pod(s) web
        db FailedAttachVolume: AttachVolume.Attach failed for volume "data" : attach data to two fails on order
        db FailedAttachVolume: Multi-Attach error for volume "data" Volume is already used by pod(s) again
        web SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "data" 
    "#]].assert_eq(&control.events());
}

/// During a detach, a missing attachment is expected.
#[tokio::test(start_paused = true)]
async fn volume_missing_during_a_detach_is_kept() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &[]).await;
    control.toy.hold("detach data from one");
    control.toy.fail("detach data from one", &[Final]);
    control.end("web").await;
    control.toy.set_lost(true);
    control.pass(60_000).await;
    control.toy.release("detach data from one");
    control.pass(600).await;
    assert_eq!(
        control.toy.story(),
        "attach data to one\ndetach data from one\n  Final\ndetach data from one\n"
    );
}

/// The attachment may say "not attached" because the attacher stopped before it wrote its result.
#[tokio::test(start_paused = true)]
async fn uncertain_attachment_is_detached_despite_its_status() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &[]).await;
    control.toy.story();
    control.toy.fail("detach data from one", &[Final; 7]);
    control.toy.set_lost(true);
    control.end("web").await;
    control.pass(70_000).await;
    let failed = "detach data from one\n  Final\n".repeat(7);
    assert_eq!(control.toy.story(), format!("{failed}detach data from one\n"));
}
