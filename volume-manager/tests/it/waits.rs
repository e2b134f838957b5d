//! A wait ends when its goal is reached, neither sooner nor later. Time passes here only when everything else is idle, so
//! that a missing wake-up shows as a wait that ends at its deadline.

use std::path::Path;
use std::time::Duration;

use api::error::ErrorClass::{Transient, Uncertain};
use api::names::PodUid;
use api::{AccessMode, Kind, PersistentSource};
use expect_test::expect;
use host::fake::{Order, Rule};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use volume_manager::{PodState, WAIT_LIMIT, WaitError};

use crate::world::{LONG, ROOT, World, labelled, unique, volume};

type Waiting = JoinHandle<(Result<(), WaitError>, Duration)>;

/// Starts a wait in the background, which returns its duration.
fn waiting(wait: impl Future<Output = Result<(), WaitError>> + Send + 'static) -> Waiting {
    let began = Instant::now();
    tokio::spawn(async move { (wait.await, began.elapsed()) })
}

fn mounted(world: &World, pod: &PodUid, limit: Duration) -> Waiting {
    let (manager, pod) = (world.manager.clone(), pod.clone());
    waiting(async move { manager.wait_mounted(&pod, limit).await })
}

fn unmounted(world: &World, pod: &PodUid, limit: Duration) -> Waiting {
    let (manager, pod) = (world.manager.clone(), pod.clone());
    waiting(async move { manager.wait_unmounted(&pod, limit).await })
}

fn idle(world: &World, limit: Duration) -> Waiting {
    let manager = world.manager.clone();
    waiting(async move { manager.wait_idle(limit).await })
}

async fn second() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn each_hears_of_its_own_pod_when_it_is_time() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.volume(name);
        world.toy.hold(&format!("publish {name} {name}"));
    }
    let (a, b) = (world.add("a", &["a"]), world.add("b", &["b"]));
    let waits = [mounted(&world, &a, LONG), mounted(&world, &a, LONG), mounted(&world, &b, LONG)];
    let all = idle(&world, LONG);
    second().await;
    world.toy.release("publish a a");
    second().await;
    world.toy.release("publish b b");
    let [one, other, last] = waits;
    for (wait, after) in [(one, 1), (other, 1), (last, 2), (all, 2)] {
        let (result, took) = wait.await.expect("it only waits");
        assert_eq!((result, took), (Ok(()), SECOND * after));
    }

    world.toy.hold("unpublish a a");
    let (gone, stays) = (unmounted(&world, &a, LONG), unmounted(&world, &b, SECOND * 2));
    world.end(&a);
    second().await;
    world.toy.release("unpublish a a");
    assert_eq!(gone.await.expect("it only waits"), (Ok(()), SECOND));
    let (result, took) = stays.await.expect("it only waits");
    expect!["mounted volumes=[b]: context deadline exceeded"]
        .assert_eq(&result.expect_err("it has it").to_string());
    assert_eq!(took, SECOND * 2);
}

#[tokio::test(start_paused = true)]
async fn waiter_waits_for_every_volume_in_any_order() {
    let names = ["a", "b", "c", "d"];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let world = World::new().await;
        for name in names {
            world.volume(name);
            world.toy.hold(&format!("publish {name} web"));
        }
        let web = world.add("web", &names);
        let wait = mounted(&world, &web, LONG);
        for index in order {
            second().await;
            assert!(!wait.is_finished(), "{} and more are missing", names[index]);
            world.toy.release(&format!("publish {} web", names[index]));
        }
        assert_eq!(wait.await.expect("it only waits"), (Ok(()), SECOND * 4));
    }
}

