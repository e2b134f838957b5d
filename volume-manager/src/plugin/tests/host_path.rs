//! hostPath volumes: existing paths of the node, and paths that the plugin creates.

use std::sync::Arc;

use api::{PersistentSource, VolumeSource};
use host::{DeviceNumber, FileKind, Host};
use plugin_api::Spec;

use crate::operation::Operation;
use crate::plugin::testing::Bench;

fn host_path(bench: &Bench, below: &str, kind: &str) -> VolumeSource {
    VolumeSource::HostPath { path: bench.path(below).display().to_string(), kind: kind.into() }
}

#[tokio::test]
async fn each_type_accepts_only_paths_of_its_kind() {
    let mut bench = Bench::new();
    let host = Arc::clone(&bench.context.host);
    host.make_dir(&bench.path("dir"), 0o755).await.unwrap();
    host.write_file(&bench.path("file"), b"", 0o644).await.unwrap();
    host.symlink(&bench.path("dir"), &bench.path("link")).await.unwrap();
    for (kind, takes) in [
        ("", &["dir", "file", "link", "missing"][..]),
        ("Directory", &["dir", "link"]),
        ("File", &["file"]),
        ("Socket", &[]),
        ("CharDevice", &[]),
        ("BlockDevice", &[]),
    ] {
        for below in ["dir", "file", "link", "missing"] {
            let source = host_path(&bench, below, kind);
            bench.inline(source);
            let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
            let taken = story.ends_with("mark pod mounted\ndone\n");
            assert_eq!(taken, takes.contains(&below), "{kind} {below}: {story}");
            assert!(taken || story.contains("hostPath type check failed"), "{story}");
        }
    }
}

#[tokio::test]
async fn sockets_and_devices_are_distinguished() {
    let (mut bench, host) = Bench::simulated();
    let kinds = [
        ("Socket", FileKind::Socket),
        ("CharDevice", FileKind::CharDevice),
        ("BlockDevice", FileKind::BlockDevice),
    ];
    for (name, kind) in kinds {
        host.kernel().make_node(&bench.path(name), kind, DeviceNumber::new(252, 7), 0o600).unwrap();
    }
    for (wanted, _) in kinds {
        for (below, _) in kinds {
            let source = host_path(&bench, below, wanted);
            bench.inline(source);
            let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
            assert_eq!(story.ends_with("done\n"), wanted == below, "{wanted} {below}: {story}");
        }
    }
}

/// An inline hostPath volume is never read-only; only its container mounts can be.
#[tokio::test]
async fn host_path_is_read_only_only_through_a_claim() {
    for read_only in [false, true] {
        let mut bench = Bench::simulated().0;
        let path = bench.root.path().display().to_string();
        bench.change_volume(|volume| {
            volume.source = PersistentSource::HostPath { path, kind: "Directory".into() };
        });
        bench.spec = Arc::new(Spec { read_only, ..(*bench.spec).clone() });
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert_eq!(story.contains("mark pod mounted read-only"), read_only, "{story}");
    }
}

#[tokio::test]
async fn host_path_keeps_its_group_and_gets_no_directory_of_the_pod() {
    let (mut bench, host) = Bench::simulated();
    let dir = bench.path("dir");
    host.make_dir(&dir, 0o755).await.unwrap();
    let source = host_path(&bench, "dir", "Directory");
    bench.inline(source);
    bench.pod.security.fs_group = Some(4711);
    for operation in
        [Operation::Mount(Arc::new(bench.mounting())), Operation::Unmount(Arc::new(bench.unmounting()))]
    {
        let story = bench.run(operation).await;
        assert!(story.ends_with("done\n"), "{story}");
        let there = host.metadata(&dir).await.unwrap();
        assert_eq!((there.gid, there.mode), (0, 0o755), "the directory belongs to the node");
        assert_eq!(bench.tree().await, "$R/dir 755/\n", "nothing is below the pod's directory");
    }
}

#[tokio::test]
async fn missing_host_path_is_created_and_stays() {
    let mut bench = Bench::new();
    for (below, kind, mode) in [
        ("a/b", "DirectoryOrCreate", 0o755),
        ("a/file", "FileOrCreate", 0o644),
        ("a/b", "DirectoryOrCreate", 0o755),
    ] {
        let source = host_path(&bench, below, kind);
        bench.inline(source);
        bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let there = bench.context.host.metadata(&bench.path(below)).await.unwrap();
        assert_eq!(there.mode, mode);
        bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        assert!(
            bench.context.host.metadata(&bench.path(below)).await.is_ok(),
            "the path belongs to the node"
        );
    }
    let source = host_path(&bench, "no/such/file", "FileOrCreate");
    bench.inline(source);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("failed Final"), "the parent directory is not created: {story}");
}

#[tokio::test]
async fn path_with_dot_dot_and_unknown_type_are_refused() {
    let mut bench = Bench::new();
    for (path, kind, text) in
        [("/a/../etc", "", "must not contain '..'"), ("/a", "Pipe", "Pipe is an invalid volume type")]
    {
        bench.inline(VolumeSource::HostPath { path: path.into(), kind: kind.into() });
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.contains(text), "{story}");
    }
}

#[tokio::test]
async fn mount_options_are_refused_before_any_effect() {
    let mut bench = Bench::new();
    let path = bench.path("made");
    let source =
        PersistentSource::HostPath { path: path.display().to_string(), kind: "DirectoryOrCreate".into() };
    bench.change_volume(|volume| {
        volume.source = source;
        volume.mount_options = vec!["noatime".into()];
    });
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mount options are not supported for this volume type"), "{story}");
    assert!(!story.contains("mark"), "{story}");
    assert!(bench.context.host.metadata(&path).await.is_err(), "nothing was made");
}
