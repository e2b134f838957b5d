//! Mounting and unmounting: the order of operations, and the work that a failure leaves.

mod meanwhile;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::error::ErrorClass::{Final, Transient, Uncertain};
use api::names::PodUid;
use api::storage::{NodeAffinity, Requirement};
use api::{AccessMode, Claim, Kind, Object, get};
use expect_test::expect;
use volume_manager::operation::OperationName;
use volume_manager::{PodState, WAIT_LIMIT};

use crate::world::{LONG, World, labelled, unique, volume};

macro_rules! paused {
    ($($(#[$about:meta])* async fn $name:ident() $body:block)*) => {
        $($(#[$about])* #[tokio::test(start_paused = true)] async fn $name() $body)*
    };
}

/// A world in which `web` was given `data`, with the outcome that `fail` sets, and is now gone.
async fn after(fail: impl FnOnce(&World)) -> (World, PodUid) {
    let world = World::new().await;
    world.volume("data");
    fail(&world);
    let web = world.run("web", &["data"]).await;
    (world, web)
}

paused! {
    async fn a_volume_goes_in_and_out() {
        let (world, web) = after(|_| {}).await;
        world.sees(expect![[r#"
            stage data
            publish data web
        "#]]);
        world.end(&web);
        world.manager.wait_unmounted(&web, WAIT_LIMIT).await.expect("nothing stands in the way");
        world.idle().await;
        world.sees(expect![[r#"
            unpublish data web
            unstage data
        "#]]);
        expect![[""]].assert_eq(&world.books().await);
    }

    async fn the_last_pod_takes_the_stage_with_it() {
        let (world, web) = after(|_| {}).await;
        let db = world.run("db", &["data"]).await;
        world.sees(expect![[r#"
            stage data
            publish data web
            publish data db
        "#]]);
        world.end(&web);
        world.idle().await;
        world.sees(expect![[r#"
            unpublish data web
        "#]]);
        world.end(&db);
        world.idle().await;
        world.sees(expect![[r#"
            unpublish data db
            unstage data
        "#]]);
    }

    async fn a_volume_that_moves_between_pods_is_not_staged_again() {
        let (world, web) = after(|_| {}).await;
        world.end(&web);
        world.run("new", &["data"]).await;
        world.sees(expect![[r#"
            stage data
            publish data web
            unpublish data web
            publish data new
        "#]]);
    }

    /// The kubelet publishes here, and unpublishes again (golden 10).
    async fn a_pod_that_goes_while_its_volume_is_staged_is_not_given_it() {
        let world = World::new().await;
        world.volume("data");
        world.toy.hold("stage data");
        let web = world.add("web", &["data"]);
        world.manager.wait_mounted(&web, Duration::from_secs(1)).await.expect_err("it is held");
        world.end(&web);
        let left = world.manager.wait_unmounted(&web, Duration::from_secs(1)).await;
        expect!["mounted volumes=[volume_mount kubernetes.io/toy/data web]: context deadline exceeded"].assert_eq(&left.expect_err("what is under way counts").to_string());
        world.toy.release("stage data");
        world.manager.wait_unmounted(&web, WAIT_LIMIT).await.expect("nothing stands in the way");
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            unstage data
        "#]]);
    }

    async fn a_stage_that_fails_for_certain_leaves_nothing() {
        let (world, web) = after(|world| world.toy.fail("stage data", &[Final])).await;
        expect![[r#"
            volume kubernetes.io/toy/data: DeviceNotMounted attachable=false devicePath="" deviceMountPath=""
        "#]].assert_eq(&world.books().await);
        world.end(&web);
        world.idle().await;
        world.sees(expect![[r#"
            stage data
              Final
        "#]]);
    }

    async fn failures_climb_the_ladder() {
        let world = World::new().await;
        world.volume("data");
        world.toy.fail("stage data", &[Final, Uncertain, Transient]);
        let web = world.add("web", &["data"]);
        let began = tokio::time::Instant::now();
        world.manager.wait_mounted(&web, LONG).await.expect("it works in the end");
        assert_eq!(began.elapsed(), Duration::from_millis(500 + 1000 + 2000));
        world.sees(expect![[r#"
            stage data
              Final
            stage data
              Uncertain
            stage data
              Transient
            stage data
            publish data web
        "#]]);
    }

    /// The kubelet tries what fails before it has begun ten times a second.
    async fn a_start_error_climbs_the_ladder() {
        let world = World::new().await;
        let mut far = volume("data");
        let zone = Requirement { key: "zone".into(), operator: "In".into(), values: vec!["far".into()] };
        far.affinity = Some(NodeAffinity { terms: vec![vec![zone]] });
        world.put_volume(far);
        world.add("web", &["data"]);
        assert_eq!(world.starts_of(OperationName::Mount, 3000).await, [0, 500, 1500]);
        world.sees(expect![[""]]);
    }

    /// The kubelet drops the stage here, and it leaks.
    async fn an_uncertain_stage_stays_so_whatever_follows() {
        let (world, web) = after(|world| world.toy.fail("stage data", &[Uncertain, Final])).await;
        world.pass(500).await;
        expect![[r#"
            volume kubernetes.io/toy/data: DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"
        "#]].assert_eq(&world.books().await);
        world.end(&web);
        world.idle().await;
        world.sees(expect![[r#"
            stage data
              Uncertain
            stage data
              Final
            unstage data
        "#]]);
    }

    /// The kubelet drops the publish here, and it leaks.
    async fn an_uncertain_publish_stays_so_whatever_follows() {
        let (world, web) = after(|world| world.toy.fail("publish data web", &[Uncertain, Final])).await;
        world.pass(500).await;
        expect![[r#"
            pod web kubernetes.io/toy/data: VolumeMountUncertain
            volume kubernetes.io/toy/data: DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/data"
        "#]].assert_eq(&world.books().await);
        world.end(&web);
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data web
              Uncertain
            publish data web
              Final
            unpublish data web
            unstage data
        "#]]);
    }

    async fn a_publish_that_fails_for_certain_needs_no_undo() {
        let (world, web) = after(|world| world.toy.fail("publish data web", &[Final])).await;
        world.end(&web);
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data web
              Final
            unstage data
        "#]]);
    }

    async fn an_unpublish_is_repeated_until_it_works() {
        let (world, web) = after(|world| world.toy.fail("unpublish data web", &[Final, Transient])).await;
        world.end(&web);
        world.idle().await;
        expect![[r#"
            pod web kubernetes.io/toy/data: VolumeMountUncertain
            volume kubernetes.io/toy/data: DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/data"
        "#]].assert_eq(&world.books().await);
        world.manager.wait_unmounted(&web, LONG).await.expect("it works in the end");
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data web
            unpublish data web
              Final
            unpublish data web
              Transient
            unpublish data web
            unstage data
        "#]]);
    }

    async fn an_unstage_is_repeated_until_it_works() {
        let (world, web) = after(|world| world.toy.fail("unstage data", &[Uncertain])).await;
        world.end(&web);
        world.pass(500).await;
        world.sees(expect![[r#"
            stage data
            publish data web
            unpublish data web
            unstage data
              Uncertain
            unstage data
        "#]]);
    }

    async fn a_new_pod_does_not_wait_for_a_failed_unstage() {
        let (world, web) = after(|world| world.toy.fail("unstage data", &[Uncertain])).await;
        world.end(&web);
        world.idle().await;
        world.run("new", &["data"]).await;
        world.sees(expect![[r#"
            stage data
            publish data web
            unpublish data web
            unstage data
              Uncertain
            stage data
            publish data new
        "#]]);
    }

    async fn failed_unpublish_blocks_no_other_pod() {
        let (world, web) = after(|world| world.toy.fail("unpublish data web", &[Final])).await;
        world.end(&web);
        world.idle().await;
        world.run("new", &["data"]).await;
        world.sees(expect![[r#"
            stage data
            publish data web
            unpublish data web
              Final
            publish data new
        "#]]);
        world.pass(500).await;
        world.sees(expect![[r#"
            unpublish data web
        "#]]);
    }

    async fn a_failed_refresh_takes_nothing_away() {
        let (world, web) = after(|_| {}).await;
        world.toy.set_remounts(true);
        world.toy.fail("refresh data web", &[Uncertain, Final]);
        world.manager.wait_mounted(&web, WAIT_LIMIT).await.expect("it has it all the time");
        world.idle().await;
        expect![[r#"
            pod web kubernetes.io/toy/data: VolumeMounted
            volume kubernetes.io/toy/data: DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/data"
        "#]].assert_eq(&world.books().await);
        world.pass(1500).await;
        world.sees(expect![[r#"
            stage data
            publish data web
            refresh data web
              Uncertain
            refresh data web
              Final
            refresh data web
        "#]]);
    }

    async fn a_driver_that_registers_ends_the_back_off() {
        let (world, _) = after(|world| world.toy.fail("stage data", &[Final, Final, Final])).await;
        world.pass(500).await;
        world.manager.driver_registered("other.example".into(), "/other.sock");
        world.idle().await;
        world.sees(expect![[r#"
            stage data
              Final
            stage data
              Final
        "#]]);
        world.manager.driver_registered("toy.example".into(), "/toy.sock");
        world.idle().await;
        world.sees(expect![[r#"
            stage data
              Final
        "#]]);
    }

    async fn containers_that_may_run_keep_their_volumes() {
        let (world, web) = after(|_| {}).await;
        world.manager.set_pod_state(&web, PodState::Terminating);
        world.manager.remove_pod(&web);
        world.pass(10_000).await;
        world.sees(expect![[r#"
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

    async fn nothing_is_staged_before_the_node_says_so() {
        let world = World::new().await;
        world.volume("data");
        world.toy.set_attachable(true);
        let web = world.run("web", &["data"]).await;
        let in_use = world.manager.volumes_in_use().await.expect("it is known");
        expect![[r#"
            [
                "kubernetes.io/toy/data",
            ]
        "#]].assert_debug_eq(&in_use);
        world.attach(&["data"]).await;
        world.idle().await;
        world.sees(expect![[""]]);
        world.manager.mark_reported_in_use(in_use);
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data web
        "#]]);
        world.end(&web);
        world.idle().await;
        world.sees(expect![[r#"
            unpublish data web
            unstage data
        "#]]);
        expect![[r#"
            Some(
                [],
            )
        "#]].assert_debug_eq(&world.manager.volumes_in_use().await);
    }

    async fn a_volume_that_has_grown_grows_here() {
        let (world, _) = after(|_| {}).await;
        world.sees(expect![[r#"
            stage data
            publish data web
        "#]]);
        let mut grown = volume("data");
        grown.capacity.0 *= 2;
        world.api.put(Object::Volume(Arc::new(grown)));
        world.idle().await;
        world.sees(expect![[r#"
            expand data from 1Mi to 2Mi
        "#]]);
    }

    /// The kubelet reads the claim ten times a second.
    async fn claim_is_read_on_back_off_and_on_change() {
        let (world, _) = after(|_| {}).await;
        world.toy.story();
        world.says_of_its_growth("ControllerResizeInProgress").await;
        let mut grown = volume("data");
        grown.capacity.0 *= 2;
        world.api.put(Object::Volume(Arc::new(grown)));
        assert_eq!(world.starts_of(OperationName::Expand, 4000).await, [0, 500, 1500, 3500]);
        world.sees(expect![[""]]);
        world.says_of_its_growth("NodeResizePending").await;
        let says = get::<Claim>(&*world.api, "default", "data").await.expect("it is there");
        world.api.set_down(Kind::Claim, true);
        assert_eq!(world.starts_of(OperationName::Expand, 1000).await, [0, 500]);
        // The claim reports the expansion, whatever keeps the node from it.
        world.api.put(Object::Claim(says));
        assert_eq!(world.starts_of(OperationName::Expand, 400).await, []);
        world.api.set_down(Kind::Claim, false);
        world.says_of_its_growth("ControllerResizeInProgress").await;
        world.says_of_its_growth("NodeResizePending").await;
        assert_eq!(world.starts_of(OperationName::Expand, 1000).await, [0]);
        world.sees(expect![[r#"
            expand data from 1Mi to 2Mi
        "#]]);
    }

    /// The kubelet waits for the next status of its node here.
    async fn volume_still_in_use_is_not_attached_again() {
        let mut world = World::starting();
        world.kernel.set_selinux(Path::new("/"), true).expect("it is a mount point");
        world.crash();
        world.manager.sources_ready();
        let mut alone = volume("data");
        alone.access_modes = vec![AccessMode::ReadWriteOncePod];
        world.put_volume(alone);
        world.toy.set_attachable(true);
        world.attach(&["data"]).await;
        world.manager.add_pod(labelled("web", "s0:c1"));
        world.idle().await;
        world.manager.mark_reported_in_use(vec![unique("data")]);
        world.idle().await;
        world.toy.hold("unstage data");
        world.end(&"web".into());
        tokio::time::sleep(Duration::from_millis(10)).await;
        // With another label it is another volume: nothing is left of the first by the time it is staged.
        world.manager.add_pod(labelled("new", "s0:c2"));
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.toy.release("unstage data");
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data web
            unpublish data web
            unstage data
            stage data
            publish data new
        "#]]);
    }

    async fn a_volume_that_leaves_and_comes_back_must_be_reported_again() {
        let world = World::new().await;
        world.volume("data");
        world.toy.set_attachable(true);
        world.attach(&["data"]).await;
        let web = world.run("web", &["data"]).await;
        world.manager.mark_reported_in_use(vec![unique("data")]);
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data web
        "#]]);
        world.run("db", &["data"]).await;
        world.sees(expect![[r#"
            publish data db
        "#]]);
        world.end(&web);
        world.end(&"db".into());
        world.idle().await;
        world.run("new", &["data"]).await;
        world.sees(expect![[r#"
            unpublish data db
            unpublish data web
            unstage data
        "#]]);
        world.manager.mark_reported_in_use(vec![unique("data")]);
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data new
        "#]]);
    }

    /// The kubelet opens its books on it: the node may say by then that it does not use it.
    async fn a_volume_that_leaves_and_comes_back_while_it_is_verified_must_be_reported_again() {
        let world = World::new().await;
        world.volume("data");
        world.toy.set_attachable(true);
        world.attach(&["data"]).await;
        world.idle().await;
        world.api.set_silent(Kind::Node, true);
        let web = world.add("web", &["data"]);
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.manager.mark_reported_in_use(vec![unique("data")]);
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.end(&web);
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.add("new", &["data"]);
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.api.set_silent(Kind::Node, false);
        world.pass(60_000).await;
        world.sees(expect![[""]]);
        world.manager.mark_reported_in_use(vec![unique("data")]);
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data new
        "#]]);
    }
}