#[tokio::test(start_paused = true)]
async fn abandoned_wait_delays_no_other_wait() {
    let world = World::new().await;
    world.volume("data");
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    let (dropped, kept) = (mounted(&world, &web, LONG), mounted(&world, &web, LONG));
    second().await;
    dropped.abort();
    second().await;
    world.toy.release("stage data");
    assert_eq!(kept.await.expect("it only waits"), (Ok(()), SECOND * 2));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_ends_without_a_result_ends_the_wait_for_its_pods_end() {
    let world = World::new().await;
    world.volume("data");
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    second().await;
    world.end(&web);
    let gone = unmounted(&world, &web, LONG);
    second().await;
    world.toy.release("stage data");
    assert_eq!(gone.await.expect("it only waits"), (Ok(()), SECOND));
}

#[tokio::test(start_paused = true)]
async fn unmount_wait_lasts_until_recovery_ends() {
    let mut world = World::starting();
    world.crash();
    let took = unmounted(&world, &"web".into(), LONG).await.expect("it only waits");
    assert_eq!(took, (Ok(()), Duration::ZERO));
    world.left("web", "data");
    world.crash();
    let (result, _) = unmounted(&world, &"web".into(), SECOND).await.expect("it only waits");
    expect!["mounted volumes=[data]: context deadline exceeded"]
        .assert_eq(&result.expect_err("it may still have it").to_string());
}

#[tokio::test(start_paused = true)]
async fn uncertain_volume_does_not_end_a_mount_wait() {
    let world = World::new().await;
    world.volume("data");
    world.toy.fail("publish data web", &[Uncertain]);
    let web = world.add("web", &["data"]);
    let took = mounted(&world, &web, WAIT_LIMIT).await.expect("it only waits");
    assert_eq!(took, (Ok(()), Duration::from_millis(500)), "the next attempt gets it there");
}

#[tokio::test(start_paused = true)]
async fn attached_volume_is_not_listed_as_unattached() {
    let world = World::new().await;
    world.volume("data");
    world.toy.set_attachable(true);
    world.attach(&["data"]).await;
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    world.idle().await;
    world.manager.mark_reported_in_use(vec![unique("data")]);
    let (result, took) = mounted(&world, &web, SECOND).await.expect("it only waits");
    expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context deadline exceeded"]
        .assert_eq(&result.expect_err("it is held").to_string());
    assert_eq!(took, SECOND);
}

/// The kubelet sets local volumes up one after the other where their paths are the same.
#[tokio::test(start_paused = true)]
async fn local_volumes_of_one_path_do_not_wait_for_each_other() {
    let world = World::new().await;
    world.kernel.make_dir_all(Path::new("/data"), 0o755).expect("the kernel is empty");
    for name in ["a", "b"] {
        let mut volume = volume(name);
        volume.source = PersistentSource::Local { path: "/data".to_owned(), fs_type: String::new() };
        world.put_volume(volume);
    }
    let of_a = Path::new(ROOT).join("pods/a");
    world.host.faults().add(Rule::new(Order::Delay(SECOND)).on("bind").below(of_a));
    let a = world.add("a", &["a"]);
    let first = mounted(&world, &a, LONG);
    tokio::time::sleep(SECOND / 2).await;
    let b = world.add("b", &["b"]);
    let second = mounted(&world, &b, LONG);
    for (wait, took) in [(second, Duration::ZERO), (first, SECOND)] {
        assert_eq!(wait.await.expect("it only waits"), (Ok(()), took));
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_names_running_operations() {
    let world = World::new().await;
    world.volume("data");
    world.toy.hold("stage data");
    world.add("web", &["data"]);
    let (result, took) = idle(&world, SECOND).await.expect("it only waits");
    expect!["the manager is not idle: volume_mount kubernetes.io/toy/data web: context deadline exceeded"]
        .assert_eq(&result.expect_err("it is held").to_string());
    assert_eq!(took, SECOND);
}

#[tokio::test(start_paused = true)]
async fn unmount_wait_of_a_pod_without_volumes_ends_at_once() {
    let world = World::new().await;
    let took = unmounted(&world, &"web".into(), LONG).await.expect("it only waits");
    assert_eq!(took, (Ok(()), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn unmount_wait_without_leftovers_ends_with_recovery() {
    let mut world = World::starting();
    world.left("other", "data");
    let pods = Path::new(ROOT).join("pods");
    world.host.faults().add(Rule::new(Order::Delay(SECOND)).on("read_dir").below(pods).times(1));
    world.crash();
    let took = unmounted(&world, &"web".into(), LONG).await.expect("it only waits");
    assert_eq!(took, (Ok(()), SECOND));
}

#[tokio::test(start_paused = true)]
async fn pod_error_ends_a_mount_wait_at_once() {
    let world = World::new().await;
    world.api.set_silent(Kind::Claim, true);
    let web = world.add("web", &["nope"]);
    let (dropped, kept) = (mounted(&world, &web, LONG), mounted(&world, &web, LONG));
    second().await;
    dropped.abort();
    second().await;
    world.api.set_silent(Kind::Claim, false);
    let (result, took) = kept.await.expect("it only waits");
    let error = result.expect_err("there is no such claim").to_string();
    assert!(error.contains("failed to fetch PVC"), "{error}");
    assert_eq!(took, SECOND * 2);
}

/// The first wait that ends takes the errors, as in the kubelet. The next resolution finds them again.
#[tokio::test(start_paused = true)]
async fn mount_wait_returns_the_pods_errors() {
    let world = World::new().await;
    let web = world.add("web", &["nope"]);
    for wait in [mounted(&world, &web, LONG), mounted(&world, &web, LONG)] {
        let (result, took) = wait.await.expect("it only waits");
        let error = result.expect_err("there is no such claim").to_string();
        assert!(error.contains("failed to fetch PVC"), "{error}");
        assert!(took <= SECOND, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_takes_too_long_is_not_waited_for() {
    let world = World::new().await;
    world.api.set_silent(Kind::Claim, true);
    let web = world.add("web", &["data"]);
    let (wait, all) = (mounted(&world, &web, SECOND), idle(&world, SECOND));
    let (result, took) = wait.await.expect("it only waits");
    expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: context deadline exceeded"]
        .assert_eq(&result.expect_err("the wait fails").to_string());
    assert_eq!(took, SECOND);
    let (result, took) = all.await.expect("it only waits");
    expect!["the manager is not idle: look at web: context deadline exceeded"]
        .assert_eq(&result.expect_err("the wait fails").to_string());
    assert_eq!(took, SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_object_is_waited_for_no_longer() {
    let world = World::new().await;
    world.volume("data");
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    let wait = mounted(&world, &web, LONG);
    second().await;
    // The pod's containers may still run.
    world.manager.remove_pod(&web);
    let (result, took) = wait.await.expect("it only waits");
    expect![
        "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context canceled"
    ]
    .assert_eq(&result.expect_err("it is gone").to_string());
    assert_eq!(took, SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_containers_are_gone_is_not_waited_for() {
    let world = World::new().await;
    world.volume("data");
    let web = world.run("web", &["data"]).await;
    world.manager.set_pod_state(&web, PodState::RuntimeGone);
    let (result, took) = mounted(&world, &web, LONG).await.expect("it only waits");
    expect![
        "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: context canceled"
    ]
    .assert_eq(&result.expect_err("it has ended").to_string());
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn that_a_pod_runs_ends_no_wait() {
    let world = World::new().await;
    world.volume("data");
    world.toy.hold("stage data");
    let web = world.add("web", &["data"]);
    let wait = mounted(&world, &web, LONG);
    second().await;
    world.manager.set_pod_state(&web, PodState::Running);
    second().await;
    world.toy.release("stage data");
    assert_eq!(wait.await.expect("it only waits"), (Ok(()), SECOND * 2));
}

/// As in `mount_wait_returns_the_pods_errors`, but each plan finds the conflict anew.
#[tokio::test(start_paused = true)]
async fn label_conflict_ends_a_mount_wait() {
    let mut world = World::starting();
    world.kernel.set_selinux(Path::new("/"), true).expect("it is a mount point");
    world.crash();
    world.manager.sources_ready();
    let mut alone = volume("data");
    alone.access_modes = vec![AccessMode::ReadWriteOncePod];
    world.put_volume(alone);
    world.manager.add_pod(labelled("web", "s0:c1"));
    world.idle().await;
    world.toy.fail("unpublish data web", &[Transient]);
    world.toy.hold("unpublish data web");
    world.end(&"web".into());
    world.manager.add_pod(labelled("new", "s0:c2"));
    let new = "new".into();
    let waits = [mounted(&world, &new, LONG), mounted(&world, &new, LONG)];
    second().await;
    world.toy.release("unpublish data web");
    for (wait, after) in waits.into_iter().zip([0, 1]) {
        let (result, took) = wait.await.expect("it only waits");
        let error = result.expect_err("web has it").to_string();
        assert!(error.contains("with a different SELinux label"), "{error}");
        assert_eq!(took, SECOND * after);
    }
}

#[tokio::test(start_paused = true)]
async fn wait_for_all_pods_reports_each_one_left_within_a_single_deadline() {
    let world = World::new().await;
    let mut pods = Vec::new();
    for name in ["a", "b", "c"] {
        world.volume(name);
        pods.push(world.run(name, &[name]).await);
    }
    world.toy.fail("unpublish a a", &[Transient; 9]);
    world.toy.fail("unpublish b b", &[Transient; 9]);
    pods.iter().for_each(|pod| world.manager.set_pod_state(pod, PodState::RuntimeGone));
    let began = Instant::now();
    let left = world.manager.wait_all_unmounted(&pods, SECOND).await.unwrap_err();
    assert_eq!(began.elapsed(), SECOND);
    let left: String = left.iter().map(|(pod, error)| format!("{pod}: {error}\n")).collect();
    expect![[r#"
        a: mounted volumes=[a]: context deadline exceeded
        b: mounted volumes=[b]: context deadline exceeded
    "#]]
    .assert_eq(&left);
    assert_eq!(world.manager.wait_all_unmounted(&pods, LONG).await, Ok(()));
}
