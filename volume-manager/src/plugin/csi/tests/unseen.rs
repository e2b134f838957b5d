//! Paths that cannot be examined count neither as missing nor as present, except a dead mount, which is present.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::VolumeMode;
use host::errno::{EEXIST, EIO, ENOMEM, ENOSPC, ENOTCONN, ENOTDIR};
use host::fake::{FakeHost, Order, Rule};
use plugin_api::VolumePlugin as _;

use crate::operation::Operation;
use crate::plugin::csi::CsiPlugin;
use crate::plugin::testing::{Bench, DRIVER, persistent_spec};

struct Node {
    bench: Bench,
    host: FakeHost,
    staging: PathBuf,
}

impl Node {
    fn new(mode: VolumeMode) -> Self {
        let (mut bench, host) = Bench::simulated();
        bench.change_volume(|volume| volume.mode = Some(mode));
        let paths = &bench.context.paths;
        let staging = match mode {
            VolumeMode::Filesystem => paths.csi_global_mount(&DRIVER.into(), &"h".into()),
            VolumeMode::Block => paths.csi_block_staging(&"pv".into()),
        };
        Self { bench, host, staging }
    }

    /// A bench with the volume staged and not published.
    async fn staged(mode: VolumeMode) -> Self {
        let mut node = Self::new(mode);
        match mode {
            VolumeMode::Filesystem => {
                node.mount().await;
                node.unmount().await;
            }
            VolumeMode::Block => {
                // A device that is not visible leaves the pod, and stays staged.
                node.bench.run(Operation::Map(Arc::new(node.bench.mounting()))).await;
                node.bench.run(Operation::Unmap(Arc::new(node.bench.unmounting()))).await;
            }
        }
        node
    }

    fn fail_once(&self, errno: i32, method: &'static str, below: &Path) {
        self.host.faults().add(Rule::new(Order::Fail(errno)).on(method).below(below).times(1));
    }

    async fn mount(&mut self) -> String {
        self.bench.run(Operation::Mount(Arc::new(self.bench.mounting()))).await
    }

    async fn unmount(&mut self) -> String {
        self.bench.run(Operation::Unmount(Arc::new(self.bench.unmounting()))).await
    }

    async fn leave(&mut self) -> String {
        let leaving = Arc::new(self.bench.leaving());
        self.bench
            .run(match self.bench.spec.mode() {
                VolumeMode::Filesystem => Operation::UnmountDevice(leaving),
                VolumeMode::Block => Operation::UnmapDevice(leaving),
            })
            .await
    }

    fn record(&self) -> PathBuf {
        self.staging.with_file_name("vol_data.json")
    }
}

fn failed(story: &str) -> bool {
    story.lines().last().unwrap().starts_with("failed")
}

#[tokio::test]
async fn file_in_place_of_a_directory_is_named() {
    for (errno, message) in [
        (EEXIST, "exists but is not a directory"),
        (ENOTDIR, "exists but is not a directory"),
        (ENOSPC, "No space left on device"),
    ] {
        let mut node = Node::new(VolumeMode::Filesystem);
        node.fail_once(errno, "make_dir_all", &node.staging);
        let story = node.mount().await;
        assert!(story.contains(message) && !story.contains("NodeStageVolume"), "{errno}: {story}");
    }
}

#[tokio::test]
async fn a_dead_mount_is_the_drivers_to_bring_back() {
    for errno in [ENOTCONN, EIO] {
        let mut node = Node::new(VolumeMode::Filesystem);
        node.host.kernel().make_dir_all(&node.staging, 0o750).unwrap();
        for method in ["make_dir_all", "symlink_metadata"] {
            node.fail_once(errno, method, &node.staging);
        }
        let story = node.mount().await;
        assert!(story.contains("call NodeStageVolume"), "{errno}: {story}");
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_now_is_not_lost() {
    let mut node = Node::new(VolumeMode::Filesystem);
    node.mount().await;
    let root = node.bench.root.path().to_owned();
    node.fail_once(EIO, "read_file", &root);
    let story = node.unmount().await;
    assert!(failed(&story) && !story.contains("call"), "{story}");
    assert!(node.unmount().await.ends_with("done\n"));
    node.fail_once(EIO, "read_file", &root);
    let story = node.leave().await;
    assert!(failed(&story) && !story.contains("call"), "{story}");
    assert!(node.leave().await.contains("call NodeUnstageVolume"));
}

#[tokio::test]
async fn a_stage_that_cannot_be_looked_at_is_neither_left_nor_undone() {
    for mode in [VolumeMode::Filesystem, VolumeMode::Block] {
        let mut node = Node::staged(mode).await;
        if mode == VolumeMode::Filesystem {
            node.host.kernel().remove_file(&node.record()).unwrap();
        }
        node.fail_once(ENOMEM, "symlink_metadata", &node.staging);
        let story = node.leave().await;
        assert!(failed(&story) && !story.contains("call"), "{mode:?}: {story}");
        assert!(node.leave().await.contains("call NodeUnstageVolume"), "{mode:?}");
    }
}

#[tokio::test]
async fn a_stage_that_no_longer_answers_is_undone() {
    for mode in [VolumeMode::Filesystem, VolumeMode::Block] {
        let mut node = Node::staged(mode).await;
        if mode == VolumeMode::Filesystem {
            node.host.kernel().remove_file(&node.record()).unwrap();
        }
        node.fail_once(EIO, "symlink_metadata", &node.staging);
        let story = node.leave().await;
        assert!(story.contains("call NodeUnstageVolume"), "{mode:?}: {story}");
    }
}

#[tokio::test]
async fn a_damaged_record_without_its_mount_may_still_be_of_a_stage() {
    let mut node = Node::staged(VolumeMode::Filesystem).await;
    node.host.kernel().remove_dir(&node.staging).unwrap();
    node.host.kernel().write_file(&node.record(), b"{", 0o644).unwrap();
    let story = node.leave().await;
    assert!(story.contains("call NodeUnstageVolume") && story.ends_with("done\n"), "{story}");
}

#[tokio::test]
async fn an_object_of_another_volume_does_not_say_what_is_staged() {
    let node = Node::staged(VolumeMode::Filesystem).await;
    node.host.kernel().write_file(&node.record(), b"{", 0o644).unwrap();
    node.bench.story.take();
    let plugin = CsiPlugin::new();
    let mounter = plugin.device_mounter().expect("drivers stage volumes");
    let another = persistent_spec("pv", DRIVER, "another");
    let undone = mounter.unmount_device(&node.bench.context, &node.staging, &another).await;
    assert!(undone.is_err());
    assert_eq!(node.bench.story.take(), "");
}

#[tokio::test]
async fn a_devices_directory_that_cannot_be_removed_keeps_the_device() {
    let mut node = Node::staged(VolumeMode::Block).await;
    let publish = node.bench.context.paths.csi_block_publish_dir(&"pv".into());
    node.fail_once(EIO, "remove_dir", &publish);
    let story = node.leave().await;
    assert!(failed(&story) && !story.contains("mark device unmounted"), "{story}");
    assert!(node.leave().await.ends_with("done\n"));
}
