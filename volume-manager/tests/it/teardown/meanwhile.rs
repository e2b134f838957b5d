//! Pods that go and come while something is under way for them, or has failed.

use std::time::Duration;

use api::Kind;
use api::error::ErrorClass::{Final, Transient, Uncertain};
use expect_test::expect;
use volume_manager::PodState;
use volume_manager::operation::OperationName;

use crate::world::{World, unique};

async fn moment() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// A node that can attach, with `data` attached.
async fn attached() -> World {
    let world = World::new().await;
    world.volume("data");
    world.toy.set_attachable(true);
    world.attach(&["data"]).await;
    world.idle().await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_object_goes_gets_its_volume_as_long_as_its_containers_may_run() {
    let world = World::new().await;
    world.volume("data");
    world.toy.fail("stage data", &[Transient]);
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    moment().await;
    world.manager.remove_pod(&web);
    moment().await;
    world.toy.release("stage data");
    world.pass(500).await;
    world.sees(expect![[r#"
        stage data
          Transient
        stage data
        publish data web
    "#]]);
    world.manager.set_pod_state(&web, PodState::RuntimeGone);
    world.idle().await;
    world.sees(expect![[r#"
        unpublish data web
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_before_all_pods_are_known_is_not_given_its_volume() {
    let world = World::starting();
    world.volume("data");
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    moment().await;
    world.end(&web);
    moment().await;
    world.toy.release("stage data");
    world.idle().await;
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn that_a_pod_has_gone_is_no_failure_of_its_volume() {
    let world = World::new().await;
    world.volume("data");
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    moment().await;
    world.end(&web);
    world.add("db", &["data"]);
    moment().await;
    world.toy.release("stage data");
    assert_eq!(world.starts_of(OperationName::Mount, 400).await, [0]);
    world.sees(expect![[r#"
        stage data
        publish data db
    "#]]);
}

/// The volume's entry in the desired state stays until then.
#[tokio::test(start_paused = true)]
async fn a_volume_whose_pod_goes_while_it_waits_for_its_device_may_go_to_another() {
    let world = attached().await;
    world.toy.hold("wait for data");
    let web = world.add("web", &["data"]);
    moment().await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    moment().await;
    world.end(&web);
    moment().await;
    world.add("db", &["data"]);
    moment().await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("data")]));
    world.sees(expect![[""]]);
    world.toy.release("wait for data");
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data db
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn operation_ended_by_a_panic_is_undone() {
    for (step, undone) in [
        ("stage data", "stage data\nunstage data\n"),
        ("publish data web", "stage data\npublish data web\nunpublish data web\nunstage data\n"),
    ] {
        let world = World::new().await;
        world.volume("data");
        world.toy.panic(step);
        let web = world.run("web", &["data"]).await;
        world.end(&web);
        world.idle().await;
        assert_eq!(world.toy.story(), undone);
    }
}

/// A static pod has the same UID each time.
#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_again_begins_anew() {
    for held in ["nothing", "stage data", "unpublish data web"] {
        let world = World::new().await;
        world.volume("data");
        world.toy.hold(held);
        let web = world.add("web", &["data"]);
        moment().await;
        world.end(&web);
        moment().await;
        world.toy.release(held);
        world.idle().await;
        world.toy.story();
        world.run("web", &["data"]).await;
        world.sees(expect![[r#"
            stage data
            publish data web
        "#]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_had_nothing_begins_anew_as_well() {
    use PodState::{RuntimeGone, Terminating};
    for (before, after) in [(Some(RuntimeGone), None), (None, Some(RuntimeGone)), (Some(Terminating), None)] {
        let world = World::new().await;
        let web = world.run("web", &["data"]).await;
        before.iter().for_each(|state| world.manager.set_pod_state(&web, *state));
        world.manager.remove_pod(&web);
        after.iter().for_each(|state| world.manager.set_pod_state(&web, *state));
        world.volume("data");
        world.run("web", &["data"]).await;
        world.sees(expect![[r#"
            stage data
            publish data web
        "#]]);
    }
}

#[tokio::test(start_paused = true)]
async fn unverified_attachment_backs_off_until_unwanted() {
    let world = attached().await;
    let (web, db) = (world.add("web", &["data"]), world.add("db", &["data"]));
    world.idle().await;
    world.api.set_down(Kind::Node, true);
    world.manager.mark_reported_in_use(vec![unique("data")]);
    assert_eq!(world.starts_of(OperationName::Verify, 1600).await, [0, 500, 1500]);
    world.end(&web);
    assert_eq!(world.starts_of(OperationName::Verify, 1000).await, [], "db wants it");
    world.end(&db);
    world.idle().await;
    world.run("web", &["data"]).await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    assert_eq!(world.starts_of(OperationName::Verify, 400).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn failure_without_a_pod_does_not_delay_the_next_pod() {
    let world = attached().await;
    let web = world.run("web", &["data"]).await;
    world.api.set_silent(Kind::Node, true);
    world.manager.mark_reported_in_use(vec![unique("data")]);
    moment().await;
    world.end(&web);
    moment().await;
    world.api.set_down(Kind::Node, true);
    world.api.set_silent(Kind::Node, false);
    world.idle().await;
    world.run("db", &["data"]).await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    assert_eq!(world.starts_of(OperationName::Verify, 400).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn failed_unstage_delays_the_next_pod() {
    let world = World::new().await;
    world.volume("data");
    world.toy.fail("stage data", &[Uncertain]);
    world.toy.fail("unstage data", &[Final]);
    let web = world.run("web", &["data"]).await;
    world.end(&web);
    world.idle().await;
    world.add("db", &["data"]);
    assert_eq!(world.starts_of(OperationName::Mount, 1000).await, [500]);
}

/// The reported list is older: the next one may lack a volume that was not in use when it was made.
#[tokio::test(start_paused = true)]
async fn early_in_use_report_does_not_count() {
    let world = attached().await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    world.run("web", &["data"]).await;
    world.pass(60_000).await;
    world.sees(expect![[""]]);
    world.manager.mark_reported_in_use(vec![unique("data")]);
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}
