//! Changes of its node's object, of drivers, attachments and claims have an effect on the manager at once.

use std::path::Path;
use std::sync::Arc;

use api::error::ErrorClass::Transient;
use api::names::AttachmentName;
use api::pod::SeLinuxOptions;
use api::storage::AttachmentError;
use api::{AccessMode, AttachedVolume, Attachment, Claim, CsiDriver, Key, Kind, Meta, Node, Object, get};
use expect_test::expect;
use volume_manager::event::Registration;
use volume_manager::operation::OperationName;
use volume_manager::{WAIT_LIMIT, WaitError};

use crate::world::{LONG, World, pod, unique, volume};
use testing::toy::GrownBy;

/// A node whose pod `web` wants `data`, which has to be attached.
async fn attachable() -> World {
    let world = World::new().await;
    world.volume("data");
    world.toy.set_attachable(true);
    world.run("web", &["data"]).await;
    world
}

fn driver(change: impl FnOnce(&mut CsiDriver)) -> Object {
    let mut driver = CsiDriver { meta: Meta::named("", "toy.example"), ..CsiDriver::default() };
    change(&mut driver);
    Object::CsiDriver(Arc::new(driver))
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_the_node_does_not_show_is_waited_for_without_an_attempt() {
    let world = attachable().await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    world.attach(&["another"]).await;
    let attempts = world.starts_of(OperationName::Verify, 60_000).await;
    assert!(attempts.len() <= 8, "at most the ladder's: {attempts:?}");
    world.toy.story();
    world.attach(&["data"]).await;
    assert_eq!(world.starts_of(OperationName::Verify, 400).await, [0], "it is there to be seen");
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn volume_removed_from_volumes_in_use_is_not_mounted() {
    let world = attachable().await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    world.idle().await;
    world.manager.mark_reported_in_use(vec![unique("another")]);
    world.attach(&["data"]).await;
    world.pass(60_000).await;
    world.sees(expect![[""]]);
    world.manager.mark_reported_in_use(vec![unique("data")]);
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_has_come_to_need_no_attachment_is_waited_for_no_longer() {
    let world = attachable().await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("data")]));
    world.sees(expect![[""]]);
    world.api.put(driver(|driver| driver.attach_required = false));
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![]), "the volume is not attachable");
    // A volume that is mounted without an attachment stays mounted.
    world.api.remove(&Key::cluster(Kind::CsiDriver, "toy.example"));
    world.idle().await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![]));
    // A new volume needs an attachment.
    world.volume("new");
    world.run("db", &["new"]).await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("new")]));
    world.sees(expect![[""]]);
}

fn attachment(node: &str, error: Option<i32>) -> Object {
    let name = AttachmentName::of(&"data".into(), &"toy.example".into(), &"node".into());
    let error = error.map(|code| AttachmentError { message: "no more".to_owned(), code: Some(code) });
    Object::Attachment(Arc::new(Attachment {
        meta: Meta::named("", name.as_str()),
        node: node.to_owned(),
        attach_error: error,
        ..Attachment::default()
    }))
}

