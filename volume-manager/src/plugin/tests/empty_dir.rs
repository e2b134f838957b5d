//! Empty directories on disk and in memory.

use std::sync::{Arc, Mutex};

use api::{Bytes, Container, ContainerKind, Node, VolumeSource};
use expect_test::expect;
use host::Host;
use host::fake::{Order, Rule};
use nix::libc::EIO;
use plugin_api::Before;

use crate::operation::{MountVolume, Operation};
use crate::plugin::testing::Bench;

const DIR: &str = "pods/u1/volumes/kubernetes.io~empty-dir/data";
const READY: &str = "pods/u1/plugins/kubernetes.io~empty-dir/data/ready";

fn empty_dir(medium: &str, size_limit: Option<u64>) -> VolumeSource {
    VolumeSource::EmptyDir { medium: medium.into(), size_limit: size_limit.map(Bytes) }
}

#[tokio::test]
async fn a_directory_on_disk_keeps_its_content_until_the_pod_is_gone() {
    let mut bench = Bench::new();
    bench.inline(empty_dir("", None));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        mark pod uncertain
        mark pod mounted to be labelled
        done
    "#]]
    .assert_eq(&story);
    expect![[r#"
        $R/pods 755/
        $R/pods/u1 755/
        $R/pods/u1/plugins 750/
        $R/pods/u1/plugins/kubernetes.io~empty-dir 750/
        $R/pods/u1/plugins/kubernetes.io~empty-dir/data 750/
        $R/pods/u1/plugins/kubernetes.io~empty-dir/data/ready 644
        $R/pods/u1/volumes 755/
        $R/pods/u1/volumes/kubernetes.io~empty-dir 755/
        $R/pods/u1/volumes/kubernetes.io~empty-dir/data 777/
    "#]]
    .assert_eq(&bench.tree().await);

    let file = bench.path(DIR).join("kept");
    bench.context.host.write_file(&file, b"1", 0o600).await.unwrap();
    let mut again = bench.mounting();
    again.before = Before::Uncertain;
    bench.run(Operation::Mount(Arc::new(again))).await;
    assert_eq!(bench.context.host.read_file(&file).await.unwrap(), b"1");

    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    expect![[r#"
        $R/pods 755/
        $R/pods/u1 755/
        $R/pods/u1/plugins 750/
        $R/pods/u1/plugins/kubernetes.io~empty-dir 750/
        $R/pods/u1/volumes 755/
        $R/pods/u1/volumes/kubernetes.io~empty-dir 755/
    "#]]
    .assert_eq(&bench.tree().await);
}

#[tokio::test]
async fn memory_is_a_tmpfs_of_the_least_of_all_limits() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    let mut node = Node::default();
    node.allocatable.memory = Bytes(64 << 20);
    bench.know(|facts| facts.node = Some(Arc::new(node)));
    for (limit, size) in
        [(Some(8 << 20), "size=8192k"), (None, "size=65536k"), (Some(1 << 40), "size=65536k")]
    {
        bench.inline(empty_dir("Memory", limit));
        bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let mount = bench.mount_at(DIR).await.expect("it is mounted");
        assert!(mount.starts_with("tmpfs ") && mount.contains(size), "{limit:?}: {mount}");

        // Set up again, as after a restart: there is still one mount, with its files.
        let file = bench.path(DIR).join("kept");
        bench.context.host.write_file(&file, b"1", 0o600).await.unwrap();
        bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert_eq!(bench.context.host.read_file(&file).await.unwrap(), b"1");
        assert_eq!(bench.context.host.mount_table().await.unwrap().layers(&bench.path(DIR)), 1);

        bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        assert_eq!(bench.mount_at(DIR).await, None);
        assert_eq!(bench.files().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_marker_without_its_memory_is_not_believed() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    bench.inline(empty_dir("Memory", None));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    // As after a reboot: files are kept, mounts are lost.
    bench.context.host.unmount(&bench.path(DIR)).await.unwrap();
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(bench.mount_at(DIR).await.is_some());
    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert_eq!(bench.mount_at(DIR).await, None);
}

#[tokio::test]
async fn a_directory_that_is_lost_is_made_again_in_spite_of_its_marker() {
    let mut bench = Bench::new();
    bench.inline(empty_dir("", None));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    bench.context.host.remove_dir(&bench.path(DIR)).await.unwrap();
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(bench.context.host.metadata(&bench.path(DIR)).await.unwrap().is_dir());
}

#[tokio::test]
async fn the_group_owns_it_on_disk_and_in_memory() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    bench.pod.security.fs_group = Some(4711);
    for (medium, mode) in [("", 0o2777), ("Memory", 0o3777)] {
        bench.inline(empty_dir(medium, None));
        bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let root = bench.context.host.metadata(&bench.path(DIR)).await.unwrap();
        assert_eq!((root.gid, root.mode), (4711, mode), "{medium:?}");
        bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    }
}

#[tokio::test]
async fn foreign_mount_in_an_empty_dir_is_not_emptied() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    bench.inline(empty_dir("", None));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let (precious, inside) = (bench.path("precious"), bench.path(DIR).join("mnt"));
    let host = Arc::clone(&bench.context.host);
    for dir in [&precious, &inside] {
        host.make_dir(dir, 0o755).await.unwrap();
    }
    host.write_file(&precious.join("canary"), b"1", 0o600).await.unwrap();
    host.bind(&host::Bind::new(&precious, &inside)).await.unwrap();
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.contains("it is a mount point"), "{story}");
    assert_eq!(host.read_file(&precious.join("canary")).await.unwrap(), b"1");
    host.unmount(&inside).await.unwrap();
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
}

/// The kubelet forgets it, and the tmpfs stays.
#[tokio::test]
async fn memory_that_was_mounted_in_vain_is_taken_away_again() {
    let (mut bench, host) = Bench::simulated();
    bench.inline(empty_dir("Memory", None));
    host.faults().add(Rule::new(Order::Fail(EIO)).on("create_file").times(1));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    assert!(host.kernel().is_mount_point(&bench.path(DIR)));
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert!(!host.kernel().is_mount_point(&bench.path(DIR)));
}

/// The kubelet may set a project quota here.
#[tokio::test]
async fn a_limit_of_a_directory_on_disk_changes_nothing() {
    let (mut bench, host) = Bench::simulated();
    let steps: Arc<Mutex<Vec<String>>> = Arc::default();
    host.faults().decide_with({
        let steps = Arc::clone(&steps);
        move |step| {
            steps.lock().unwrap().push(format!("{} {}", step.method, step.path.display()));
            Order::Go
        }
    });
    let mut lives = Vec::new();
    for limit in [None, Some(8 << 20)] {
        bench.inline(empty_dir("", limit));
        let mounting = MountVolume { size_limit: limit.map(Bytes), ..bench.mounting() };
        bench.run(Operation::Mount(Arc::new(mounting))).await;
        bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        lives.push(std::mem::take(&mut *steps.lock().unwrap()));
    }
    assert!(lives[0].len() > 5, "{lives:?}");
    assert_eq!(lives[0], lives[1]);
}

#[tokio::test]
async fn memory_is_asked_for_with_its_size_and_then_without_swap() {
    let (mut bench, _) = Bench::simulated();
    bench.inline(empty_dir("Memory", Some(8 << 20)));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let mount = bench.mount_at(DIR).await.unwrap();
    assert!(mount.ends_with(",size=8388608,noswap"), "{mount}");
}

#[tokio::test]
async fn memory_that_is_there_without_its_marker_is_not_mounted_again() {
    let (mut bench, host) = Bench::simulated();
    bench.inline(empty_dir("Memory", None));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    host.remove_file(&bench.path(READY)).await.unwrap();
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert_eq!(host.kernel().mount_table().layers(&bench.path(DIR)), 1);
    assert!(host.metadata(&bench.path(READY)).await.is_ok(), "the marker is back");
}

/// A container of this kind that asks for huge pages of these sizes.
fn with_pages(kind: ContainerKind, sizes: &[&str]) -> Container {
    let request = |size: &&str| (format!("requests.hugepages-{size}"), "4Mi".to_owned());
    Container { kind, resources: sizes.iter().map(request).collect(), ..Container::default() }
}

#[tokio::test]
async fn huge_pages_are_of_the_size_that_a_container_requests() {
    for kernel in [true, false] {
        let mut bench = if kernel { Bench::new() } else { Bench::simulated().0 };
        if kernel && !bench.private_mounts().await {
            continue;
        }
        bench.pod.containers = vec![with_pages(ContainerKind::Init, &["2Mi"])];
        for medium in ["HugePages", "HugePages-2Mi"] {
            bench.inline(empty_dir(medium, None));
            // The quota is checked each time: the marker alone does not show it.
            for _ in 0..2 {
                let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
                assert!(story.ends_with("done\n"), "{story}");
                let mount = bench.mount_at(DIR).await.unwrap();
                assert!(mount.starts_with("hugetlbfs ") && mount.contains("pagesize=2M"), "{mount}");
                assert_eq!(bench.context.host.mount_table().await.unwrap().layers(&bench.path(DIR)), 1);
            }
            bench.context.host.unmount(&bench.path(DIR)).await.unwrap();
            bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
            assert!(bench.mount_at(DIR).await.is_some(), "there after a reboot");
            bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
            assert_eq!(bench.mount_at(DIR).await, None);
            assert_eq!(bench.files().await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn huge_pages_of_several_sizes_have_to_be_named_and_are_not_taken_for_each_other() {
    let (mut bench, host) = Bench::simulated();
    let regular = || with_pages(ContainerKind::Regular, &["1Gi"]);
    bench.pod.containers = vec![with_pages(ContainerKind::Init, &["2Mi"]), regular()];
    bench.inline(empty_dir("HugePages", None));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("more than one page size requested"), "{story}");
    assert_eq!(bench.mount_at(DIR).await, None);

    bench.inline(empty_dir("HugePages-1Gi", None));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(bench.mount_at(DIR).await.unwrap().contains("pagesize=1Gi"));
    bench.inline(empty_dir("HugePages-2Mi", None));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(
        story.contains("medium HugePages-2Mi: the page size and that of the mount, 1Gi, differ"),
        "{story}"
    );
    assert_eq!(host.kernel().mount_table().layers(&bench.path(DIR)), 1);
}

/// As with the kubelet, whose pods get the volume all the same.
#[tokio::test]
async fn a_group_that_cannot_be_given_is_no_failure_and_tried_whatever_was_made() {
    let (mut bench, host) = Bench::simulated();
    bench.pod.security.fs_group = Some(4711);
    bench.inline(empty_dir("Memory", None));
    host.faults().add(Rule::new(Order::Fail(EIO)).on("change_ownership").times(1));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;

    host.faults().add(Rule::new(Order::Fail(EIO)).on("mount").times(1));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    let root = host.metadata(&bench.path(DIR)).await.unwrap();
    assert_eq!((root.gid, root.mode), (4711, 0o2777));
}

#[tokio::test]
async fn a_directory_that_cannot_be_looked_at_is_not_made() {
    let (mut bench, host) = Bench::simulated();
    bench.inline(empty_dir("", None));
    host.faults().add(Rule::new(Order::Fail(EIO)).on("is_likely_mount_point").times(1));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("Input/output error"), "{story}");
    assert_eq!(bench.tree().await, "");
}

#[tokio::test]
async fn half_removed_volume_does_not_look_ready() {
    let (mut bench, host) = Bench::simulated();
    bench.inline(empty_dir("", None));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    host.faults().add(Rule::new(Order::Fail(EIO)).on("remove_tree").below(bench.path(DIR)).times(1));
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.contains("failed"), "{story}");
    assert!(host.metadata(&bench.path(DIR)).await.is_ok());
    assert!(host.metadata(&bench.path(READY)).await.unwrap_err().is_not_found(), "its marker went first");

    host.remove_dir(&bench.path(DIR)).await.unwrap();
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "what is not there is taken away: {story}");
}

#[tokio::test]
async fn impossible_media_are_named_before_anything_is_touched() {
    let mut bench = Bench::new();
    for (medium, text) in [
        ("Disk", "unknown storage medium \"Disk\""),
        ("HugePages", "there is no resource request for huge pages"),
        ("HugePages-2Mi", "there is no resource request for huge pages"),
    ] {
        bench.inline(empty_dir(medium, None));
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.contains(text), "{medium}: {story}");
        assert_eq!(bench.tree().await, "");
    }
}
