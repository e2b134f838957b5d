//! Refusals and waits before the first call to a driver.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::VolumeMode;
use host::fake::FakeHost;
use plugin_api::Spec;

use crate::operation::Operation;
use crate::plugin::testing::{Bench, DRIVER};

/// A link to a directory elsewhere, or a file, where the driver is to work.
#[tokio::test]
async fn a_driver_works_in_directories_and_in_nothing_else() {
    const CSI: &str = "plugins/kubernetes.io/csi";
    let hash = api::names::VolumeHandle::new("h").hashed();
    for (place, mode, call) in [
        (format!("{CSI}/{DRIVER}/{hash}/globalmount"), VolumeMode::Filesystem, "NodeStageVolume"),
        ("pods/u1/volumes/kubernetes.io~csi/pv".to_owned(), VolumeMode::Filesystem, "NodePublishVolume"),
        (format!("{CSI}/volumeDevices/staging/pv"), VolumeMode::Block, "NodeStageVolume"),
        (format!("{CSI}/volumeDevices/publish/pv"), VolumeMode::Block, "NodePublishVolume"),
        (format!("{CSI}/volumeDevices/pv/data"), VolumeMode::Block, "NodeStageVolume"),
    ] {
        for link in [true, false] {
            let mut bench = Bench::new();
            bench.change_volume(|volume| volume.mode = Some(mode));
            bench.driver.set_device(Path::new("/nowhere"));
            let (path, elsewhere) = (bench.path(&place), bench.path("elsewhere"));
            let host = Arc::clone(&bench.context.host);
            host.make_dir_all(path.parent().unwrap(), 0o750).await.unwrap();
            host.make_dir_all(&elsewhere, 0o750).await.unwrap();
            if link {
                host.symlink(&elsewhere, &path).await.unwrap();
            } else {
                host.write_file(&path, b"", 0o600).await.unwrap();
            }
            let mounting = Arc::new(bench.mounting());
            let story = bench
                .run(match mode {
                    VolumeMode::Filesystem => Operation::Mount(mounting),
                    VolumeMode::Block => Operation::Map(mounting),
                })
                .await;
            assert!(story.contains("exists but is not a directory"), "{place} {link}: {story}");
            assert!(!story.contains(call), "{place} {link}: {story}");
            assert_eq!(host.read_dir(&elsewhere).await.unwrap(), [], "{place}: nothing is written there");
        }
    }
}

#[tokio::test]
async fn a_driver_whose_object_says_nothing_of_groups_is_not_guessed_at() {
    let mut bench = Bench::new();
    bench.object(|driver| driver.fs_group_policy = None);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(!story.contains("NodePublishVolume"), "{story}");
    let text = "MountVolume.SetUp failed for volume \"pv\" : CSIDriver d.example has no fsGroupPolicy";
    assert!(story.ends_with(&format!("failed Transient: {text}\n")), "{story}");
}

#[tokio::test(start_paused = true)]
async fn missing_driver_object_is_waited_for_up_to_a_deadline() {
    for (seen_after, ends, took) in [(3, "done", 3), (30, "failed Transient", 10)] {
        let mut bench = Bench::new();
        bench.know(|facts| facts.csi_drivers_known = false);
        let (facts, clock) = (bench.facts.clone(), Arc::clone(&bench.context.clock));
        let seeing = async {
            clock.sleep(Duration::from_secs(seen_after)).await;
            facts.send_modify(|facts| Arc::make_mut(facts).csi_drivers_known = true);
        };
        let began = bench.now();
        let operation = Operation::Mount(Arc::new(bench.mounting()));
        let mounting = async {
            let story = bench.run(operation).await;
            (story, bench.now() - began)
        };
        let ((story, after), ()) = tokio::join!(mounting, seeing);
        assert!(story.lines().last().unwrap().starts_with(ends), "{story}");
        assert_eq!(after.as_secs(), took, "{story}");
        let done = ends == "done";
        assert_eq!(story.contains("NodeStageVolume"), done, "{story}");
        assert_ne!(story.contains("the CSIDriver objects are not known yet"), done, "{story}");
    }
}

/// A bench on a simulated kernel whose mounts carry labels, or do not.
fn labelling(seclabel: bool) -> (Bench, FakeHost) {
    let (bench, host) = Bench::simulated();
    host.kernel().set_selinux(Path::new("/"), seclabel).unwrap();
    (bench, host)
}

#[tokio::test]
async fn the_runtime_labels_what_has_labels_and_was_not_mounted_with_one() {
    for (enabled, seclabel, label, read_only, says) in [
        (true, true, "", false, "mark pod mounted to be labelled\n"),
        (true, true, "", true, "mark pod mounted read-only\n"),
        (true, true, "u:r:t:s0", false, "mark pod mounted\n"),
        (true, false, "", false, "mark pod mounted\n"),
        (false, true, "", false, "mark pod mounted\n"),
    ] {
        let (mut bench, host) = labelling(seclabel);
        bench.spec = Arc::new(Spec { read_only, ..(*bench.spec).clone() });
        bench.know(|facts| facts.selinux = enabled);
        // As the driver does.
        let target = bench.context.paths.csi_target(&"u1".into(), &"pv".into());
        host.kernel().make_dir_all(&target, 0o755).unwrap();
        let mut mount = bench.mounting();
        mount.selinux_label = label.to_owned();
        let story = bench.run(Operation::Mount(Arc::new(mount))).await;
        assert!(story.contains(says), "{enabled} {seclabel} {label:?} {read_only}: {story}");
    }
}

#[tokio::test]
async fn unreadable_target_is_uncertain() {
    let (mut bench, _) = labelling(true);
    bench.know(|facts| facts.selinux = true);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("call NodePublishVolume"), "{story}");
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
}
