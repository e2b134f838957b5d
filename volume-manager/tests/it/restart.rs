//! After a restart: reconstructed volumes, their waits, and their end.

mod left;
mod lost;
mod searched;
mod taken;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::error::ErrorClass::{Final, Transient, Uncertain};
use api::object::Bytes;
use api::{Kind, Object, Volume};
use expect_test::expect;
use volume_manager::{PodState, WAIT_LIMIT};

use crate::world::{ROOT, World, unique, volume};

/// A node that has just started and was left `data` in `web`.
fn found() -> World {
    let mut world = World::starting();
    world.volume("data");
    world.left("web", "data");
    world.crash();
    world
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_went_meanwhile_loses_its_volume() {
    let world = found();
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        unpublish data web
        unstage data
    "#]]);
    expect![[""]].assert_eq(&world.books().await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_still_runs_gets_its_volume_again_and_loses_nothing() {
    let world = found();
    world.add("web", &["data"]);
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_read_back_later_than_its_pod_is_looked_at_grows_all_the_same() {
    let mut world = World::starting();
    world.volume("data");
    world.api.put(Object::Volume(Arc::new(Volume { capacity: Bytes(2 << 20), ..volume("data") })));
    world.says_of_its_growth("ControllerResizeInProgress").await;
    world.left("web", "data");
    world.toy.hold("read back data");
    world.crash();
    world.add("web", &["data"]);
    world.manager.sources_ready();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.toy.release("read back data");
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
    world.says_of_its_growth("NodeResizePending").await;
    world.idle().await;
    world.sees(expect![[r#"
        expand data from 1Mi to 2Mi
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_unmounted_before_all_pods_are_known() {
    let world = found();
    world.pass(60_000).await;
    world.sees(expect![[""]]);
    expect![[r#"
        pod web kubernetes.io/toy/data: VolumeMountUncertain
        volume kubernetes.io/toy/data: DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"
    "#]].assert_eq(&world.books().await);
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![]), "the node's object was read");
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        unpublish data web
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_later_hold_up_nothing() {
    let mut world = World::starting();
    ["data", "mine", "other"].iter().for_each(|name| world.volume(name));
    world.left("gone", "data");
    world.api.set_silent(Kind::Volume, true);
    world.crash();
    world.add("web", &["mine"]);
    world.manager.sources_ready();
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.api.set_silent(Kind::Claim, true);
    world.add("new", &["other"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.sees(expect![[""]]);
    world.api.set_silent(Kind::Volume, false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.sees(expect![[r#"
        unpublish data gone
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_unmounted_before_the_node_was_read_but_mounts_go_on() {
    let mut world = World::starting();
    world.volume("data");
    world.volume("new");
    world.left("web", "data");
    world.api.set_down(Kind::Node, true);
    world.crash();
    world.manager.sources_ready();
    world.add("other", &["new"]);
    world.pass(60_000).await;
    world.sees(expect![[r#"
        stage new
        publish new other
    "#]]);
    assert_eq!(world.manager.volumes_in_use().await, None, "the old value must stay");
    world.api.set_down(Kind::Node, false);
    world.pass(1000).await;
    world.sees(expect![[r#"
        unpublish data web
        unstage data
    "#]]);
}

/// The volume was detached by force. The kubelet would mount it again before it is attached, and report it as not in
/// use as soon as no pod wants it.
#[tokio::test(start_paused = true)]
async fn volume_detached_by_force_is_attached_again_before_use() {
    let world = found();
    world.toy.set_attachable(true);
    world.add("web", &["data"]);
    world.manager.sources_ready();
    world.idle().await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    world.pass(60_000).await;
    world.sees(expect![[""]]);
    world.attach(&["data"]).await;
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
    world.toy.hold("unpublish data web");
    world.end(&"web".into());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("data")]));
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_whose_claim_cannot_be_read_keeps_its_volume() {
    let mut world = World::starting();
    world.volume("data");
    world.left("web", "data");
    world.api.set_down(Kind::Claim, true);
    world.crash();
    world.add("web", &["data"]);
    world.manager.sources_ready();
    world.pass(60_000).await;
    world.sees(expect![[""]]);
    world.api.set_down(Kind::Claim, false);
    world.pass(122_000).await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_ending_at_the_start_keeps_its_volume_until_it_has() {
    let world = found();
    let web = world.add("web", &["data"]);
    world.manager.set_pod_state(&web, PodState::Terminating);
    world.manager.sources_ready();
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
}

#[tokio::test(start_paused = true)]
async fn reconstructed_volume_stays_uncertain_after_a_failure() {
    let world = found();
    let web = world.add("web", &["data"]);
    world.toy.fail("publish data web", &[Final]);
    world.manager.sources_ready();
    world.idle().await;
    expect![[r#"
        pod web kubernetes.io/toy/data: VolumeMountUncertain
        volume kubernetes.io/toy/data: DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/data"
    "#]].assert_eq(&world.books().await);
    world.end(&web);
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
          Final
        unpublish data web
        unstage data
    "#]]);
}

/// The kubelet forgets a staged volume without pods.
#[tokio::test(start_paused = true)]
async fn staged_volume_without_pods_is_unstaged() {
    let mut world = World::starting();
    world.toy.leave_staged("data");
    world.crash();
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_explains_nothing_is_explained_by_other_means() {
    let mut world = World::starting();
    world.left("web", "data");
    world.crash();
    world.toy.fail("read back data", &[Final]);
    world.toy.fail("identify data", &[Final]);
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        identify data
        unpublish data web
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn unidentified_mount_stays_and_is_remembered() {
    let mut world = World::starting();
    world.left("web", "data");
    world.left("web", "other");
    world.crash();
    world.toy.fail("read back data", &[Final]);
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        identify data
        unpublish other web
        unstage other
    "#]]);
    let left = world.manager.wait_unmounted(&"web".into(), WAIT_LIMIT).await.expect_err("data is left");
    expect!["mounted volumes=[data]: context deadline exceeded"].assert_eq(&left.to_string());
    world.toy.fail("identify data", &[Final]);
    world.volume("data");
    world.idle().await;
    world.sees(expect![[r#"
        identify data
        unpublish data web
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_explains_nothing_and_holds_nothing_is_left_to_the_sweep() {
    let mut world = World::starting();
    world.left_unmounted("web", "data");
    world.crash();
    world.toy.fail("read back data", &[Final]);
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[""]]);
    world.manager.wait_unmounted(&"web".into(), WAIT_LIMIT).await.expect("nothing is mounted");
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_explains_nothing_is_adopted_by_the_pod_that_wants_it() {
    let mut world = World::starting();
    world.volume("data");
    world.left("web", "data");
    world.crash();
    world.toy.fail("read back data", &[Final]);
    let web = world.add("web", &["data"]);
    world.manager.sources_ready();
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
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_explains_nothing_is_left_alone_while_it_is_worked_on() {
    let mut world = World::starting();
    world.volume("data");
    world.left("web", "data");
    world.crash();
    world.toy.fail("read back data", &[Final]);
    world.toy.fail("identify data", &[Final]);
    world.toy.fail("stage data", &[Transient]);
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    world.manager.sources_ready();
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.end(&web);
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.sees(expect![[r#"
        stage data
    "#]]);
    world.toy.release("stage data");
    world.idle().await;
    world.sees(expect![[r#"
          Transient
        unpublish data web
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn garbage_below_the_root_stands_for_nothing() {
    let mut world = World::starting();
    let pods = Path::new(ROOT).join("pods");
    world.left("web", "data");
    let unknown = pods.join("no/volumes/unknown~plugin/x");
    let kernel = &world.kernel;
    kernel.write_file(&pods.join("file"), b"", 0o644).expect("it is writable");
    kernel.make_dir_all(&unknown, 0o750).expect("it is writable");
    kernel.symlink(Path::new("/"), &pods.join("web/volumes/kubernetes.io~toy/link")).expect("it is writable");
    kernel.symlink(Path::new("/"), &pods.join("linked")).expect("it is writable");
    // These links lead to another pod's volumes, and a directory whose name is not text was not made by the kubelet.
    let theirs = pods.join("thief/volumes");
    kernel.make_dir_all(&pods.join("thief"), 0o750).expect("it is writable");
    kernel.symlink(&pods.join("web/volumes"), &theirs).expect("it is writable");
    kernel.symlink(&theirs, &pods.join("thief/volumeDevices")).expect("it is writable");
    kernel.symlink(Path::new("loop"), &pods.join("loop")).expect("it is writable");
    kernel.make_dir_all(&pods.join("odd"), 0o750).expect("it is writable");
    kernel.write_file(&pods.join("odd/volumes"), b"", 0o644).expect("it is writable");
    let unreadable = pods.join(OsStr::from_bytes(b"\xff")).join("volumes/kubernetes.io~toy/data");
    kernel.make_dir_all(&unreadable, 0o750).expect("it is writable");
    world.crash();
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        unpublish data web
        unstage data
    "#]]);
    let dump = world.manager.dump().await.expect("it runs");
    let unexplained: Vec<_> = dump.unexplained.values().collect();
    expect![[r#"
        []
    "#]]
    .assert_debug_eq(&unexplained);
}

/// A crash at any await leaves records from which every step can be undone.
#[tokio::test(start_paused = true)]
async fn a_crash_while_staging_forgets_nothing() {
    let mut world = World::new().await;
    world.volume("data");
    world.toy.hold("stage data");
    world.add("web", &["data"]);
    let late = world.manager.wait_idle(std::time::Duration::from_secs(1)).await;
    late.expect_err("the stage is held");
    world.toy.leave_staged("data");
    world.crash();
    world.toy.release("stage data");
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        unstage data
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn failures_after_a_restart_climb_the_same_ladder() {
    let world = found();
    world.toy.fail("unpublish data web", &[Transient, Uncertain]);
    world.manager.sources_ready();
    world.pass(1500).await;
    world.sees(expect![[r#"
        unpublish data web
          Transient
        unpublish data web
          Uncertain
        unpublish data web
        unstage data
    "#]]);
}
