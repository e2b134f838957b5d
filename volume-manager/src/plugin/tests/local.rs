//! Local volumes: directories, devices with a file system, block volumes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{Bytes, PersistentSource, VolumeMode, VolumeSource};
use host::Host;
use host::fake::{FakeHost, Order, Rule};
use host::format::DiskContent;
use plugin_api::{Before, DeviceMounter, Expand, Expander, Scene, Spec, VolumePlugin};
use serial_test::file_serial;

use crate::operation::Operation;
use crate::plugin::local::LocalPlugin;
use crate::plugin::testing::{Bench, Disk};

const DIR: &str = "pods/u1/volumes/kubernetes.io~local-volume/pv";
const GLOBAL: &str = "plugins/kubernetes.io/local-volume/mounts/pv";

fn use_path(bench: &mut Bench, path: &Path) {
    let path = path.display().to_string();
    bench.change_volume(|volume| volume.source = PersistentSource::Local { path, fs_type: String::new() });
}

#[tokio::test]
async fn directory_is_bound_with_the_pods_group_and_keeps_its_files() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    let host = Arc::clone(&bench.context.host);
    let data = bench.path("data");
    host.make_dir(&data, 0o755).await.unwrap();
    host.write_file(&data.join("canary"), b"1", 0o604).await.unwrap();
    use_path(&mut bench, &data);
    bench.pod.security.fs_group = Some(4711);

    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    let seen = host.metadata(&bench.path(DIR).join("canary")).await.unwrap();
    assert_eq!((seen.gid, seen.mode), (4711, 0o664));

    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    let story = bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert_eq!(bench.mount_at(DIR).await, None);
    assert_eq!(host.read_file(&data.join("canary")).await.unwrap(), b"1");
}

/// A directory of a simulated node, used by the bench's volume.
fn simulated() -> (Bench, FakeHost) {
    let (mut bench, host) = Bench::simulated();
    let data = bench.path("data");
    host.kernel().make_dir(&data, 0o755).unwrap();
    use_path(&mut bench, &data);
    (bench, host)
}

/// The kubelet uses the directory itself as the global mount path, and cannot unmount the device while another volume
/// has the directory.
#[tokio::test]
async fn global_mount_path_of_a_directory_is_not_mounted() {
    let (mut bench, host) = simulated();
    let at = LocalPlugin.device_mount_path(&bench.context.paths, &bench.spec).unwrap();
    assert_eq!(at, bench.path(GLOBAL));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let (unmounting, leaving) = (bench.unmounting(), bench.leaving());

    bench.change_volume(|volume| volume.meta.name = "pw".to_owned());
    bench.pod.meta.uid = "u2".into();
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let other = bench.path("pods/u2/volumes/kubernetes.io~local-volume/pw");
    assert!(host.kernel().is_mount_point(&other));

    bench.run(Operation::Unmount(Arc::new(unmounting))).await;
    let story = bench.run(Operation::UnmountDevice(Arc::new(leaving))).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert!(host.kernel().is_mount_point(&other));
}

/// The kubelet forgets a volume whose set-up failed after the bind, and leaves the bind mounted.
#[tokio::test]
async fn bind_of_a_failed_mount_is_unmounted() {
    for fails in [&["change_ownership"][..], &["remount_bind", "unmount"]] {
        let (mut bench, host) = simulated();
        bench.pod.security.fs_group = Some(4711);
        for method in fails {
            host.faults().add(Rule::new(Order::Fail(nix::libc::EIO)).on(method).times(1));
        }
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.contains("mark pod failed: Uncertain"), "{story}");
        assert!(host.kernel().is_mount_point(&bench.path(DIR)), "{fails:?}");
        let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        assert!(story.ends_with("done\n"), "{story}");
        assert!(!host.kernel().is_mount_point(&bench.path(DIR)), "{fails:?}");
    }
}

#[tokio::test]
async fn a_read_only_claim_is_bound_read_only_and_the_directory_stays_writable() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    let host = Arc::clone(&bench.context.host);
    let data = bench.path("data");
    host.make_dir(&data, 0o755).await.unwrap();
    use_path(&mut bench, &data);
    bench.spec = Arc::new(plugin_api::Spec { read_only: true, ..(*bench.spec).clone() });
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let written = host.write_file(&bench.path(DIR).join("x"), b"", 0o600).await;
    assert_eq!(written.unwrap_err().errno(), Some(nix::libc::EROFS));
    host.write_file(&data.join("x"), b"", 0o600).await.unwrap();
    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
}

#[tokio::test]
#[file_serial(root)]
async fn a_device_is_formatted_once_mounted_for_the_node_and_bound_for_pods() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    let Some(disk) = Disk::new(&bench, 16 << 20).await else { return };
    let host = Arc::clone(&bench.context.host);
    use_path(&mut bench, &disk.device);
    for attempt in 0..2 {
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.ends_with("done\n"), "{story}");
        assert!(bench.mount_at(GLOBAL).await.is_some_and(|mount| mount.starts_with("ext4 ")));
        let file = bench.path(DIR).join("kept");
        match attempt {
            0 => host.write_file(&file, b"1", 0o600).await.unwrap(),
            _ => assert_eq!(host.read_file(&file).await.unwrap(), b"1", "it is not formatted again"),
        }
        bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        let story = bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
        assert!(story.ends_with("done\n"), "{story}");
        assert_eq!(bench.mount_at(GLOBAL).await, None);
    }
}

