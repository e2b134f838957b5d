//! Recovery of leftovers: no operation starts before they are read, and an unidentified leftover holds back the unstage
//! of each volume that it may belong to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Kind;
use api::error::ErrorClass::Final;
use expect_test::expect;
use host::errno;
use host::fake::{Order, Rule};
use volume_manager::{PodState, WAIT_LIMIT};

use crate::world::{ROOT, World, unique};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn no_operation_starts_before_reconstruction() {
    let mut world = World::starting();
    world.volume("data");
    world.left("web", "data");
    let pods = Path::new(ROOT).join("pods");
    world.host.faults().add(Rule::new(Order::Delay(SECOND)).on("read_dir").below(pods).times(1));
    world.crash();
    world.add("new", &["data"]);
    world.manager.sources_ready();
    let late = world.manager.wait_idle(SECOND / 2).await.expect_err("reconstruction has not finished");
    expect!["the manager is not idle: reconstruct volumes from disk: context deadline exceeded"]
        .assert_eq(&late.to_string());
    let left = world.manager.wait_unmounted(&"gone".into(), SECOND / 10).await;
    expect!["mounted volumes=[volumes on disk that are not reconstructed yet]: context deadline exceeded"]
        .assert_eq(&left.expect_err("the volumes of the pod are not known yet").to_string());
    world.sees(expect![[""]]);
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data new
        unpublish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn staged_volume_without_a_pod_stays_until_all_pods_are_known() {
    let mut world = World::starting();
    world.toy.leave_staged("data");
    world.crash();
    world.pass(60_000).await;
    world.sees(expect![[""]]);
    world.manager.sources_ready();
    world.idle().await;
    world.sees(expect![[r#"
        unstage data
    "#]]);
}

/// The pods that use the staged volume cannot be known.
#[tokio::test(start_paused = true)]
async fn staged_volume_stays_if_the_pods_directory_is_unreadable() {
    for readable in [false, true] {
        let mut world = World::starting();
        world.left("web", "data");
        world.toy.leave_staged("data");
        let pods = Path::new(ROOT).join("pods");
        if !readable {
            world.host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("read_dir").below(&pods).times(1));
        }
        world.crash();
        world.manager.sources_ready();
        world.pass(60_000).await;
        world.sees(if readable {
            expect![[r#"
                unpublish data web
                unstage data
            "#]]
        } else {
            expect![[""]]
        });
    }
}

/// The staged volume may belong to the pod whose directory is unreadable. Volumes of other pods are reconstructed.
#[tokio::test(start_paused = true)]
async fn staged_volume_stays_if_the_directory_of_its_pod_is_unreadable() {
    for unreadable in ["web", "web/volumes", "web/volumes/kubernetes.io~toy"] {
        let mut world = World::starting();
        world.left("web", "data");
        world.left("db", "other");
        world.toy.leave_staged("data");
        let at = Path::new(ROOT).join("pods").join(unreadable);
        world.host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("read_dir").below(&at).times(1));
        world.crash();
        world.manager.sources_ready();
        world.pass(60_000).await;
        world.sees(expect![[r#"
            unpublish other db
            unstage other
        "#]]);
    }
}

/// `volumesInUse` is not written before the Node object is read: the controller may detach a volume that it lacks.
#[tokio::test(start_paused = true)]
async fn reconstructed_volume_is_attached_if_the_node_status_lists_it() {
    for attached in [&[][..], &["data"]] {
        let mut world = World::starting();
        world.volume("data");
        world.toy.set_attachable(true);
        world.attach(attached).await;
        world.left("web", "data");
        world.crash();
        world.idle().await;
        let in_use = world.manager.volumes_in_use().await.expect("the node's object was read");
        assert_eq!(in_use, attached.iter().map(|name| unique(name)).collect::<Vec<_>>());
        let is = format!("DeviceMountUncertain attachable={}", !attached.is_empty());
        let books = world.books().await;
        assert!(books.contains(&is), "{books}");
    }
}

/// The Node object is read after the mount has begun, and does not yet list the volume that the mount found attached.
#[tokio::test(start_paused = true)]
async fn volume_found_attached_by_a_mount_is_in_use() {
    let mut world = World::starting();
    world.volume("data");
    world.toy.set_attachable(true);
    world.left("web", "data");
    world.api.set_down(Kind::Node, true);
    world.crash();
    world.manager.sources_ready();
    world.add("new", &["data"]);
    world.pass(60_000).await;
    world.sees(expect![[r#"
        stage data
        publish data new
    "#]]);
    world.api.set_down(Kind::Node, false);
    world.pass(1_000).await;
    world.toy.hold("unstage data");
    world.end(&"new".into());
    tokio::time::sleep(SECOND).await;
    world.sees(expect![[r#"
        unpublish data web
        unpublish data new
        unstage data
    "#]]);
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![unique("data")]));
}

/// The staged volume may be the one that is mounted in the directory, and its record the only evidence of that.
#[tokio::test(start_paused = true)]
async fn no_volume_is_unstaged_while_a_directory_is_being_identified() {
    let mut world = World::starting();
    world.left("web", "data");
    world.toy.leave_staged("other");
    world.toy.fail("read back data", &[Final]);
    world.toy.hold("identify data");
    world.crash();
    world.manager.sources_ready();
    let late = world.manager.wait_idle(SECOND).await.expect_err("the directory is being identified");
    expect!["the manager is not idle: identify /var/lib/kubelet/pods/web/volumes/kubernetes.io~toy/data: context deadline exceeded"].assert_eq(&late.to_string());
    world.sees(expect![[r#"
        identify data
    "#]]);
    world.toy.release("identify data");
    world.idle().await;
    world.sees(expect![[r#"
        unstage other
    "#]]);
}

/// The plugin maps no block volumes, so it cannot identify the link: the link counts only if a device is bound for
/// the pod.
#[tokio::test(start_paused = true)]
async fn unidentified_link_counts_as_mounted_while_its_device_is_bound() {
    let of_toy = Path::new(ROOT).join("plugins/kubernetes.io~toy");
    for (bound, stays) in [
        (None, false),
        (Some("disk/dev/web"), true),
        (Some("disk/dev/db"), false),
        (Some("another/dev/web"), false),
    ] {
        let mut world = World::starting();
        let link: PathBuf = Path::new(ROOT).join("pods/web/volumeDevices/kubernetes.io~toy/disk");
        let kernel = &world.kernel;
        kernel.make_dir_all(link.parent().expect("it is below the root"), 0o750).expect("it is writable");
        kernel.symlink(Path::new("/dev/disk"), &link).expect("it is writable");
        if let Some(bound) = bound {
            let at = of_toy.join(bound);
            kernel.make_dir_all(&at, 0o750).expect("it is writable");
            kernel.mount("tmpfs", &at, "tmpfs", &[]).expect("the directory is there");
        }
        world.crash();
        world.manager.sources_ready();
        world.idle().await;
        world.sees(expect![[r#"
            identify disk
        "#]]);
        let gone = world.manager.wait_unmounted(&"web".into(), WAIT_LIMIT).await;
        let gone = gone.map_err(|error| error.to_string());
        let mounted = Err("mounted volumes=[disk]: context deadline exceeded".to_owned());
        assert_eq!(gone, if stays { mounted } else { Ok(()) }, "{bound:?}");
    }
}

/// The pod has, or had, a file system volume of the same name, which is not the volume of the link.
#[tokio::test(start_paused = true)]
async fn directory_of_the_same_name_does_not_identify_a_link() {
    for read_back in [true, false] {
        let mut world = World::starting();
        world.volume("data");
        world.left("web", "data");
        if !read_back {
            world.toy.fail("read back data", &[Final]);
        }
        let (kernel, root) = (&world.kernel, Path::new(ROOT));
        let links = root.join("pods/web/volumeDevices/kubernetes.io~toy");
        let bound = root.join("plugins/kubernetes.io~toy/data/dev/web");
        kernel.make_dir_all(&links, 0o750).expect("it is writable");
        kernel.symlink(Path::new("/dev/disk"), &links.join("data")).expect("it is writable");
        kernel.make_dir_all(&bound, 0o750).expect("it is writable");
        kernel.mount("tmpfs", &bound, "tmpfs", &[]).expect("the directory is there");
        world.crash();
        let web = world.add("web", &["data"]);
        world.manager.sources_ready();
        world.idle().await;
        world.sees(expect![[r#"
            stage data
            publish data web
        "#]]);
        world.end(&web);
        let gone = world.manager.wait_unmounted(&web, WAIT_LIMIT).await.expect_err("its device is bound");
        expect!["mounted volumes=[data]: context deadline exceeded"].assert_eq(&gone.to_string());
    }
}

/// Unpublish needs no attachment; stage waits until the Node object lists the volume as attached.
#[tokio::test(start_paused = true)]
async fn unpublish_does_not_prove_that_a_volume_is_attached() {
    let mut world = World::starting();
    world.volume("data");
    world.toy.set_attachable(true);
    world.left("web", "data");
    world.crash();
    world.add("db", &["data"]);
    world.manager.sources_ready();
    world.idle().await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    world.pass(60_000).await;
    world.sees(expect![[r#"
        unpublish data web
    "#]]);
    world.attach(&["data"]).await;
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data db
    "#]]);
}

/// The volume is not in the desired state, but in the actual state.
#[tokio::test(start_paused = true)]
async fn volume_of_an_unreadable_claim_is_unmounted_when_the_containers_are_gone() {
    for state in [PodState::Running, PodState::Terminating] {
        let mut world = World::starting();
        world.volume("data");
        world.left("web", "data");
        world.api.set_down(Kind::Claim, true);
        world.crash();
        let web = world.add("web", &["data"]);
        world.manager.set_pod_state(&web, state);
        world.manager.sources_ready();
        world.pass(60_000).await;
        world.sees(expect![[""]]);
        world.manager.set_pod_state(&web, PodState::RuntimeGone);
        world.idle().await;
        world.sees(expect![[r#"
            unpublish data web
            unstage data
        "#]]);
    }
}

/// The pod was deleted by force.
#[tokio::test(start_paused = true)]
async fn volume_of_a_deleted_pod_stays_while_its_containers_may_run() {
    for (reconstructed_at_start, known) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut world = World::starting();
        world.volume("data");
        world.left("web", "data");
        world.api.set_down(Kind::Claim, true);
        world.toy.fail("identify data", &[Final]);
        if !reconstructed_at_start {
            world.toy.fail("read back data", &[Final]);
        }
        world.crash();
        let web = world.add("web", &["data"]);
        if known {
            world.idle().await;
        }
        world.manager.remove_pod(&web);
        world.manager.sources_ready();
        world.pass(60_000).await;
        world.sees(expect![[""]]);
        world.manager.set_pod_state(&web, PodState::RuntimeGone);
        world.manager.wait_unmounted(&web, WAIT_LIMIT).await.expect("the volume is unmounted");
        world.idle().await;
        let identified = if reconstructed_at_start { "" } else { "identify data\n" };
        assert_eq!(world.toy.story(), format!("{identified}unpublish data web\nunstage data\n"));
    }
}

/// Without leftovers, no volume of the Node object's `volumesInUse` can be mounted here.
#[tokio::test(start_paused = true)]
async fn node_status_is_not_read_without_leftovers() {
    for down in [false, true] {
        let mut world = World::starting();
        world.names_in_use(&["data"]).await;
        world.api.set_down(Kind::Node, down);
        world.crash();
        world.idle().await;
        assert_eq!(world.manager.volumes_in_use().await, Some(vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn reconstructed_volume_is_marked_until_remounted() {
    let world = super::found();
    world.idle().await;
    let reconstructed = async || world.manager.dump().await.expect("it runs").reconstructed;
    expect![[r#"["pod web kubernetes.io/toy/data"]"#]].assert_eq(&format!("{:?}", reconstructed().await));
    world.add("web", &["data"]);
    world.manager.sources_ready();
    world.idle().await;
    assert_eq!(reconstructed().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pod_added_again_during_recovery_is_mounted_anew() {
    let mut world = World::starting();
    world.left("other", "more");
    let pods = Path::new(ROOT).join("pods");
    world.host.faults().add(Rule::new(Order::Delay(SECOND)).on("read_dir").below(pods).times(1));
    world.crash();
    let web = world.add("web", &["data"]);
    tokio::time::sleep(SECOND / 2).await;
    world.end(&web);
    world.volume("data");
    world.add("web", &["data"]);
    tokio::time::sleep(SECOND).await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}
