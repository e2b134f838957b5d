//! Staged volumes and directories without their record: a pod that wants the volume identifies them, or the volume's
//! object. Nothing else does.

use std::path::Path;
use std::time::Duration;

use api::error::ErrorClass::Final;
use api::{AccessMode, Kind};
use expect_test::expect;
use host::errno;
use host::fake::{Order, Rule};
use volume_manager::WAIT_LIMIT;
use volume_manager::event::Notice;

use crate::world::{ROOT, World, labelled, unique, volume};

const MOMENT: Duration = Duration::from_millis(100);

/// The number of searches for a volume, and of those that failed.
async fn searches(world: &World) -> (u64, u64) {
    let counters = world.manager.dump().await.expect("it runs").counters;
    let count = |name: &str| counters.get(name).copied().unwrap_or_default();
    (count("lost_searches"), count("lost_search_errors"))
}

/// A staging path belongs to one volume only.
#[tokio::test(start_paused = true)]
async fn a_stage_without_a_record_is_undone_when_its_object_is_found() {
    let mut world = World::starting();
    world.toy.lose_staged("data");
    world.crash();
    world.volume("other");
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[""]]);
    let dump = world.manager.dump().await.expect("it runs");
    expect![[r#"{"/global/data": "its record is lost"}"#]].assert_eq(&format!("{:?}", dump.unexplained));
    world.volume("more");
    world.idle().await;
    assert_eq!(searches(&world).await, (1, 1), "that is not it");
    world.volume("data");
    world.idle().await;
    assert_eq!(searches(&world).await, (2, 1));
    world.sees(expect![[r#"
        unstage data
    "#]]);
    let dump = world.manager.dump().await.expect("it runs");
    assert!(dump.unexplained.is_empty(), "{:?}", dump.unexplained);
}

/// No event reports that the API works again.
#[tokio::test(start_paused = true)]
async fn unidentified_volume_is_looked_up_again_after_an_api_failure() {
    let mut world = World::starting();
    ["data", "more"].iter().for_each(|name| world.volume(name));
    world.toy.lose_staged("data");
    world.left("web", "more");
    world.toy.fail("read back more", &[Final]);
    world.toy.fail("ask for more", &[Final]);
    world.toy.fail("identify more", &[Final]);
    world.crash();
    tokio::time::sleep(MOMENT).await;
    world.api.set_down(Kind::Volume, true);
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[r#"
        identify more
          Final
    "#]]);
    world.api.set_down(Kind::Volume, false);
    world.pass(29_000).await;
    world.sees(expect![[""]]);
    world.pass(2_000).await;
    world.sees(expect![[r#"
        identify more
        unpublish more web
        unstage data
        unstage more
    "#]]);
}

/// The volume may be staged: a final error of a new attempt does not mean that it is not.
#[tokio::test(start_paused = true)]
async fn a_stage_without_a_record_is_uncertain_for_the_pod_that_wants_it() {
    let mut world = World::starting();
    world.volume("data");
    world.toy.lose_staged("data");
    world.toy.fail("stage data", &[Final]);
    world.api.set_down(Kind::Node, true);
    world.crash();
    let web = world.add("web", &["data"]);
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[r#"
        stage data
          Final
    "#]]);
    world.end(&web);
    world.api.set_down(Kind::Node, false);
    world.pass(1000).await;
    world.sees(expect![[r#"
        unstage data
    "#]]);
}

/// It is unknown for which pod the volume was staged, and so with which label.
#[tokio::test(start_paused = true)]
async fn a_stage_without_a_record_is_made_anew_for_a_pod_with_a_label() {
    let mut world = World::starting();
    world.kernel.set_selinux(Path::new("/"), true).expect("it is a mount point");
    let mut alone = volume("data");
    alone.access_modes = vec![AccessMode::ReadWriteOncePod];
    world.put_volume(alone);
    world.toy.lose_staged("data");
    world.crash();
    world.manager.add_pod(labelled("web", "s0:c1"));
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        unstage data
        stage data
        publish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_directory_without_a_record_is_uncertain_for_the_pod_that_wants_it() {
    let mut world = World::starting();
    world.volume("data");
    world.left("web", "data");
    world.toy.fail("read back data", &[Final]);
    world.toy.fail("publish data web", &[Final]);
    world.crash();
    let web = world.add("web", &["data"]);
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[r#"
        stage data
        publish data web
          Final
    "#]]);
    expect![[r#"
        pod web kubernetes.io/toy/data: VolumeMountUncertain
        volume kubernetes.io/toy/data: DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/data"
    "#]].assert_eq(&world.books().await);
    world.end(&web);
    world.idle().await;
    world.sees(expect![[r#"
        unpublish data web
        unstage data
    "#]]);
}

/// The leftover may be any of the volumes in use, and a volume that is no longer listed is detached.
#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_kept_while_leftovers_are_unidentified() {
    let mut world = World::starting();
    world.toy.set_attachable(true);
    world.toy.lose_staged("data");
    world.attach(&["data"]).await;
    world.names_in_use(&["data"]).await;
    world.volume("data");
    world.api.set_down(Kind::Volume, true);
    world.crash();
    world.manager.sources_ready();
    world.idle().await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("data")]));
    world.sees(expect![[""]]);
    world.api.set_down(Kind::Volume, false);
    world.pass(60_000).await;
    world.sees(expect![[r#"
        unstage data
    "#]]);
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![]));
}

/// Until the directory can be read after another restart, its volume may be any of those in use.
#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_kept_while_directories_are_unreadable() {
    for unreadable in ["pods", "pods/web/volumes/kubernetes.io~toy"] {
        let mut world = World::starting();
        world.toy.set_attachable(true);
        world.volume("data");
        world.left("web", "data");
        world.attach(&["data"]).await;
        world.names_in_use(&["data"]).await;
        let at = Path::new(ROOT).join(unreadable);
        world.host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("read_dir").below(at).times(1));
        world.crash();
        world.manager.sources_ready();
        world.idle().await;
        assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("data")]), "{unreadable}");
    }
}

/// The directory may belong to a volume that the actual state does not have.
#[tokio::test(start_paused = true)]
async fn known_volume_does_not_explain_an_unreadable_directory() {
    let mut world = World::starting();
    world.toy.set_attachable(true);
    world.volume("data");
    world.attach(&["data"]).await;
    world.names_in_use(&["data", "other"]).await;
    world.left("web", "other");
    let at = Path::new(ROOT).join("pods/web/volumes");
    world.host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("read_dir").below(at).times(1));
    world.crash();
    world.manager.sources_ready();
    let db = world.run("db", &["data"]).await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("data"), unique("other")]));
    world.end(&db);
    world.idle().await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("other")]));
    // A pod that uses the volume without an attachment does not account for the mount that was left.
    world.toy.set_attachable(false);
    world.volume("other");
    world.run("new", &["other"]).await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("other")]));
}

#[tokio::test(start_paused = true)]
async fn unidentified_volume_is_looked_up_again_for_a_new_volume() {
    let mut world = World::starting();
    world.toy.lose_staged("data");
    world.volume("data");
    world.crash();
    tokio::time::sleep(MOMENT).await;
    world.api.set_down(Kind::Volume, true);
    world.manager.sources_ready();
    world.idle().await;
    assert_eq!(searches(&world).await, (1, 1));
    world.api.set_down(Kind::Volume, false);
    world.volume("other");
    world.idle().await;
    world.sees(expect![[r#"
        unstage data
    "#]]);
}

/// A volume that is listed only because of a leftover leaves the list when the leftover is identified.
#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_updated_when_leftovers_are_identified() {
    for wanted in [false, true] {
        let mut world = World::starting();
        world.toy.lose_staged("data");
        world.names_in_use(&["other"]).await;
        world.crash();
        let mut notices = world.listen();
        world.idle().await;
        let mut lists = || {
            let all = std::iter::from_fn(|| notices.try_recv().ok());
            let lists = all.filter_map(|notice| match notice {
                Notice::InUse(volumes) => Some(volumes),
                _ => None,
            });
            lists.collect::<Vec<_>>()
        };
        assert_eq!(lists(), [[unique("other")]]);
        if wanted {
            world.volume("data");
            world.run("web", &["data"]).await;
        } else {
            world.manager.sources_ready();
            world.idle().await;
        }
        assert_eq!(lists(), [[]], "{wanted}");
    }
}

/// A pod that comes while the stage cannot be undone yet does not stage over it with a label of its own.
#[tokio::test(start_paused = true)]
async fn stage_of_unknown_label_is_undone_before_a_pod_with_a_label_uses_it() {
    let mut world = World::starting();
    world.kernel.set_selinux(Path::new("/"), true).expect("it is a mount point");
    let mut alone = volume("data");
    alone.access_modes = vec![AccessMode::ReadWriteOncePod];
    world.put_volume(alone);
    world.toy.lose_staged("data");
    world.toy.fail("unstage data", &[Final]);
    world.crash();
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.manager.add_pod(labelled("web", "s0:c1"));
    world.idle().await;
    world.sees(expect![[r#"
        unstage data
          Final
    "#]]);
    world.pass(1000).await;
    world.sees(expect![[r#"
        unstage data
        stage data
        publish data web
    "#]]);
}

/// The pod's directory shows that the volume was staged for the pod, and so with its label. No other pod has one.
#[tokio::test(start_paused = true)]
async fn a_stage_without_a_record_is_the_pods_whose_directory_is_there() {
    for (left, anew) in [("data", false), ("other", true)] {
        let mut world = World::starting();
        world.kernel.set_selinux(Path::new("/"), true).expect("it is a mount point");
        let mut alone = volume("data");
        alone.access_modes = vec![AccessMode::ReadWriteOncePod];
        world.put_volume(alone);
        world.toy.lose_staged("data");
        world.left("web", left);
        world.toy.fail(&format!("read back {left}"), &[Final]);
        world.crash();
        world.manager.add_pod(labelled("web", "s0:c1"));
        world.manager.sources_ready();
        world.idle().await;
        let unstaged = if anew { "unstage data\n" } else { "" };
        assert_eq!(world.toy.story(), format!("{unstaged}stage data\npublish data web\n"));
    }
}

#[tokio::test(start_paused = true)]
async fn wanted_volume_does_not_explain_another_pods_directory() {
    let mut world = World::starting();
    world.volume("data");
    ["web", "db"].iter().for_each(|pod| world.left(pod, "data"));
    world.toy.fail("read back data", &[Final, Final]);
    world.crash();
    world.add("web", &["data"]);
    world.manager.sources_ready();
    world.idle().await;
    let gone = world
        .manager
        .wait_unmounted(&"db".into(), WAIT_LIMIT)
        .await
        .expect_err("the pod's volumes are unknown");
    expect!["mounted volumes=[data]: context deadline exceeded"].assert_eq(&gone.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_stage_without_a_record_is_not_that_of_a_pod_because_another_has_a_directory() {
    let mut world = World::starting();
    world.kernel.set_selinux(Path::new("/"), true).expect("it is a mount point");
    let mut alone = volume("data");
    alone.access_modes = vec![AccessMode::ReadWriteOncePod];
    world.put_volume(alone);
    world.toy.lose_staged("data");
    world.left("db", "data");
    world.toy.fail("read back data", &[Final]);
    world.toy.fail("identify data", &[Final]);
    world.crash();
    world.manager.add_pod(labelled("web", "s0:c1"));
    world.manager.sources_ready();
    world.pass(1000).await;
    world.sees(expect![[r#"
        identify data
        unpublish data db
        unstage data
        stage data
        publish data web
    "#]]);
}

/// The pods that may have the volume lose it, whether a pod that wants it identifies it or its object does.
#[tokio::test(start_paused = true)]
async fn a_stage_without_a_record_leaves_the_pods_that_may_have_it() {
    for wanted in [false, true] {
        let mut world = World::starting();
        world.volume("data");
        world.toy.lose_staged_for("data", &["db"]);
        world.crash();
        if wanted {
            world.add("web", &["data"]);
        }
        world.manager.sources_ready();
        world.manager.wait_unmounted(&"db".into(), WAIT_LIMIT).await.expect("nothing stands in the way");
        world.idle().await;
        world.sees(if wanted {
            expect![[r#"
                stage data
                publish data web
                unpublish data db
            "#]]
        } else {
            expect![[r#"
                unpublish data db
                unstage data
            "#]]
        });
    }
}