#[tokio::test]
#[file_serial(root)]
async fn device_of_a_withdrawn_mount_gets_no_directory() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    let Some(disk) = Disk::new(&bench, 16 << 20).await else { return };
    use_path(&mut bench, &disk.device);
    bench.withdrawn = true;
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(!story.ends_with("done\n"), "{story}");
    let found = bench.context.host.metadata(&bench.path(GLOBAL)).await;
    assert!(found.unwrap_err().is_not_found());
}

#[tokio::test]
#[file_serial(root)]
async fn block_volume_is_mapped_to_the_device() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    let Some(disk) = Disk::new(&bench, 1 << 20).await else { return };
    let host = Arc::clone(&bench.context.host);
    use_path(&mut bench, &disk.device);
    bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
    let story = bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    let link = bench.path("pods/u1/volumeDevices/kubernetes.io~local-volume/pv");
    let real = host.metadata(&disk.device).await.unwrap().rdev;
    assert_eq!(host.metadata(&link).await.unwrap().rdev, real);
    let bind = bench.path("plugins/kubernetes.io~local-volume/volumeDevices/pv/u1");
    assert_eq!(host.metadata(&bind).await.unwrap().rdev, real);
    bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    let mut leave = bench.leaving();
    leave.device_mount_path = bench.path("plugins/kubernetes.io~local-volume/volumeDevices/pv");
    let story = bench.run(Operation::UnmapDevice(Arc::new(leave))).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert_eq!(bench.files().await, ["$R/disk 600"]);
}

#[tokio::test]
async fn mount_left_by_a_crash_is_found() {
    let bench = Bench::new();
    let host = Arc::clone(&bench.context.host);
    host.make_dir_all(&bench.path(GLOBAL), 0o750).await.unwrap();
    let map = bench.path("plugins/kubernetes.io~local-volume/volumeDevices/raw");
    host.make_dir_all(&map, 0o750).await.unwrap();
    host.write_file(&map.join("u1"), b"", 0o600).await.unwrap();

    let cx = &bench.context;
    let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
    let found = LocalPlugin.find_staged(&scene).await;
    let lines: Vec<String> = found
        .iter()
        .map(|staged| {
            let pod = staged.pod.as_ref().map_or("no pod".to_owned(), ToString::to_string);
            format!("{} {:?} {pod}", staged.rebuilt.spec.name(), staged.rebuilt.spec.mode())
        })
        .collect();
    assert_eq!(lines, ["pv Filesystem no pod", "raw Block u1", "raw Block no pod"]);
}

#[tokio::test]
async fn path_of_another_type_or_missing_is_refused() {
    let mut bench = Bench::new();
    bench.context.host.write_file(&bench.path("file"), b"", 0o600).await.unwrap();
    for (path, text) in [
        (bench.path("file"), "only directory and block device are supported"),
        (bench.path("missing"), "cannot look at"),
        (PathBuf::from("/a/../b"), "must not contain '..'"),
    ] {
        use_path(&mut bench, &path);
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.contains(text), "{story}");
        assert_eq!(bench.files().await, ["$R/file 600"]);
    }
}

#[tokio::test]
async fn group_of_another_pod_stays_and_is_an_event() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    let data = bench.path("data");
    bench.context.host.make_dir(&data, 0o755).await.unwrap();
    use_path(&mut bench, &data);
    bench.pod.security.fs_group = Some(1);
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;

    let first = bench.unmounting();
    bench.pod.meta.uid = "u2".into();
    bench.pod.security.fs_group = Some(2);
    let mut second = bench.mounting();
    second.device = Before::Mounted;
    let story = bench.run(Operation::Mount(Arc::new(second))).await;
    let text = "event Pod Warning AlreadyMountedVolume: The requested fsGroup is 2, but the volume pv has GID 1. \
                The volume may not be shareable.";
    assert!(story.contains(text), "{story}");
    assert_eq!(bench.context.host.metadata(&data).await.unwrap().gid, 1);

    let mut second = first.clone();
    second.pod = "u2".into();
    for unmount in [first, second] {
        bench.run(Operation::Unmount(Arc::new(unmount))).await;
    }
}

/// A disk of a simulated node, used by the bench's volume.
fn simulated_disk(content: DiskContent) -> (Bench, FakeHost) {
    let (mut bench, host) = Bench::simulated();
    host.kernel().add_disk("sda", 1 << 30).unwrap();
    match content {
        DiskContent::FileSystem(fs_type) => host.kernel().format(Path::new("/dev/sda"), &fs_type).unwrap(),
        content => host.kernel().set_content(Path::new("/dev/sda"), content).unwrap(),
    }
    use_path(&mut bench, Path::new("/dev/sda"));
    (bench, host)
}

