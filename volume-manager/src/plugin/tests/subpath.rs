//! Sub-paths on the real kernel: the files that a container sees, and files outside of the volume, which it never sees.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::VolumeSource;
use api::names::{ContainerName, PodUid, SpecName};
use host::Host;
use host::fake::{Order, Rule};

use crate::operation::Operation;
use crate::plugin::testing::Bench;
use crate::subpath::{self, SubPath, SubPathError};

struct Scene {
    bench: Bench,
    volume: PathBuf,
    pod: PodUid,
    inner: SpecName,
    container: ContainerName,
}

impl Scene {
    async fn set() -> Option<Self> {
        let bench = Bench::new();
        if !bench.private_mounts().await {
            return None;
        }
        let volume = bench.path("volume");
        bench.context.host.make_dir(&volume, 0o755).await.unwrap();
        bench.context.host.make_dir(&bench.path("outside"), 0o755).await.unwrap();
        bench.context.host.write_file(&bench.path("outside/canary"), b"secret", 0o644).await.unwrap();
        Some(Self { bench, volume, pod: "u1".into(), inner: "pv".into(), container: "main".into() })
    }

    async fn prepare(&self, sub: &str) -> Result<PathBuf, SubPathError> {
        let request = SubPath {
            pod: &self.pod,
            inner: &self.inner,
            volume_path: &self.volume,
            container: &self.container,
            index: 0,
            sub_path: subpath::check(sub)?,
        };
        subpath::prepare(&*self.bench.context.host, &self.bench.context.paths, &request).await
    }

    async fn clean(&self) {
        let cx = &self.bench.context;
        subpath::clean(&*cx.host, &cx.paths, &self.pod, &self.inner).await.unwrap();
    }
}

