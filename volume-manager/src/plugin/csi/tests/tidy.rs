//! The leftovers of failed and interrupted attempts, on a kernel that fails on order.

use std::path::Path;
use std::sync::Arc;

use api::VolumeMode;
use host::fake::{FakeHost, FakeKernel, Order, Rule};
use plugin_api::{Scene, VolumePlugin};
use tonic::Code;

use crate::operation::Operation;
use crate::plugin::testing::Bench;

const CSI: &str = "plugins/kubernetes.io/csi";

struct Refusing {
    bench: Bench,
    kernel: FakeKernel,
    host: FakeHost,
}

impl Refusing {
    fn new() -> Self {
        let (bench, host) = Bench::simulated();
        Self { bench, kernel: host.kernel().clone(), host }
    }

    fn of_devices() -> Self {
        let mut refusing = Self::new();
        refusing.bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
        refusing
    }

    fn refuse(&self, method: &'static str) {
        self.host.faults().add(Rule::new(Order::Fail(nix::libc::EIO)).on(method).times(1));
    }

    async fn mount(&mut self) -> String {
        let mounting = Arc::new(self.bench.mounting());
        self.bench.run(Operation::Mount(mounting)).await
    }

    async fn map(&mut self) -> String {
        let mounting = Arc::new(self.bench.mounting());
        self.bench.run(Operation::Map(mounting)).await
    }

    fn has(&self, below: &str) -> bool {
        self.kernel.symlink_metadata(&self.bench.path(below)).is_ok()
    }

    fn make(&self, below: &str) {
        self.kernel.make_dir_all(&self.bench.path(below), 0o750).unwrap();
    }
}

#[tokio::test]
async fn failed_removal_keeps_the_step_uncertain() {
    for (call, mark) in [("NodeStageVolume", "device"), ("NodePublishVolume", "pod")] {
        for (refused, class) in [(false, "Final"), (true, "Uncertain")] {
            let mut refusing = Refusing::new();
            refusing.bench.driver.fail(call, Code::Internal);
            if refused {
                refusing.refuse("remove_dir");
            }
            let story = refusing.mount().await;
            assert!(story.contains(&format!("mark {mark} failed: {class}")), "{refused}: {story}");
        }
    }
}

/// The code is final, so nothing else would remember the mount: the pod could go, and the mount would stay.
#[tokio::test]
async fn failed_call_that_has_mounted_is_undone() {
    let global = api::names::VolumeHandle::new("h").hashed();
    for (call, mark, at) in [
        ("NodeStageVolume", "device", format!("{CSI}/d.example/{global}/globalmount")),
        ("NodePublishVolume", "pod", "pods/u1/volumes/kubernetes.io~csi/pv/mount".to_owned()),
    ] {
        let mut refusing = Refusing::new();
        refusing.bench.driver.fail(call, Code::Internal);
        refusing.make(&at);
        refusing.kernel.mount("tmpfs", &refusing.bench.path(&at), "tmpfs", &[]).unwrap();
        let story = refusing.mount().await;
        assert!(story.contains(&format!("mark {mark} failed: Uncertain")), "{story}");
        assert!(refusing.has(&at));
    }
}

#[tokio::test]
async fn failed_publish_of_a_device_that_has_made_its_target_is_undone() {
    let target = format!("{CSI}/volumeDevices/publish/pv/u1");
    let mut refusing = Refusing::of_devices();
    refusing.bench.driver.fail("NodePublishVolume", Code::Internal);
    refusing.make(&target);
    let story = refusing.map().await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    assert!(refusing.has(&format!("{CSI}/volumeDevices/pv/dev/u1")), "the undo is found by this");
}

#[tokio::test]
async fn failed_stage_of_a_device_that_has_filled_its_directory_is_undone() {
    let mut refusing = Refusing::of_devices();
    refusing.bench.driver.fail("NodeStageVolume", Code::Internal);
    refusing.make(&format!("{CSI}/volumeDevices/staging/pv/device"));
    let story = refusing.map().await;
    assert!(story.contains("mark device failed: Uncertain"), "{story}");
}

#[tokio::test]
async fn mount_left_by_the_driver_keeps_its_record() {
    let mut refusing = Refusing::new();
    refusing.mount().await;
    let volume = "pods/u1/volumes/kubernetes.io~csi/pv";
    let target = format!("{volume}/mount");
    refusing.make(&target);
    refusing.kernel.mount("tmpfs", &refusing.bench.path(&target), "tmpfs", &[]).unwrap();
    let unmounting = Arc::new(refusing.bench.unmounting());
    let story = refusing.bench.run(Operation::Unmount(unmounting)).await;
    assert!(story.contains("call NodeUnpublishVolume") && story.ends_with("done\n"), "{story}");
    assert!(refusing.has(&format!("{volume}/vol_data.json")));
}

#[tokio::test]
async fn an_unpublish_whose_directory_stays_is_made_again() {
    let mut refusing = Refusing::new();
    refusing.mount().await;
    refusing.refuse("remove_dir");
    for (end, gone) in [("failed", false), ("done", true)] {
        let unmounting = Arc::new(refusing.bench.unmounting());
        let story = refusing.bench.run(Operation::Unmount(unmounting)).await;
        assert!(story.contains("call NodeUnpublishVolume"), "{end}: {story}");
        assert!(story.lines().last().unwrap().starts_with(end), "{end}: {story}");
        assert_eq!(story.contains("mark pod unmounted"), gone, "{end}: {story}");
    }
}