#[tokio::test]
async fn read_only_device_is_mounted_read_only_and_not_formatted() {
    for (content, mounts) in [(DiskContent::FileSystem("ext4".into()), true), (DiskContent::Nothing, false)] {
        let (mut bench, host) = simulated_disk(content);
        bench.spec = Arc::new(Spec { read_only: true, ..(*bench.spec).clone() });
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert_eq!(story.ends_with("done\n"), mounts, "{story}");
        match mounts {
            true => assert!(bench.mount_at(GLOBAL).await.unwrap().starts_with("ext4 ro"), "{story}"),
            false => {
                assert!(story.contains("it is not formatted, and cannot be as it is read-only"), "{story}");
                assert!(host.metadata(&bench.path(GLOBAL)).await.is_err(), "the directory is removed");
            }
        }
    }
}

#[tokio::test]
async fn file_system_mismatch_is_an_event_on_the_volume() {
    let (mut bench, host) = simulated_disk(DiskContent::FileSystem("xfs".into()));
    host.faults().add(Rule::new(Order::Fail(nix::libc::EINVAL)).on("mount").times(1));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let why = "failed to mount the volume as \"ext4\", it already contains xfs. Mount error: Invalid argument (os error 22)";
    let event = format!(
        "event PersistentVolume Warning FailedMountOnFilesystemMismatch: local: failed to mount the volume's device: {why}"
    );
    assert!(story.contains(&event), "{story}");
}

/// A scope of its own lets the helper processes of a mount outlive the node's agent; only file systems on disks may
/// have such processes.
#[tokio::test]
async fn only_mounts_of_disks_run_in_a_scope() {
    let (mut bench, host) = simulated_disk(DiskContent::Nothing);
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    for source in [
        VolumeSource::EmptyDir { medium: "Memory".into(), size_limit: None },
        VolumeSource::Nfs { server: "server".into(), path: "/data".into(), read_only: false },
    ] {
        bench.inline(source);
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.ends_with("done\n"), "{story}");
    }
    assert_eq!(host.kernel().scoped(), [bench.path(GLOBAL)]);
}

#[tokio::test]
async fn a_bind_has_the_options_of_its_volume_and_is_made_once() {
    let (mut bench, host) = simulated();
    bench.change_volume(|volume| volume.mount_options = vec!["nosuid".into(), "noexec".into()]);
    for read_only in [false, true] {
        bench.spec = Arc::new(Spec { read_only, ..(*bench.spec).clone() });
        for _ in 0..2 {
            let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
            assert!(story.ends_with("done\n"), "{story}");
            assert_eq!(story.contains("mounted read-only"), read_only, "{story}");
        }
        let mount = bench.mount_at(DIR).await.unwrap();
        let access = if read_only { "ro" } else { "rw" };
        assert!(mount.contains(&format!("{access},nosuid,noexec")), "{mount}");
        assert_eq!(host.kernel().mount_table().layers(&bench.path(DIR)), 1);
        bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    }
}

#[tokio::test]
async fn only_a_file_system_on_a_device_is_expanded() {
    let fs = |name: &str| DiskContent::FileSystem(name.to_owned());
    for (content, mode, grows) in [
        (fs("ext4"), VolumeMode::Filesystem, Ok(true)),
        (fs("xfs"), VolumeMode::Filesystem, Ok(true)),
        (DiskContent::Nothing, VolumeMode::Filesystem, Ok(false)),
        (fs("vfat"), VolumeMode::Filesystem, Err("resize of format vfat is not supported")),
        (DiskContent::Partitions, VolumeMode::Filesystem, Err("it holds unknown data, probably partitions")),
        (fs("ext4"), VolumeMode::Block, Ok(false)),
    ] {
        let (mut bench, host) = simulated_disk(content.clone());
        bench.change_volume(|volume| volume.mode = Some(mode));
        assert_eq!(grow(&bench, &host).await, grows.map_err(str::to_owned), "{content:?} {mode:?}");
    }
    let (bench, host) = simulated();
    assert_eq!(grow(&bench, &host).await, Ok(false), "a directory");
}

/// Expands the volume. Returns whether the file system's tool ran, or the innermost error.
async fn grow(bench: &Bench, host: &FakeHost) -> Result<bool, String> {
    let ran = Arc::new(AtomicBool::new(false));
    host.faults().decide_with({
        let ran = Arc::clone(&ran);
        move |step| {
            ran.fetch_or(step.method == "grow_filesystem", Ordering::Relaxed);
            Order::Go
        }
    });
    let request = Expand {
        spec: Arc::clone(&bench.spec),
        new_size: Bytes(2 << 30),
        old_size: Bytes(1 << 30),
        volume_path: bench.path(DIR),
        device_path: String::new(),
        staging_path: PathBuf::new(),
    };
    match LocalPlugin.expand(&bench.context, &request).await {
        Ok(()) => Ok(ran.load(Ordering::Relaxed)),
        Err(failure) => {
            let text = failure.chain();
            Err(text.rsplit_once(": ").map_or(text.clone(), |(_, end)| end.to_owned()))
        }
    }
}
