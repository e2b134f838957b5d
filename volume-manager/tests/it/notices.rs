//! Notices of the manager to its listeners (changes of state, events, volumes in use), and its answers to queries.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::error::ErrorClass::{Final, Uncertain};
use api::pod::VolumeDevice;
use api::{Kind, Object, PersistentSource, VolumeMode};
use expect_test::expect;
use host::errno;
use host::fake::{Order, Rule};
use tokio::sync::mpsc::UnboundedReceiver;
use volume_manager::event::Notice;
use volume_manager::operation::OperationName;
use volume_manager::{WAIT_LIMIT, WaitError};

use crate::world::{LONG, ROOT, World, pod, unique, volume};

const SECOND: Duration = Duration::from_secs(1);

/// The notices since the last look, one line each.
fn lines_of(notices: &mut UnboundedReceiver<Notice>, line: impl Fn(Notice) -> Option<String>) -> String {
    let all = std::iter::from_fn(|| notices.try_recv().ok());
    all.filter_map(line).map(|line| line + "\n").collect()
}

fn books(notice: Notice) -> Option<String> {
    match notice {
        Notice::State { world, key, from, to } => Some(format!("{world} {key}: [{from}] to [{to}]")),
        _ => None,
    }
}

fn in_use(notice: Notice) -> Option<String> {
    match notice {
        Notice::InUse(volumes) => Some(format!("in use {volumes:?}")),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn every_change_of_a_state_is_reported() {
    let world = World::new().await;
    world.volume("data");
    world.volume("more");
    let mut notices = world.listen();
    let web = world.run("web", &["data", "more"]).await;
    expect![[r#"
        desired pod web kubernetes.io/toy/data: [] to [outer=data attachable=false reportedInUse=false desiredSize=1Mi]
        desired pod web kubernetes.io/toy/more: [] to [outer=more attachable=false reportedInUse=false desiredSize=1Mi]
        actual volume kubernetes.io/toy/data: [] to [DeviceNotMounted attachable=false devicePath="" deviceMountPath=""]
        actual volume kubernetes.io/toy/more: [] to [DeviceNotMounted attachable=false devicePath="" deviceMountPath=""]
        actual volume kubernetes.io/toy/data: [DeviceNotMounted attachable=false devicePath="" deviceMountPath=""] to [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"]
        actual volume kubernetes.io/toy/more: [DeviceNotMounted attachable=false devicePath="" deviceMountPath=""] to [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/more"]
        actual volume kubernetes.io/toy/data: [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"] to [DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/data"]
        actual volume kubernetes.io/toy/more: [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/more"] to [DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/more"]
        actual pod web kubernetes.io/toy/data: [] to [VolumeMountUncertain]
        actual pod web kubernetes.io/toy/more: [] to [VolumeMountUncertain]
        actual pod web kubernetes.io/toy/data: [VolumeMountUncertain] to [VolumeMounted]
        actual pod web kubernetes.io/toy/more: [VolumeMountUncertain] to [VolumeMounted]
    "#]].assert_eq(&lines_of(&mut notices, books));
    world.end(&web);
    world.idle().await;
    expect![[r#"
        desired pod web kubernetes.io/toy/data: [outer=data attachable=false reportedInUse=false desiredSize=1Mi] to []
        desired pod web kubernetes.io/toy/more: [outer=more attachable=false reportedInUse=false desiredSize=1Mi] to []
        actual pod web kubernetes.io/toy/data: [VolumeMounted] to [VolumeMountUncertain]
        actual pod web kubernetes.io/toy/more: [VolumeMounted] to [VolumeMountUncertain]
        actual pod web kubernetes.io/toy/data: [VolumeMountUncertain] to []
        actual pod web kubernetes.io/toy/more: [VolumeMountUncertain] to []
        actual volume kubernetes.io/toy/data: [DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/data"] to [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"]
        actual volume kubernetes.io/toy/more: [DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="/global/more"] to [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/more"]
        actual volume kubernetes.io/toy/data: [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/data"] to [DeviceNotMounted attachable=false devicePath="" deviceMountPath=""]
        actual volume kubernetes.io/toy/more: [DeviceMountUncertain attachable=false devicePath="" deviceMountPath="/global/more"] to [DeviceNotMounted attachable=false devicePath="" deviceMountPath=""]
        actual volume kubernetes.io/toy/data: [DeviceNotMounted attachable=false devicePath="" deviceMountPath=""] to []
        actual volume kubernetes.io/toy/more: [DeviceNotMounted attachable=false devicePath="" deviceMountPath=""] to []
    "#]].assert_eq(&lines_of(&mut notices, books));
}

#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_reported_on_change_only() {
    let world = World::new().await;
    world.toy.set_attachable(true);
    world.volume("data");
    let mut notices = world.listen();
    let web = world.run("web", &["data"]).await;
    expect![[r#"
        in use ["kubernetes.io/toy/data"]
    "#]]
    .assert_eq(&lines_of(&mut notices, in_use));
    world.manager.mark_reported_in_use(vec![unique("data"), unique("unknown")]);
    world.attach(&["data"]).await;
    world.pass(1000).await;
    expect![[r#""#]].assert_eq(&lines_of(&mut notices, in_use));
    world.end(&web);
    world.idle().await;
    expect![[r#"
        in use []
    "#]]
    .assert_eq(&lines_of(&mut notices, in_use));
    expect![[r#"
        stage data
        publish data web
        unpublish data web
        unstage data
    "#]]
    .assert_eq(&world.toy.story());

    // A volume that need not be attached is not reported in use.
    world.toy.set_attachable(false);
    world.volume("local");
    world.run("db", &["local"]).await;
    assert_eq!(lines_of(&mut notices, in_use), "");
    assert_eq!(world.manager.volumes_in_use().await, Some(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn event_is_a_notice_and_written_to_the_api() {
    let world = World::new().await;
    world.volume("data");
    world.toy.fail("stage data", &[Final]);
    let mut notices = world.listen();
    world.run("web", &["data"]).await;
    let events = |notice| match notice {
        Notice::Emitted(event) => Some(format!("{} {}: {}", event.about.name, event.reason, event.message)),
        _ => None,
    };
    expect![[r#"
        web FailedMount: MountVolume.MountDevice failed for volume "data" : stage data fails on order
    "#]]
    .assert_eq(&lines_of(&mut notices, events));
    let written = world.api.all(Kind::Notification);
    let written = written.iter().map(|object| match object {
        Object::Notification(event) => format!(
            "{}/{}: {:?} {} of {}: {}\n",
            event.meta.namespace,
            event.meta.name,
            event.severity,
            event.reason,
            event.about.name,
            event.message
        ),
        _ => unreachable!("only events were asked for"),
    });
    expect![[r#"
        default/web.0004: Warning FailedMount of web: MountVolume.MountDevice failed for volume "data" : stage data fails on order
    "#]].assert_eq(&written.collect::<String>());
}

#[tokio::test(start_paused = true)]
async fn operations_and_waits_are_notices_with_their_results() {
    let world = World::new().await;
    world.volume("data");
    world.toy.fail("publish data web", &[Final]);
    let mut notices = world.listen();
    let web = world.run("web", &["data"]).await;
    world.manager.wait_mounted(&web, WAIT_LIMIT).await.expect("the second attempt gets it there");
    let moment = std::time::Duration::from_millis(100);
    world.manager.wait_unmounted(&web, moment).await.expect_err("it has it");
    world.end(&web);
    world.manager.wait_unmounted(&web, WAIT_LIMIT).await.expect("nothing stands in the way");
    world.manager.wait_mounted(&web, WAIT_LIMIT).await.expect_err("it has gone");
    let ends = |notice| match notice {
        Notice::Ended { name, volume, pod, error } => Some(format!("{name} {volume} {pod:?}: {error:?}")),
        Notice::Waited { what, pod, error } => Some(format!("{what} {pod}: {error:?}")),
        _ => None,
    };
    expect![[r#"
        verify_controller_attached_volume kubernetes.io/toy/data None: None
        volume_mount kubernetes.io/toy/data Some("web"): Some("MountVolume.SetUp failed for volume \"data\" : publish data web fails on order")
        volume_mount kubernetes.io/toy/data Some("web"): None
        mounted web: None
        unmounted web: Some("mounted volumes=[data]: context deadline exceeded")
        volume_unmount kubernetes.io/toy/data Some("web"): None
        unmounted web: None
        unmount_device kubernetes.io/toy/data None: None
        mounted web: Some("unmounted volumes=[], unattached volumes=[], failed to process volumes=[]: context canceled")
    "#]].assert_eq(&lines_of(&mut notices, ends));
}

#[tokio::test(start_paused = true)]
async fn it_says_what_it_waits_for_and_what_it_does() {
    let world = World::new().await;
    world.volume("data");
    world.volume("more");
    world.toy.fail("publish data web", &[Final, Uncertain]);
    world.toy.hold("stage more");
    world.add("web", &["data"]);
    world.add("db", &["more"]);
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let dump = world.manager.dump().await.expect("it runs");
    assert!(dump.sources_ready && dump.states_synced && dump.unexplained.is_empty());
    expect![[r#"
        (
            [
                "volume_mount kubernetes.io/toy/more db",
            ],
            [
                Waiting {
                    operation: "volume_mount kubernetes.io/toy/data",
                    failures: 2,
                    due_in_ms: 900,
                },
            ],
        )"#]]
    .assert_eq(&format!("{:#?}", (dump.running, dump.waiting)));
    expect![[r#"
        {
            "operations_done": 2,
            "operations_failed": 2,
            "volumes_planned": 14,
        }"#]]
    .assert_eq(&format!("{:#?}", dump.counters));
    world.toy.release("stage more");
    world.idle().await;
    let counters = world.manager.dump().await.expect("it runs").counters;
    assert_eq!((counters["operations_done"], counters["operations_failed"]), (3, 2));
}

/// Events of a pod do not contain the node's paths. A failed unmount has no event, and the log may have paths.
#[tokio::test(start_paused = true)]
async fn failure_event_of_a_pod_names_no_path() {
    let world = World::new().await;
    let mut data = volume("data");
    data.source = PersistentSource::Local { path: "/data".to_owned(), fs_type: String::new() };
    world.put_volume(data);
    world.kernel.make_dir_all(Path::new("/data"), 0o755).expect("the kernel is empty");
    let mut notices = world.listen();
    let refuse = |call| {
        let pods = Path::new(ROOT).join("pods");
        world.host.faults().add(Rule::new(Order::Fail(errno::EIO)).on(call).below(pods).times(1));
    };
    refuse("bind");
    let web = world.run("web", &["data"]).await;
    world.pass(500).await;
    refuse("unmount");
    world.end(&web);
    world.idle().await;
    let failures = |notice| match notice {
        Notice::Ended { error, .. } => error,
        _ => None,
    };
    expect![[r#"
        MountVolume.SetUp failed for volume "data" : Input/output error (os error 5)
        UnmountVolume.TearDown failed for volume "kubernetes.io/local-volume/data" : cannot unmount `/var/lib/kubelet/pods/web/volumes/kubernetes.io~local-volume/data`: Input/output error (os error 5)
    "#]].assert_eq(&lines_of(&mut notices, failures));
}

/// A device has no files that could be labelled or given to a group.
#[tokio::test(start_paused = true)]
async fn container_gets_a_device_without_label_or_group() {
    let world = World::new().await;
    world.kernel.add_disk("sdb", 1 << 20).expect("there is none of this name");
    let mut data = volume("data");
    data.mode = Some(VolumeMode::Block);
    data.source = PersistentSource::Local { path: "/dev/sdb".to_owned(), fs_type: String::new() };
    world.put_volume(data);
    let mut web = pod("web", &["data"]);
    web.containers[0].mounts.clear();
    web.containers[0].devices = vec![VolumeDevice { volume: "data".to_owned(), ..VolumeDevice::default() }];
    world.manager.add_pod(Arc::new(web));
    world.idle().await;
    let has = world.manager.mounted_volumes(&"web".into()).await;
    let has: Vec<_> = has.values().map(|has| &has.mounted).collect();
    expect![[r#"
        [
            Mounted {
                path: "/var/lib/kubelet/pods/web/volumeDevices/kubernetes.io~local-volume/data",
                read_only: false,
                managed: false,
                selinux_relabel: false,
            },
        ]
    "#]]
    .assert_debug_eq(&has);
}

/// The writer of the node's object has to take back what an earlier manager wrote there.
#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_reported_after_recovery() {
    let mut world = World::starting();
    world.left("web", "data");
    let pods = Path::new(ROOT).join("pods");
    world.host.faults().add(Rule::new(Order::Delay(SECOND)).on("read_dir").below(pods).times(1));
    world.crash();
    let mut notices = world.listen();
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(lines_of(&mut notices, in_use), "");
    assert_eq!(world.manager.volumes_in_use().await, None);
    world.idle().await;
    expect![[r#"
        in use []
    "#]]
    .assert_eq(&lines_of(&mut notices, in_use));
    assert_eq!(world.manager.volumes_in_use().await, Some(vec![]));
}

#[tokio::test(start_paused = true)]
async fn ended_manager_answers_no_query() {
    let world = World::new().await;
    world.manager.shutdown().await;
    assert_eq!(world.manager.dump().await, None);
    assert_eq!(world.manager.wait_idle(LONG).await, Err(WaitError::Gone));
}

/// The failures of a volume that has left the node do not count when it returns.
#[tokio::test(start_paused = true)]
async fn volume_that_returns_skips_the_back_off() {
    let world = World::new().await;
    world.volume("data");
    world.toy.fail("stage data", &[Final, Final, Final, Final]);
    let web = world.add("web", &["data"]);
    tokio::time::sleep(std::time::Duration::from_millis(4_000)).await;
    world.end(&web);
    world.idle().await;
    expect![[r#"
        stage data
          Final
        stage data
          Final
        stage data
          Final
        stage data
          Final
    "#]]
    .assert_eq(&world.toy.story());
    world.add("db", &["data"]);
    assert_eq!(world.starts_of(OperationName::Mount, 400).await, [0]);
}
