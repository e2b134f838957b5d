//! Directories without an identity: when the manager looks up their volume, and what it reports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::error::ErrorClass::{Final, Transient};
use api::{Kind, Object, PersistentSource, Volume};
use expect_test::expect;
use host::errno;
use host::fake::{Order, Rule};
use volume_manager::WAIT_LIMIT;
use volume_manager::event::Notice;

use crate::world::{ROOT, World, unique, volume};

const MOMENT: Duration = Duration::from_millis(100);

/// A node that has just started and finds an unidentified directory of `web` that is named after `data`.
fn unexplained() -> World {
    let mut world = World::starting();
    world.left("web", "data");
    world.toy.fail("read back data", &[Final]);
    world.crash();
    world
}

/// The number of look-ups for the volume of a directory, and of those that failed.
async fn searches(world: &World) -> (u64, u64) {
    let counters = world.manager.dump().await.expect("it runs").counters;
    let count = |name: &str| counters.get(name).copied().unwrap_or_default();
    (count("orphan_searches"), count("orphan_search_errors"))
}

/// The unidentified leftover of `web`.
async fn left_of_web(world: &World) -> Option<String> {
    let gone = world.manager.wait_unmounted(&"web".into(), WAIT_LIMIT).await;
    gone.err().map(|left| left.to_string())
}

/// A link in `web` for a device that is bound for the pod.
fn left_bound(world: &World, inner: &str) {
    let root = Path::new(ROOT);
    let link = root.join("pods/web/volumeDevices/kubernetes.io~toy").join(inner);
    let bound = root.join("plugins/kubernetes.io~toy").join(inner).join("dev/web");
    let kernel = &world.kernel;
    kernel.make_dir_all(link.parent().expect("it is below the root"), 0o750).expect("it is writable");
    kernel.symlink(Path::new("/dev/disk"), &link).expect("it is writable");
    kernel.make_dir_all(&bound, 0o750).expect("it is writable");
    kernel.mount("tmpfs", &bound, "tmpfs", &[]).expect("the directory is there");
}

/// A local volume that is mounted in `web`.
fn left_local(world: &World, inner: &str) {
    let path = Path::new(ROOT).join("pods/web/volumes/kubernetes.io~local-volume").join(inner);
    world.kernel.make_dir_all(&path, 0o750).expect("it is writable");
    world.kernel.mount("tmpfs", &path, "tmpfs", &[]).expect("the directory is there");
}