#[tokio::test]
async fn shows_directories_files_and_what_links_inside_lead_to() {
    let Some(scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    host.make_dir_all(&scene.volume.join("a/b"), 0o755).await.unwrap();
    host.write_file(&scene.volume.join("a/b/file"), b"1", 0o644).await.unwrap();
    host.symlink(Path::new("a/b"), &scene.volume.join("link")).await.unwrap();

    let target = scene.prepare("a/b").await.unwrap();
    assert_eq!(target, scene.bench.path("pods/u1/volume-subpaths/pv/main/0"));
    assert_eq!(host.read_file(&target.join("file")).await.unwrap(), b"1");
    assert_eq!(scene.prepare("link").await.unwrap(), target, "the same file is not bound again");
    assert_eq!(host.mount_table().await.unwrap().layers(&target), 1);

    // Another file takes the place of the first, and a file the place of a directory.
    scene.prepare("a/b/file").await.unwrap();
    assert_eq!(host.read_file(&target).await.unwrap(), b"1");
    assert_eq!(host.mount_table().await.unwrap().layers(&target), 1);
    scene.clean().await;
    assert!(host.symlink_metadata(&scene.bench.path("pods/u1/volume-subpaths")).await.is_err());
}

#[tokio::test]
async fn makes_what_is_missing_with_the_mode_of_the_volume() {
    let Some(scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    host.chmod(&scene.volume, 0o2770).await.unwrap();
    scene.prepare("new/deep").await.unwrap();
    for made in ["new", "new/deep"] {
        assert_eq!(host.metadata(&scene.volume.join(made)).await.unwrap().mode, 0o2770, "{made}");
    }
    scene.clean().await;
    assert!(host.metadata(&scene.volume.join("new/deep")).await.is_ok(), "the volume's content stays");
}

#[tokio::test]
async fn subpath_stays_in_the_volume_and_its_error_names_no_host_path() {
    let Some(scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    let outside = scene.bench.path("outside");
    host.symlink(&outside, &scene.volume.join("absolute")).await.unwrap();
    host.symlink(Path::new("../outside"), &scene.volume.join("relative")).await.unwrap();
    host.symlink(Path::new("/etc/passwd"), &scene.volume.join("file")).await.unwrap();
    for sub in
        ["absolute", "relative", "file", "absolute/new", "relative/canary", "../outside", "/etc", "a/../../x"]
    {
        let error = scene.prepare(sub).await.expect_err(sub);
        let message = error.to_string();
        assert!(!message.contains(&scene.bench.root.path().display().to_string()), "{sub}: {message}");
    }
    assert!(host.symlink_metadata(&outside.join("new")).await.unwrap_err().is_not_found());
    assert!(host.mount_table().await.unwrap().below(&scene.bench.path("pods")).next().is_none());
}

/// Another process swaps a directory for a link that leads out, again and again, while it is being bound.
#[tokio::test]
async fn a_link_that_is_swapped_in_while_we_look_never_shows_the_outside() {
    let Some(scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    host.make_dir(&scene.volume.join("swapped"), 0o755).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (over, volume) = (Arc::clone(&over), scene.volume.clone());
        move || {
            let (dir, link, aside) = (volume.join("swapped"), volume.join("link"), volume.join("aside"));
            while !over.load(Ordering::Relaxed) {
                let _ = nix::unistd::symlinkat("../outside", nix::fcntl::AT_FDCWD, &link);
                let _ = nix::fcntl::renameat(nix::fcntl::AT_FDCWD, &dir, nix::fcntl::AT_FDCWD, &aside);
                let _ = nix::fcntl::renameat(nix::fcntl::AT_FDCWD, &link, nix::fcntl::AT_FDCWD, &dir);
                let _ = nix::unistd::unlink(&dir);
                let _ = nix::fcntl::renameat(nix::fcntl::AT_FDCWD, &aside, nix::fcntl::AT_FDCWD, &dir);
            }
        }
    });
    let mut shown = 0;
    for _ in 0..1000 {
        if let Ok(target) = scene.prepare("swapped").await {
            shown += 1;
            assert!(host.symlink_metadata(&target.join("canary")).await.is_err(), "the outside is shown");
        }
        scene.clean().await;
    }
    over.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(shown > 0, "some attempts met the directory");
}

#[tokio::test]
async fn a_volume_leaves_only_after_its_sub_paths() {
    let Some(mut scene) = Scene::set().await else { return };
    let host = Arc::clone(&scene.bench.context.host);
    let source = VolumeSource::EmptyDir { medium: "Memory".into(), size_limit: None };
    scene.bench.inline(source);
    scene.bench.run(Operation::Mount(Arc::new(scene.bench.mounting()))).await;
    scene.volume = scene.bench.path("pods/u1/volumes/kubernetes.io~empty-dir/data");
    scene.inner = "data".into();
    let target = scene.prepare("sub").await.unwrap();
    let story = scene.bench.run(Operation::Unmount(Arc::new(scene.bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    let table = host.mount_table().await.unwrap();
    assert!(table.at(&target).is_none() && table.at(&scene.volume).is_none());
}

/// The mount point of a bind is for the node alone: a directory or a file, like the source of the bind.
#[tokio::test]
async fn the_place_of_a_bind_is_of_its_kind() {
    let (bench, host) = Bench::simulated();
    let volume = bench.path("volume");
    host.make_dir_all(&volume.join("dir"), 0o777).await.unwrap();
    host.write_file(&volume.join("file"), b"", 0o666).await.unwrap();
    for (sub_path, is_dir, mode) in [("dir", true, 0o750), ("file", false, 0o640)] {
        let request = SubPath {
            pod: &"u1".into(),
            inner: &"pv".into(),
            volume_path: &volume,
            container: &"main".into(),
            index: 0,
            sub_path: Path::new(sub_path),
        };
        let target = subpath::prepare(&host, &bench.context.paths, &request).await.unwrap();
        host.unmount(&target).await.unwrap();
        let there = host.metadata(&target).await.unwrap();
        assert_eq!((there.is_dir(), there.mode), (is_dir, mode), "{sub_path}");
        assert_eq!(host.metadata(target.parent().unwrap()).await.unwrap().mode, 0o750);
    }
}

#[tokio::test]
async fn a_bind_that_cannot_go_keeps_its_volume_and_other_volumes_keep_theirs() {
    let (mut bench, host) = Bench::simulated();
    bench.inline(VolumeSource::EmptyDir { medium: "Memory".into(), size_limit: None });
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let volume = bench.path("pods/u1/volumes/kubernetes.io~empty-dir/data");
    let mut targets = Vec::new();
    for (inner, container, index) in [("data", "a", 0), ("data", "a", 1), ("data", "b", 0), ("other", "a", 0)]
    {
        let request = SubPath {
            pod: &"u1".into(),
            inner: &inner.into(),
            volume_path: &volume,
            container: &container.into(),
            index,
            sub_path: Path::new("sub"),
        };
        targets.push(subpath::prepare(&host, &bench.context.paths, &request).await.unwrap());
    }
    host.faults().add(Rule::new(Order::Fail(nix::libc::EBUSY)).on("unmount").below(&targets[2]).times(1));
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.contains("error cleaning subPath mounts"), "{story}");
    assert!(!story.contains("mark"), "the volume itself is as it was: {story}");
    assert!(host.kernel().is_mount_point(&targets[2]) && host.kernel().is_mount_point(&volume));

    subpath::clean(&host, &bench.context.paths, &"u1".into(), &"data".into()).await.unwrap();
    let there: Vec<bool> = targets.iter().map(|target| host.kernel().is_mount_point(target)).collect();
    assert_eq!(there, [false, false, false, true]);
    assert!(host.metadata(&bench.path("pods/u1/volume-subpaths/data")).await.is_err());
    subpath::clean(&host, &bench.context.paths, &"u1".into(), &"other".into()).await.unwrap();
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert!(host.metadata(&bench.path("pods/u1/volume-subpaths")).await.is_err(), "the last takes it along");
}
