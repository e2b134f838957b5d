//! FUSE volumes: their daemons die, hang and outlive the driver.

use std::path::{Path, PathBuf};

use csi_proto::v1;
use csi_proto::v1::volume_capability::access_mode::Mode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serial_test::file_serial;

use crate::scene::Scene;
use crate::world::{World, in_namespace, mounted};

/// Runs a test with a FUSE volume that is published with a file in it.
fn with_volume(test: impl AsyncFnOnce(Scene) + Send) {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: needs /dev/fuse");
        return;
    }
    in_namespace(async |world| {
        let capability = mounted("", Mode::SingleNodeWriter);
        let mut scene = Scene::with(world, &["--backing=fuse"], capability).await;
        scene.stage().await.unwrap();
        scene.publish().await.unwrap();
        std::fs::write(scene.target.join("x"), "kept").unwrap();
        test(scene).await;
    });
}

/// The processes that serve volumes of a world, by their command lines.
fn daemons(world: &World) -> Vec<Pid> {
    let is_daemon = |process: &PathBuf| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("serve-fuse") && line.contains(&*world.root.to_string_lossy())
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let pid = |process: PathBuf| process.file_name()?.to_str()?.parse().ok().map(Pid::from_raw);
    processes.filter(is_daemon).filter_map(pid).collect()
}

/// Tears the volume down, and finds that its daemon is gone and that it can be used again.
async fn is_replaced(scene: &mut Scene) {
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    assert_eq!(daemons(&scene.world), []);
    scene.stage().await.unwrap();
    scene.publish().await.unwrap();
    assert_eq!(std::fs::read_to_string(scene.target.join("x")).unwrap(), "kept");
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    scene.csi.delete(&scene.id).await.unwrap();
    assert_eq!(daemons(&scene.world), []);
    scene.world.assert_clean().await;
}

#[test]
#[file_serial(root)]
fn daemon_that_has_died_or_hangs_is_replaced() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        with_volume(async |mut scene| {
            let daemon = daemons(&scene.world);
            assert_eq!(daemon.len(), 1);
            kill(daemon[0], signal).unwrap();
            let request = v1::NodeGetVolumeStatsRequest {
                volume_id: scene.id.clone(),
                volume_path: scene.target.to_string_lossy().into_owned(),
                ..Default::default()
            };
            let stats = scene.csi.node.node_get_volume_stats(request).await.unwrap().into_inner();
            assert!(stats.volume_condition.unwrap().abnormal);
            is_replaced(&mut scene).await;
        });
    }
}

#[test]
#[file_serial(root)]
fn dead_mount_is_not_published_and_is_staged_anew() {
    with_volume(async |mut scene| {
        scene.unpublish().await.unwrap();
        kill(daemons(&scene.world)[0], Signal::SIGKILL).unwrap();
        assert_eq!(scene.publish().await.unwrap_err().code(), tonic::Code::FailedPrecondition);
        scene.stage().await.unwrap();
        scene.publish().await.unwrap();
        assert_eq!(std::fs::read_to_string(scene.target.join("x")).unwrap(), "kept");
        is_replaced(&mut scene).await;
    });
}

#[test]
#[file_serial(root)]
fn daemon_outlives_the_driver_and_ends_with_its_volume() {
    with_volume(async |mut scene| {
        let daemon = daemons(&scene.world);
        scene.csi = scene.world.restart().await;
        assert_eq!(daemons(&scene.world), daemon);
        assert_eq!(std::fs::read_to_string(scene.target.join("x")).unwrap(), "kept");
        is_replaced(&mut scene).await;
    });
}