/// A pod that is not known yet may identify the directory.
#[tokio::test(start_paused = true)]
async fn lookup_waits_until_all_pods_are_populated() {
    let world = unexplained();
    world.volume("more");
    world.api.set_silent(Kind::Claim, true);
    world.add("other", &["more"]);
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[""]]);
    world.api.set_silent(Kind::Claim, false);
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[r#"
        identify data
        stage more
        publish more other
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn lookup_waits_until_the_node_is_read() {
    let world = unexplained();
    world.api.set_down(Kind::Node, true);
    world.manager.sources_ready();
    tokio::time::sleep(10 * MOMENT).await;
    world.sees(expect![[""]]);
    world.api.set_down(Kind::Node, false);
    world.pass(1000).await;
    world.sees(expect![[r#"
        identify data
    "#]]);
}

/// A running operation may be about this directory. It does not delay directories of other names.
#[tokio::test(start_paused = true)]
async fn lookup_skips_volumes_with_an_operation() {
    let mut world = World::starting();
    world.volume("data");
    world.left("web", "data");
    ["data", "other"].iter().for_each(|inner| left_bound(&world, inner));
    world.toy.hold("stage data");
    world.toy.fail("stage data", &[Transient]);
    world.crash();
    let web = world.add("web", &["data"]);
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.end(&web);
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[r#"
        stage data
        identify other
    "#]]);
    world.toy.release("stage data");
    world.idle().await;
    world.sees(expect![[r#"
          Transient
        identify data
        unpublish data web
        unstage data
    "#]]);
}

/// The look-up found nothing, and will find nothing until a volume of that name appears.
#[tokio::test(start_paused = true)]
async fn unidentified_directory_is_looked_up_again_only_when_its_volume_appears() {
    let world = unexplained();
    world.manager.sources_ready();
    world.idle().await;
    assert_eq!(searches(&world).await, (1, 1));
    world.volume("other");
    world.pass(60_000).await;
    assert_eq!(searches(&world).await, (1, 1));
    world.toy.fail("identify data", &[Final]);
    world.volume("data");
    world.idle().await;
    assert_eq!(searches(&world).await, (2, 1));
    world.sees(expect![[r#"
        identify data
        identify data
        unpublish data web
        unstage data
    "#]]);
}

/// The plugin may have answered before the volume appeared. A volume with another name changes nothing.
#[tokio::test(start_paused = true)]
async fn volume_added_during_a_lookup_is_looked_up_again() {
    let world = unexplained();
    world.toy.hold("identify data");
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.volume("data");
    world.volume("other");
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[r#"
        identify data
    "#]]);
    world.toy.release("identify data");
    world.pass(60_000).await;
    assert_eq!(searches(&world).await, (2, 2));
}

/// The list was made before the volume appeared.
#[tokio::test(start_paused = true)]
async fn a_volume_that_appears_while_the_volumes_are_listed_explains_a_stage_without_a_record() {
    let mut world = World::starting();
    world.toy.lose_staged("data");
    world.crash();
    tokio::time::sleep(MOMENT).await;
    world.api.set_late(Kind::Volume, true);
    world.manager.sources_ready();
    tokio::time::sleep(MOMENT).await;
    world.volume("data");
    tokio::time::sleep(MOMENT).await;
    world.sees(expect![[""]]);
    world.api.set_late(Kind::Volume, false);
    world.pass(1000).await;
    world.sees(expect![[r#"
        unstage data
    "#]]);
}

/// The last error counts.
#[tokio::test(start_paused = true)]
async fn unidentified_directory_reports_the_error_of_its_lookup() {
    for (asked, expected) in
        [(true, expect!["read back data fails on order"]), (false, expect!["ask for data fails on order"])]
    {
        let world = unexplained();
        if !asked {
            world.toy.fail("ask for data", &[Final]);
        }
        world.manager.sources_ready();
        world.idle().await;
        let dump = world.manager.dump().await.expect("it runs");
        let why: Vec<_> = dump.unexplained.into_values().collect();
        expected.assert_eq(&why.join(" "));
    }
}

/// The wait ends with the search.
#[tokio::test(start_paused = true)]
async fn waiter_returns_when_the_pods_directory_is_unexplained() {
    let mut world = World::starting();
    let path = world.left_unmounted("web", "data");
    world.kernel.write_file(&path.join("file"), b"", 0o644).expect("it is writable");
    world.toy.fail("read back data", &[Final]);
    world.toy.hold("identify data");
    world.crash();
    world.manager.sources_ready();
    let web = "web".into();
    let wait = world.manager.wait_unmounted(&web, WAIT_LIMIT);
    tokio::pin!(wait);
    tokio::time::timeout(MOMENT, &mut wait).await.expect_err("a search for the volume is under way");
    world.toy.release("identify data");
    let ended = tokio::time::timeout(MOMENT, wait).await.expect("the wait ends at once");
    ended.expect("nothing is mounted");
}

/// A volume that is listed only because of a leftover leaves the list when the look-up ends.
#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_updated_when_a_lookup_ends() {
    let world = unexplained();
    world.names_in_use(&["other"]).await;
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
    world.manager.sources_ready();
    world.idle().await;
    assert_eq!(lists(), [[]]);
}

/// The directory may have the files that a plugin needs to identify the volume.
#[tokio::test(start_paused = true)]
async fn a_directory_that_is_not_mounted_on_and_not_empty_is_looked_into() {
    let mut world = World::starting();
    let path = world.left_unmounted("web", "data");
    world.kernel.write_file(&path.join("file"), b"", 0o644).expect("it is writable");
    world.toy.fail("read back data", &[Final]);
    world.toy.fail("identify data", &[Final]);
    world.crash();
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        identify data
        unpublish data web
        unstage data
    "#]]);
}

/// The link is not followed: its target says nothing about the pod.
#[tokio::test(start_paused = true)]
async fn a_link_that_leads_to_an_empty_directory_is_looked_into() {
    let mut world = World::starting();
    let link = Path::new(ROOT).join("pods/web/volumeDevices/kubernetes.io~toy/disk");
    let (kernel, empty) = (&world.kernel, Path::new("/empty"));
    kernel.make_dir_all(link.parent().expect("it is below the root"), 0o750).expect("it is writable");
    kernel.make_dir_all(empty, 0o750).expect("it is writable");
    kernel.symlink(empty, &link).expect("it is writable");
    world.crash();
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        identify disk
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_directory_may_be_mounted_on_where_the_mounts_cannot_be_read() {
    let world = unexplained();
    world.host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("mount_table"));
    world.manager.sources_ready();
    world.idle().await;
    expect!["mounted volumes=[data]: context deadline exceeded"]
        .assert_eq(&left_of_web(&world).await.expect("something may be mounted"));
}

/// A directory of the pod's volume may be there as well, and be explained.
#[tokio::test(start_paused = true)]
async fn wanted_volume_does_not_explain_another_plugins_directory() {
    for both in [false, true] {
        let mut world = World::starting();
        world.volume("data");
        left_local(&world, "data");
        world.host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("mount_table").times(1));
        if both {
            world.left("web", "data");
            world.toy.fail("read back data", &[Final]);
        }
        world.toy.fail("stage data", &[Final]);
        world.crash();
        let web = world.add("web", &["data"]);
        world.manager.sources_ready();
        tokio::time::sleep(MOMENT).await;
        world.sees(expect![[r#"
            stage data
              Final
        "#]]);
        world.end(&web);
        world.idle().await;
        world.sees(if both {
            expect![[r#"
                unpublish data web
                unstage data
            "#]]
        } else {
            expect![[""]]
        });
        expect!["mounted volumes=[data]: context deadline exceeded"]
            .assert_eq(&left_of_web(&world).await.expect("the local volume is mounted"));
    }
}

/// The name alone does not identify the staged volume.
#[tokio::test(start_paused = true)]
async fn a_stage_without_a_record_is_not_that_of_another_plugins_volume() {
    let mut world = World::starting();
    world.toy.lose_staged("data");
    world.crash();
    let source = PersistentSource::Local { path: "/disk".to_owned(), fs_type: String::new() };
    world.api.put(Object::Volume(Arc::new(Volume { source, ..volume("data") })));
    world.manager.sources_ready();
    world.pass(60_000).await;
    world.sees(expect![[""]]);
    let dump = world.manager.dump().await.expect("it runs");
    expect![[r#"{"/global/data": "its record is lost"}"#]].assert_eq(&format!("{:?}", dump.unexplained));
}

/// The volume's driver does not stage.
#[tokio::test(start_paused = true)]
async fn a_directory_of_a_volume_that_is_not_staged_explains_no_stage() {
    let mut world = World::starting();
    world.volume("data");
    world.toy.set_stages(false);
    world.left("web", "data");
    world.toy.fail("read back data", &[Final]);
    world.crash();
    let web = world.add("web", &["data"]);
    world.manager.sources_ready();
    world.idle().await;
    world.end(&web);
    world.idle().await;
    world.sees(expect![[r#"
        publish data web
        unpublish data web
    "#]]);
}

/// The directory could not be reconstructed, but the plugin's staged volume for the pod was.
#[tokio::test(start_paused = true)]
async fn a_directory_is_explained_by_what_is_staged_for_its_pod() {
    for pod in ["web", "db"] {
        let mut world = World::starting();
        world.left("web", "data");
        world.toy.leave_staged_for("data", &[pod]);
        world.toy.fail("read back data", &[Final]);
        world.crash();
        world.manager.sources_ready();
        world.idle().await;
        let identified = if pod == "web" { "" } else { "identify data\n" };
        assert_eq!(world.toy.story(), format!("{identified}unpublish data {pod}\nunstage data\n"));
        assert_eq!(left_of_web(&world).await.is_some(), pod == "db");
    }
}