#[tokio::test]
async fn no_driver_is_asked_for_what_no_record_names() {
    for (records, call) in [(0, "NodeStageVolume"), (1, "NodePublishVolume")] {
        let mut refusing = Refusing::new();
        let refused = Rule::new(Order::Fail(nix::libc::EIO)).on("write_file").after(records).times(1);
        refusing.host.faults().add(refused);
        let story = refusing.mount().await;
        assert!(story.contains("failed to save volume info data"), "{story}");
        assert!(!story.contains(call), "{story}");
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_no_dead_mount() {
    let mut refusing = Refusing::new();
    refusing.refuse("make_dir_all");
    let story = refusing.mount().await;
    assert!(story.contains("attacher.MountDevice failed to create dir"), "{story}");
    assert!(!story.contains("NodeStageVolume"), "{story}");
}

#[tokio::test]
async fn an_unstage_that_stopped_half_way_is_finished() {
    let mut refusing = Refusing::new();
    refusing.mount().await;
    let unmounting = Arc::new(refusing.bench.unmounting());
    refusing.bench.run(Operation::Unmount(unmounting)).await;
    // The second removed directory is the one with the record.
    refusing.host.faults().add(Rule::new(Order::Fail(nix::libc::EIO)).on("remove_dir").after(1).times(1));
    for end in ["failed", "done"] {
        let leaving = Arc::new(refusing.bench.leaving());
        let story = refusing.bench.run(Operation::UnmountDevice(leaving)).await;
        assert!(story.lines().last().unwrap().starts_with(end), "{story}");
    }
    let driver = refusing.bench.path(format!("{CSI}/d.example"));
    assert_eq!(refusing.kernel.read_dir(&driver).unwrap(), []);
}

#[tokio::test]
async fn a_pod_is_known_on_disk_before_its_device_is_asked_for() {
    for (code, known) in [(Code::Unavailable, true), (Code::Internal, false)] {
        let mut refusing = Refusing::of_devices();
        refusing.bench.driver.fail("NodePublishVolume", code);
        refusing.map().await;
        assert_eq!(refusing.has(&format!("{CSI}/volumeDevices/pv/dev/u1")), known, "{code:?}");
        assert_eq!(refusing.has(&format!("{CSI}/volumeDevices/pv/dev")), known, "{code:?}");
    }
}

/// After a restart only the directory shows that the pod had the volume.
#[tokio::test]
async fn a_pod_keeps_its_device_until_its_name_is_gone() {
    let mut refusing = Refusing::of_devices();
    refusing.bench.driver.fail("NodePublishVolume", Code::Unavailable);
    refusing.map().await;
    let name = format!("{CSI}/volumeDevices/pv/dev/u1");
    let rule = Rule::new(Order::Fail(nix::libc::EIO)).on("remove_file").below(refusing.bench.path(&name));
    refusing.host.faults().add(rule.times(1));
    for stays in [true, false] {
        let unmapping = Arc::new(refusing.bench.unmounting());
        let story = refusing.bench.run(Operation::Unmap(unmapping)).await;
        assert!(story.contains("call NodeUnpublishVolume"), "{story}");
        assert_eq!(story.contains("UnmapVolume.UnmapBlockVolume failed"), stays, "{story}");
        assert_eq!(story.contains("mark pod unmounted"), !stays, "{story}");
        assert_eq!(refusing.has(&name), stays);
    }
}

#[tokio::test]
async fn a_record_of_a_device_that_was_never_staged_goes() {
    let mut refusing = Refusing::of_devices();
    refusing.bench.know(|facts| facts.registered.clear());
    let story = refusing.map().await;
    assert!(story.ends_with("the list of registered CSI drivers\n"), "{story}");
    assert!(!refusing.has(&format!("{CSI}/volumeDevices/pv")));
}

#[tokio::test]
async fn a_device_leaves_the_node_when_its_files_have() {
    let mut refusing = Refusing::of_devices();
    refusing.bench.driver.fail("NodePublishVolume", Code::Internal);
    refusing.map().await;
    // Once for the staging directory, which is the driver's, and then for our own.
    refusing.host.faults().add(Rule::new(Order::Fail(nix::libc::EIO)).on("remove_tree").after(1).times(1));
    for end in ["failed", "done"] {
        let leaving = Arc::new(refusing.bench.leaving());
        let story = refusing.bench.run(Operation::UnmapDevice(leaving)).await;
        assert!(story.lines().last().unwrap().starts_with(end), "{story}");
    }
    assert!(!refusing.has(&format!("{CSI}/volumeDevices/pv")));
}

#[tokio::test]
async fn empty_directories_without_a_record_are_removed_after_a_restart() {
    let refusing = Refusing::new();
    let empty = ["d.example/0a/globalmount", "volumeDevices/pv/data", "volumeDevices/pv/dev"];
    let kept =
        ["d.example/0b/globalmount/something", "volumeDevices/pw/data/something", "volumeDevices/publish"];
    for dir in empty.iter().chain(&kept) {
        refusing.make(&format!("{CSI}/{dir}"));
    }
    let context = &refusing.bench.context;
    let scene = Scene { host: &*context.host, paths: &context.paths, api: &*context.api };
    assert_eq!(super::super::CsiPlugin::new().find_staged(&scene).await.len(), 0);
    for dir in empty {
        assert!(!refusing.has(Path::new(CSI).join(dir).parent().unwrap().to_str().unwrap()), "{dir}");
    }
    for dir in kept {
        assert!(refusing.has(&format!("{CSI}/{dir}")), "{dir}");
    }
}
