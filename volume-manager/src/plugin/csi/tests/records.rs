//! Recovery with records that are lost, damaged or of another volume.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use api::names::PluginName;
use api::{PersistentSource, Resource, VolumeMode};
use expect_test::expect;
use host::errno;
use host::fake::Order;
use plugin_api::{Found, Rebuilt, Scene, Staged, VolumePlugin};
use tonic::Code;

use crate::operation::Operation;
use crate::plugin::csi::CsiPlugin;
use crate::plugin::testing::{Bench, DRIVER, volume};

const POD: &str = "pods/u1/volumes/kubernetes.io~csi/pv";

fn staging() -> String {
    let hash = api::names::VolumeHandle::new("h").hashed();
    format!("plugins/kubernetes.io/csi/{DRIVER}/{hash}")
}

async fn mounted() -> Bench {
    let mut bench = Bench::new();
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    bench
}

/// The kinds of files in place of a record.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Missing,
    Content(&'static [u8]),
    /// This number of bytes that mean nothing.
    Long(i64),
    Directory,
    Pipe,
    Link(&'static str),
}

const DAMAGES: [Damage; 17] = [
    Damage::Missing,
    Damage::Content(b""),
    Damage::Content(b"{}"),
    Damage::Content(br#"{"driverName":"d.exam"#),
    Damage::Content(b"\xff\xfe\x00"),
    Damage::Content(b"[1,2]"),
    Damage::Content(br#"{"driverName":"d.example","volumeHandle":""}"#),
    Damage::Content(br#"{"driverName":"d.example","volumeHandle":["h"]}"#),
    Damage::Content(br#"{"driverName":"../d.example","volumeHandle":"h"}"#),
    Damage::Content(br#"{"driverName":"d.example","volumeHandle":"other","specVolID":"other"}"#),
    Damage::Content(br#"{"who":"knows"}"#),
    Damage::Long(100 << 20),
    Damage::Directory,
    Damage::Pipe,
    Damage::Link("/dev/zero"),
    Damage::Link("vol_data.json"),
    Damage::Link("/proc/self/mountinfo"),
];

async fn damage(bench: &Bench, dir: &str, damage: Damage) {
    let host = &bench.context.host;
    let file = bench.path(dir).join("vol_data.json");
    if let Err(error) = host.remove_file(&file).await {
        assert!(error.is_not_found(), "{error}");
    }
    match damage {
        Damage::Missing => {}
        Damage::Content(content) => host.write_file(&file, content, 0o644).await.unwrap(),
        Damage::Long(length) => {
            host.create_file(&file, 0o644).await.unwrap();
            nix::unistd::truncate(&file, length).unwrap();
        }
        Damage::Directory => host.make_dir(&file, 0o755).await.unwrap(),
        Damage::Pipe => nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRUSR).unwrap(),
        Damage::Link(target) => host.symlink(Path::new(target), &file).await.unwrap(),
    }
}

#[tokio::test]
async fn a_volume_whose_records_are_damaged_leaves_with_the_ids_of_its_object() {
    for damaged in DAMAGES {
        let mut bench = mounted().await;
        damage(&bench, POD, damaged).await;
        damage(&bench, &staging(), damaged).await;
        bench.driver.tell_all();
        let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        assert!(story.contains(r#""volumeId":"h""#) && story.ends_with("done\n"), "{damaged:?}: {story}");
        let story = bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
        assert!(story.contains(r#""volumeId":"h""#) && story.ends_with("done\n"), "{damaged:?}: {story}");
        assert_eq!(bench.files().await, [""; 0], "{damaged:?}");
    }
}

#[tokio::test]
async fn without_an_object_nothing_is_sent_and_nothing_is_forgotten() {
    for damaged in DAMAGES {
        let mut bench = mounted().await;
        damage(&bench, POD, damaged).await;
        let there = bench.tree().await;
        let mut unmount = bench.unmounting();
        unmount.spec = None;
        let story = bench.run(Operation::Unmount(Arc::new(unmount))).await;
        assert!(!story.contains("call"), "{damaged:?}: {story}");
        assert!(story.contains("unmounter failed to load volume data file"), "{damaged:?}: {story}");
        assert_eq!(bench.tree().await, there, "{damaged:?}");
    }
}

/// Writing a file in place empties it first: a crash at that moment must not lose the ids of a volume that may be staged.
#[tokio::test]
async fn record_that_says_the_same_is_not_written_again() {
    for mode in [VolumeMode::Filesystem, VolumeMode::Block] {
        let (mut bench, host) = Bench::simulated();
        bench.change_volume(|volume| volume.mode = Some(mode));
        let mounting = |bench: &Bench| match mode {
            VolumeMode::Filesystem => Operation::Mount(Arc::new(bench.mounting())),
            VolumeMode::Block => Operation::Map(Arc::new(bench.mounting())),
        };
        let first = mounting(&bench);
        bench.driver.fail("NodePublishVolume", Code::DeadlineExceeded);
        let story = bench.run(first).await;
        assert!(story.contains("call NodePublishVolume"), "{mode:?}: {story}");
        // The disk is full now.
        host.faults().decide_with(|step| {
            match step.method == "write_file" && step.path.ends_with("vol_data.json") {
                true => Order::Fail(errno::ENOSPC),
                false => Order::Go,
            }
        });
        bench.driver.fail("NodePublishVolume", Code::DeadlineExceeded);
        let again = mounting(&bench);
        let story = bench.run(again).await;
        assert!(story.contains("call NodePublishVolume"), "{mode:?}: {story}");
    }
}

/// An old record is replaced. A path that is no regular file stays, and is an error before any call to the driver.
#[tokio::test]
async fn a_new_record_takes_the_place_of_a_file_and_of_nothing_else() {
    for damaged in DAMAGES {
        for (dir, next) in [(staging(), "NodeStageVolume"), (POD.to_owned(), "NodePublishVolume")] {
            let mut bench = Bench::new();
            bench.context.host.make_dir_all(&bench.path(&dir), 0o750).await.unwrap();
            damage(&bench, &dir, damaged).await;
            let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
            if matches!(damaged, Damage::Missing | Damage::Content(_) | Damage::Long(_)) {
                assert!(story.ends_with("done\n"), "{damaged:?}: {story}");
                assert_eq!(handle(&found(&bench).await.unwrap()), "d.example^h", "{damaged:?}");
            } else {
                assert!(!story.contains(next) && story.contains("failed"), "{damaged:?}: {story}");
                assert!(story.contains("failed to save volume info data"), "{damaged:?}: {story}");
            }
        }
    }
}

#[tokio::test]
async fn a_device_that_was_never_staged_needs_no_call() {
    let mut bench = Bench::new();
    let story = bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
    assert_eq!(story, "mark device undoing\nmark device unmounted\ndone\n");
}

async fn found(bench: &Bench) -> Result<Rebuilt, String> {
    let found = Found {
        pod: "u1".into(),
        plugin: PluginName::new("kubernetes.io/csi"),
        inner: "pv".into(),
        path: bench.path(POD),
        mode: VolumeMode::Filesystem,
    };
    let cx = &bench.context;
    let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
    let plugin = CsiPlugin::new();
    let rebuilt = plugin.reconstruct(&scene, &found).await;
    match rebuilt {
        Ok(rebuilt) => Ok(rebuilt),
        Err(error) => match plugin.identify_orphan(&scene, &found).await {
            Ok(Some(rebuilt)) => Ok(rebuilt),
            Ok(None) => Err(format!("unknown: {}", error.chain())),
            Err(error) => Err(error.chain()),
        },
    }
}

fn handle(rebuilt: &Rebuilt) -> String {
    CsiPlugin::new().volume_name(&rebuilt.spec).unwrap()
}

#[tokio::test]
async fn a_restart_rebuilds_a_volume_from_its_record_alone() {
    let bench = mounted().await;
    bench.api.set_away(true);
    let rebuilt = found(&bench).await.unwrap();
    assert_eq!(handle(&rebuilt), "d.example^h");
    assert_eq!(rebuilt.spec.name().as_str(), "pv");
    assert!(!rebuilt.spec.read_only, "no record has that");
    assert_eq!(rebuilt.device_mount_path, Some(bench.path(staging()).join("globalmount")));
}

#[tokio::test]
async fn a_lost_record_is_made_good_by_the_object_of_that_name() {
    for damaged in DAMAGES {
        let bench = mounted().await;
        damage(&bench, POD, damaged).await;
        bench.api.set_away(true);
        let error = found(&bench).await.unwrap_err();
        assert!(error.contains("did not answer"), "not known yet is not unknown: {error}");
        bench.api.set_away(false);
        bench.put(volume("pv", DRIVER, "h").into_object());
        assert_eq!(handle(&found(&bench).await.unwrap()), "d.example^h", "{damaged:?}");
    }
}

#[tokio::test]
async fn an_object_of_that_name_that_is_something_else_says_nothing() {
    let bench = mounted().await;
    damage(&bench, POD, Damage::Missing).await;
    let mut device = volume("pv", DRIVER, "h");
    device.mode = Some(VolumeMode::Block);
    let mut local = volume("pv", DRIVER, "h");
    local.source = PersistentSource::Local { path: "/disk".to_owned(), fs_type: String::new() };
    for other in [device, local] {
        bench.put(other.into_object());
        let error = found(&bench).await.unwrap_err();
        assert!(error.starts_with("unknown: "), "{error}");
    }
}

#[tokio::test]
async fn a_lost_record_is_made_good_by_the_one_stage_that_shows_the_same() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let host = Arc::clone(&bench.context.host);
    let (global, target) = (bench.path(staging()).join("globalmount"), bench.path(POD).join("mount"));
    host.mount(&host::MountSpec::new("tmpfs", &global, "tmpfs")).await.unwrap();
    damage(&bench, POD, Damage::Missing).await;
    let error = found(&bench).await.unwrap_err();
    assert!(error.starts_with("unknown: "), "the target shows something else: {error}");
    host.bind(&host::Bind::new(&global, &target)).await.unwrap();
    assert_eq!(handle(&found(&bench).await.unwrap()), "d.example^h");

    // A second pod has a record that names it: then this directory is of some other volume.
    let claimed = bench.path("pods/u2/volumes/kubernetes.io~csi/pv");
    host.make_dir_all(&claimed, 0o750).await.unwrap();
    let record = br#"{"driverName":"d.example","volumeHandle":"h"}"#;
    host.write_file(&claimed.join("vol_data.json"), record, 0o644).await.unwrap();
    let error = found(&bench).await.unwrap_err();
    assert!(error.starts_with("unknown: "), "{error}");
}

#[tokio::test]
async fn staged_volume_is_found_without_a_pod() {
    let mut bench = mounted().await;
    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    let host = Arc::clone(&bench.context.host);
    // Others' and damaged ones beside it are passed over.
    for (dir, record) in [
        (
            "plugins/kubernetes.io/csi/d.example/0123/globalmount",
            r#"{"driverName":"d.example","volumeHandle":"x"}"#,
        ),
        ("plugins/kubernetes.io/csi/d.example/empty/globalmount", ""),
        ("plugins/kubernetes.io/csi/other/0123/globalmount", "{"),
    ] {
        host.make_dir_all(&bench.path(dir), 0o750).await.unwrap();
        let file = bench.path(dir).parent().unwrap().join("vol_data.json");
        host.write_file(&file, record.as_bytes(), 0o644).await.unwrap();
    }
    let block = "plugins/kubernetes.io/csi/volumeDevices";
    for (number, damaged) in DAMAGES.into_iter().enumerate() {
        for dir in
            [format!("plugins/kubernetes.io/csi/d.example/{number}"), format!("{block}/x{number}/data")]
        {
            host.make_dir_all(&bench.path(&dir).join("globalmount"), 0o750).await.unwrap();
            damage(&bench, &dir, damaged).await;
        }
    }
    for dir in [block, "plugins/kubernetes.io/csi/d.example", "plugins/kubernetes.io/csi"] {
        let dir = bench.path(dir);
        host.make_dir(&dir.join(OsStr::from_bytes(b"\xff")), 0o750).await.unwrap();
        host.symlink(&dir, &dir.join("itself")).await.unwrap();
        host.write_file(&dir.join("file"), b"", 0o644).await.unwrap();
    }
    for dir in ["staging/disk", "disk/data", "publish/disk", "disk/dev", "linked/data"] {
        host.make_dir_all(&bench.path(block).join(dir), 0o750).await.unwrap();
    }
    let record = br#"{"driverName":"d.example","volumeHandle":"b","specVolID":"disk"}"#;
    host.write_file(&bench.path(block).join("disk/data/vol_data.json"), record, 0o644).await.unwrap();
    // With this record its pods would belong to another volume.
    let record = br#"{"driverName":"d.example","volumeHandle":"l","specVolID":"linked"}"#;
    host.write_file(&bench.path(block).join("linked/data/vol_data.json"), record, 0o644).await.unwrap();
    host.symlink(Path::new("disk"), &bench.path(block).join("publish/linked")).await.unwrap();
    // Pods whose links are not made yet, or are gone already: one published, one only bound.
    for file in ["publish/disk/uid-a", "disk/dev/uid-a", "disk/dev/uid-b"] {
        host.write_file(&bench.path(block).join(file), b"", 0o600).await.unwrap();
    }

    let cx = &bench.context;
    let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
    let found = CsiPlugin::new().find_staged(&scene).await;
    let names: BTreeSet<String> = found
        .iter()
        .map(|Staged { rebuilt, pod }| {
            let pod = pod.as_ref().map_or("no pod".to_owned(), |pod| pod.to_string());
            format!("{} {:?} {} {pod}", handle(rebuilt), rebuilt.spec.mode(), rebuilt.spec.name())
        })
        .collect();
    expect![[r#"
        {
            "d.example^b Block disk no pod",
            "d.example^b Block disk uid-a",
            "d.example^b Block disk uid-b",
            "d.example^h Filesystem h no pod",
            "d.example^l Block linked no pod",
        }"#]]
    .assert_eq(&format!("{names:#?}"));
}

/// All that a stage or a device leaves behind when its record goes is its place.
#[tokio::test]
async fn volume_without_a_record_is_identified_by_its_path() {
    for damaged in DAMAGES {
        let mut bench = mounted().await;
        bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        let host = Arc::clone(&bench.context.host);
        let block = bench.path("plugins/kubernetes.io/csi/volumeDevices");
        for dir in ["disk/data", "disk/dev", "publish/disk", "staging/disk", "begun/data", "begun/dev"] {
            host.make_dir_all(&block.join(dir), 0o750).await.unwrap();
        }
        host.write_file(&block.join("publish/disk/uid-a"), b"", 0o600).await.unwrap();
        // A mounted volume keeps its directory; here a file does.
        host.write_file(&bench.path(staging()).join("globalmount/data"), b"", 0o600).await.unwrap();
        damage(&bench, &staging(), damaged).await;
        damage(&bench, "plugins/kubernetes.io/csi/volumeDevices/disk/data", damaged).await;

        let cx = &bench.context;
        let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
        let staged = CsiPlugin::new().find_staged(&scene).await;
        assert_eq!(staged, [], "{damaged:?}");
        let lost = CsiPlugin::new().find_unidentified_stages(&scene).await;
        let root = bench.path("").display().to_string();
        let lines = lost.iter().map(|lost| {
            let at = lost.at.display().to_string();
            format!("{:?} {} {:?}\n", lost.mode, at.trim_start_matches(&root), lost.pods)
        });
        let lines: String = lines.collect();
        let stage = format!("Filesystem {}/globalmount {{}}\n", staging());
        let device = "Block plugins/kubernetes.io/csi/volumeDevices/disk/dev {\"uid-a\"}\n";
        assert_eq!(lines, format!("{stage}{device}"), "{damaged:?}");
        assert!(host.symlink_metadata(&block.join("begun")).await.is_err(), "nothing was begun there");
    }
}