#[tokio::test(start_paused = true)]
async fn pod_is_rejected_only_if_the_node_is_full_and_the_driver_has_an_update_period() {
    let full = || attachment("node", Some(8));
    for (period, seen, elsewhere) in [
        (Some(10), vec![full()], true),
        (None, vec![full()], false),
        (Some(0), vec![full()], false),
        (Some(10), vec![], false),
        (Some(10), vec![attachment("node", Some(13))], false),
        (Some(10), vec![attachment("another", Some(8))], false),
        (Some(10), vec![full(), attachment("node", None)], false),
        (Some(10), vec![full(), attachment("node", Some(13))], false),
    ] {
        let world = attachable().await;
        world.api.put(driver(|driver| driver.allocatable_period = period));
        let last = format!("{seen:?}");
        for object in seen {
            world.api.put(object);
        }
        let error =
            world.manager.wait_mounted(&"web".into(), WAIT_LIMIT).await.expect_err("it is not attached");
        let limit = matches!(error, WaitError::AttachmentLimit { .. });
        assert_eq!(limit, elsewhere, "{period:?} {last}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_has_gone_says_nothing_any_more() {
    let world = attachable().await;
    world.api.put(driver(|driver| driver.allocatable_period = Some(10)));
    world.api.put(attachment("node", Some(8)));
    world.api.remove(&attachment("node", None).key());
    let error = world.manager.wait_mounted(&"web".into(), WAIT_LIMIT).await.expect_err("it is not attached");
    assert!(matches!(error, WaitError::NotMounted { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn failed_watch_is_restarted_after_a_second() {
    let mut world = World::starting();
    world.api.set_down(Kind::Claim, true);
    world.crash();
    world.manager.sources_ready();
    world.pass(10_000).await;
    world.api.set_down(Kind::Claim, false);
    world.pass(1000).await;
    world.run("web", &["data"]).await;
    world.sees(expect![[""]]);
    world.volume("data");
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}

/// The conflict stays while the other pod has the volume, so the wait ends at once with an error.
#[tokio::test(start_paused = true)]
async fn label_conflict_names_the_other_pod() {
    let mut world = World::starting();
    world.kernel.set_selinux(Path::new("/"), true).expect("it is a mount point");
    world.crash();
    world.manager.sources_ready();
    let mut alone = volume("data");
    alone.access_modes = vec![AccessMode::ReadWriteOncePod];
    world.put_volume(alone);
    let labelled = |name: &str, level: &str| {
        let mut pod = pod(name, &["data"]);
        pod.security.selinux =
            Some(Box::new(SeLinuxOptions { level: level.to_owned(), ..SeLinuxOptions::default() }));
        Arc::new(pod)
    };
    world.manager.add_pod(labelled("web", "s0:c1"));
    world.idle().await;
    // The pod is deleted, and its unpublish takes time.
    world.toy.hold("unpublish data web");
    world.end(&"web".into());
    world.manager.add_pod(labelled("new", "s0:c2"));
    let began = tokio::time::Instant::now();
    let error = world.manager.wait_mounted(&"new".into(), WAIT_LIMIT).await.expect_err("web has it");
    assert!(error.to_string().contains("already mounted to a different pod with a different SELinux label"));
    assert!(began.elapsed().is_zero(), "at once");
    world.toy.release("unpublish data web");
    world.idle().await;
    world.manager.wait_mounted(&"new".into(), WAIT_LIMIT).await.expect("no pod has the volume any more");
}

/// An operation that panics has failed, and no other has.
#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_operation_alone() {
    let world = World::new().await;
    world.volume("data");
    world.toy.panic("publish data web");
    let web = world.add("web", &["data"]);
    let began = tokio::time::Instant::now();
    world.manager.wait_mounted(&web, LONG).await.expect("it is tried again");
    assert_eq!(began.elapsed().as_millis(), 500);
    world.sees(expect![[r#"
        stage data
        publish data web
        publish data web
    "#]]);
    assert_eq!(world.manager.dump().await.expect("it runs").counters["operation_panics"], 1);
}

#[tokio::test(start_paused = true)]
async fn volume_attached_to_another_node_is_not_attached_here() {
    let world = attachable().await;
    let attached = AttachedVolume { name: unique("data"), device_path: String::new() };
    let meta = Meta::named("", "another");
    let another = Node { meta, volumes_attached: vec![attached], ..Node::default() };
    world.api.put(Object::Node(Arc::new(another)));
    world.manager.mark_reported_in_use(vec![unique("data")]);
    assert_eq!(world.starts_of(OperationName::Verify, 1000).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_appears_is_looked_at_at_once() {
    let world = World::new().await;
    world.volume("data");
    let claim = get::<Claim>(&*world.api, "default", "data").await.expect("it is there");
    world.api.remove(&Key::namespaced(Kind::Claim, "default", "data"));
    world.idle().await;
    world.run("web", &["data"]).await;
    world.api.put(Object::Claim(claim));
    assert_eq!(world.starts_of(OperationName::Mount, 400).await, [0]);
}

/// Capabilities of an earlier driver do not count for a driver that registers later.
#[tokio::test(start_paused = true)]
async fn a_driver_that_registers_again_is_another_and_one_that_goes_is_none() {
    let world = World::new().await;
    let volumes = ["a", "b", "c"];
    volumes.iter().for_each(|name| world.volume(name));
    let mut seen = Vec::new();
    for name in volumes {
        match name {
            "c" => world.manager.registration(Registration::Removed { driver: "toy.example".into() }),
            _ => world.manager.driver_registered("toy.example".into(), "/toy.sock"),
        }
        world.run(name, &[name]).await;
        seen.push(world.toy.driver());
    }
    let [Some(first), Some(second), None] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((&first.endpoint, &second.endpoint), (&"/toy.sock".into(), &"/toy.sock".into()));
    assert_ne!(first.instance, second.instance);
}

/// A node whose pod `web` has these volumes, with an expansion that the controller has not completed.
async fn growing(volumes: &[&str]) -> World {
    let world = World::new().await;
    volumes.iter().for_each(|name| world.volume(name));
    world.run("web", volumes).await;
    for name in volumes {
        says_of_growth(&world, name, "ControllerResizeInProgress").await;
        let mut grown = volume(name);
        grown.capacity.0 *= 2;
        world.api.put(Object::Volume(Arc::new(grown)));
    }
    world.idle().await;
    world
}

async fn says_of_growth(world: &World, name: &str, resize: &str) {
    let mut claim = (*get::<Claim>(&*world.api, "default", name).await.expect("it is there")).clone();
    claim.status.resize = resize.to_owned();
    world.api.put(Object::Claim(Arc::new(claim)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_has_come_to_the_nodes_turn_is_a_reason_to_grow_its_volume_and_no_other() {
    let world = growing(&["data", "other"]).await;
    world.toy.story();
    says_of_growth(&world, "data", "ControllerResizeFailed").await;
    assert_eq!(world.starts_of(OperationName::Expand, 100).await, [], "it is not its turn");
    says_of_growth(&world, "data", "NodeResizePending").await;
    assert_eq!(world.starts_of(OperationName::Expand, 100).await, [0]);
    world.sees(expect![[r#"
        expand data from 1Mi to 2Mi
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn the_nodes_turn_is_no_reason_to_refresh() {
    let world = World::new().await;
    world.volume("data");
    let web = world.run("web", &["data"]).await;
    world.toy.set_remounts(true);
    world.toy.fail("refresh data web", &[Transient]);
    world.manager.wait_mounted(&web, WAIT_LIMIT).await.expect("it has it all the time");
    world.idle().await;
    says_of_growth(&world, "data", "NodeResizePending").await;
    assert_eq!(world.starts_of(OperationName::Mount, 400).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_made_anew_comes_to_its_turn_again() {
    for hears in [true, false] {
        let world = growing(&["data"]).await;
        says_of_growth(&world, "data", "NodeResizePending").await;
        let says = get::<Claim>(&*world.api, "default", "data").await.expect("it is there");
        world.api.set_down(Kind::Claim, true);
        world.idle().await;
        if !hears {
            world.api.hang_up();
        }
        world.api.remove(&Key::namespaced(Kind::Claim, "default", "data"));
        world.api.set_down(Kind::Claim, false);
        world.pass(2000).await;
        world.api.put(Object::Claim(says));
        assert_eq!(world.starts_of(OperationName::Expand, 400).await, [0], "{hears}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_growing_fails_while_a_volume_is_smaller_than_it_should_be() {
    let world = World::new().await;
    world.volume("data");
    says_of_growth(&world, "data", "ControllerResizeInProgress").await;
    let mut grown = volume("data");
    grown.capacity.0 *= 2;
    world.api.put(Object::Volume(Arc::new(grown)));
    world.run("web", &["data"]).await;
    let waiting = world.manager.dump().await.expect("it runs").waiting;
    let waiting: Vec<_> = waiting.iter().map(|waiting| waiting.operation.as_str()).collect();
    assert_eq!(waiting, ["volume_fs_resize kubernetes.io/toy/data"]);
}

#[tokio::test(start_paused = true)]
async fn volume_without_node_expansion_is_mounted_unchanged() {
    for grown_by in [GrownBy::Nothing, GrownBy::Controller] {
        let world = World::new().await;
        world.toy.set_grown_by(grown_by);
        world.volume("data");
        let mut grown = volume("data");
        grown.capacity.0 *= 2;
        world.api.put(Object::Volume(Arc::new(grown)));
        world.run("web", &["data"]).await;
        world.pass(1000).await;
        world.sees(expect![[r#"
            stage data
            publish data web
        "#]]);
    }
}

#[tokio::test(start_paused = true)]
async fn second_expansion_skips_the_back_off() {
    let world = World::new().await;
    world.volume("data");
    world.run("web", &["data"]).await;
    for doubled in [2, 4] {
        let mut grown = volume("data");
        grown.capacity.0 *= doubled;
        world.api.put(Object::Volume(Arc::new(grown)));
        assert_eq!(world.starts_of(OperationName::Expand, 400).await, [0], "{doubled}");
    }
}
