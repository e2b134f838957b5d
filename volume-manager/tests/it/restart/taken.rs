//! Leftovers once they are reconstructed: notices, look-ups and wake-ups.

use std::time::Duration;

use api::Kind;
use api::error::ErrorClass::Final;
use expect_test::expect;
use volume_manager::WAIT_LIMIT;
use volume_manager::event::Notice;

use crate::world::{World, unique};

const MOMENT: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// A listener for state changes gets all volumes of the actual state.
#[tokio::test(start_paused = true)]
async fn reconstructed_volumes_are_reported_as_state_changes() {
    let mut world = World::starting();
    world.toy.set_attachable(true);
    world.attach(&["data"]).await;
    ["web", "db"].iter().for_each(|pod| world.left(pod, "data"));
    world.toy.leave_staged("alone");
    world.crash();
    let mut notices = world.listen();
    world.idle().await;
    let changes = std::iter::from_fn(|| notices.try_recv().ok()).filter_map(|notice| match notice {
        Notice::State { world, key, from, to } => Some(format!("{world} {key}: [{from}] to [{to}]\n")),
        _ => None,
    });
    expect![[r#"
        actual volume kubernetes.io/toy/data: [] to [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"]
        actual pod db kubernetes.io/toy/data: [] to [VolumeMountUncertain]
        actual pod web kubernetes.io/toy/data: [] to [VolumeMountUncertain]
        actual volume kubernetes.io/toy/alone: [] to [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/alone"]
        actual volume kubernetes.io/toy/data: [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"] to [DeviceMountUncertain attachable=true devicePath="" deviceMountPath="/global/data"]
    "#]].assert_eq(&changes.collect::<String>());
}

#[tokio::test(start_paused = true)]
async fn reconstructed_and_unidentified_volumes_are_counted() {
    let mut world = World::starting();
    ["web", "db"].iter().for_each(|pod| world.left(pod, "data"));
    world.left("web", "more");
    world.toy.fail("read back more", &[Final]);
    world.toy.lose_staged("lost");
    world.crash();
    world.idle().await;
    let counters = world.manager.dump().await.expect("it runs").counters;
    assert_eq!((counters["reconstructed"], counters["reconstruct_errors"]), (2, 2));
}

/// No other event wakes the manager meanwhile.
#[tokio::test(start_paused = true)]
async fn node_object_that_could_not_be_read_is_read_again_after_a_pause() {
    let mut world = World::starting();
    world.left("web", "data");
    world.toy.hold("read back data");
    world.crash();
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.api.set_down(Kind::Node, true);
    world.toy.release("read back data");
    tokio::time::sleep(MOMENT).await;
    world.api.set_down(Kind::Node, false);
    world.sees(expect![[""]]);
    tokio::time::sleep(SECOND).await;
    world.sees(expect![[r#"
        unpublish data web
        unstage data
    "#]]);
}

/// No other event wakes the manager meanwhile.
#[tokio::test(start_paused = true)]
async fn failed_lookup_of_a_directory_is_repeated_after_a_pause() {
    let mut world = World::starting();
    world.left("web", "data");
    world.toy.fail("read back data", &[Final]);
    world.toy.fail("ask for data", &[Final]);
    world.toy.fail("identify data", &[Final]);
    world.crash();
    world.manager.sources_ready();
    tokio::time::sleep(29 * SECOND).await;
    world.sees(expect![[r#"
        identify data
          Final
    "#]]);
    tokio::time::sleep(2 * SECOND).await;
    world.sees(expect![[r#"
        identify data
        unpublish data web
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn the_node_is_asked_once_at_a_time() {
    let mut world = World::starting();
    world.left("web", "data");
    world.api.set_silent(Kind::Node, true);
    world.crash();
    let before = world.api.reads(Kind::Node);
    world.manager.sources_ready();
    for name in ["data", "more", "other"] {
        world.volume(name);
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(world.api.reads(Kind::Node) - before, 1);
    world.api.set_silent(Kind::Node, false);
    world.idle().await;
    world.sees(expect![[r#"
        unpublish data web
        unstage data
    "#]]);
    assert_eq!(world.api.reads(Kind::Node) - before, 1);
}

/// The unidentified directory may be another volume of its pod, which must not be unmounted. Other pods do not have it.
#[tokio::test(start_paused = true)]
async fn only_pods_that_may_have_an_unidentified_volume_wait_for_it() {
    let mut world = World::starting();
    world.toy.lose_staged_for("lost", &["db"]);
    world.left("web", "data");
    world.toy.fail("read back data", &[Final]);
    world.crash();
    world.manager.sources_ready();
    let ends = async |pod: &str| {
        let ended = world.manager.wait_unmounted(&pod.into(), WAIT_LIMIT).await;
        ended.map_or_else(|error| error.to_string(), |()| "nothing".to_owned())
    };
    expect!["mounted volumes=[/global/lost]: context deadline exceeded"].assert_eq(&ends("db").await);
    expect!["mounted volumes=[data]: context deadline exceeded"].assert_eq(&ends("web").await);
    assert_eq!(ends("other").await, "nothing");
}

/// The volume may be staged, even if staging fails with a final error.
#[tokio::test(start_paused = true)]
async fn volume_wanted_before_recovery_ended_explains_its_directory() {
    let mut world = World::starting();
    ["data", "more"].iter().for_each(|name| world.volume(name));
    world.toy.lose_staged("data");
    world.toy.fail("stage data", &[Final]);
    world.left("gone", "more");
    world.toy.hold("read back more");
    world.crash();
    world.add("web", &["data"]);
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[""]]);
    world.toy.release("read back more");
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[r#"
        stage data
          Final
    "#]]);
    expect![[r#"
        pod gone kubernetes.io/toy/more: VolumeMountUncertain
        volume kubernetes.io/toy/data: DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"
        volume kubernetes.io/toy/more: DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/more"
    "#]].assert_eq(&world.books().await);
    let dump = world.manager.dump().await.expect("it runs");
    assert!(dump.unexplained.is_empty(), "{:?}", dump.unexplained);
}

/// The first pod has the volume already, and its files are not written again.
#[tokio::test(start_paused = true)]
async fn volume_resolved_for_a_pod_is_not_refreshed_for_another() {
    let mut world = World::starting();
    world.volume("data");
    world.left("gone", "data");
    world.toy.fail("read back data", &[Final]);
    world.toy.fail("identify data", &[Final]);
    world.toy.hold("identify data");
    world.crash();
    world.manager.sources_ready();
    world.add("web", &["data"]);
    tokio::time::sleep(SECOND).await;
    world.sees(expect![[r#"
        identify data
        stage data
        publish data web
    "#]]);
    world.toy.set_remounts(true);
    world.toy.release("identify data");
    tokio::time::sleep(SECOND).await;
    world.sees(expect![[r#"
        unpublish data gone
    "#]]);
}

/// The controller may have attached the volume before the node's object lists it.
#[tokio::test(start_paused = true)]
async fn reconstructed_volume_that_is_not_listed_as_attached_is_in_use_until_it_is_gone() {
    let mut world = World::starting();
    world.toy.set_attachable(true);
    world.names_in_use(&["data", "other"]).await;
    world.left("web", "data");
    world.toy.lose_staged("lost");
    world.crash();
    world.idle().await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("data"), unique("other")]));
    world.manager.sources_ready();
    world.idle().await;
    assert_eq!(world.manager.volumes_in_use().await, Some(Vec::new()));
}

/// A node that follows no objects never learns that all CSIDriver objects are known.
#[tokio::test(start_paused = true)]
async fn a_node_that_follows_no_objects_does_not_wait_for_those_of_drivers() {
    for follows in [true, false] {
        let mut world = World::starting();
        world.volume("data");
        world.api.set_down(Kind::CsiDriver, true);
        match follows {
            true => world.crash(),
            false => world.crash_and_follow_nothing(),
        }
        world.manager.sources_ready();
        world.add("web", &["data"]);
        tokio::time::sleep(60 * SECOND).await;
        world.sees(if follows {
            expect![[""]]
        } else {
            expect![[r#"
                stage data
                publish data web
            "#]]
        });
    }
}
