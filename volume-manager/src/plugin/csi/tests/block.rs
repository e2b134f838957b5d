//! Block volumes on the real kernel: their links, binds and loop devices, and the order of their removal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::names::Namespaced;
use api::storage::ClaimReference;
use api::{Bytes, Claim, Meta, Resource, VolumeMode};
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use expect_test::expect;
use host::fake::Order;
use plugin_api::Before;
use serial_test::file_serial;
use tonic::Code;

use crate::operation::{MountVolume, Operation};
use crate::plugin::testing::{Bench, Disk};

/// A bench with a block volume whose device is a real one, in a mount namespace of this thread's own.
struct Scene {
    bench: Bench,
    disk: Disk,
}

impl Scene {
    /// `None`, with the reason on the terminal, where there are no namespaces or no loop devices to be had.
    async fn set() -> Option<Self> {
        let mut bench = Bench::new();
        if !bench.private_mounts().await {
            return None;
        }
        let disk = Disk::new(&bench, 1 << 20).await?;
        bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
        bench.driver.set_device(&disk.device);
        Some(Self { bench, disk })
    }

    fn bind(&self) -> PathBuf {
        self.bench.path("plugins/kubernetes.io/csi/volumeDevices/pv/dev/u1")
    }

    async fn tree(&self) -> String {
        let device = self.disk.device.display().to_string();
        let tree = self.bench.tree().await.replace(&device, "$DEVICE");
        tree.replace("$R/disk 600\n", "")
    }
}

#[tokio::test]
#[file_serial(root)]
async fn a_device_is_bound_linked_and_locked_and_leaves_the_other_way_round() {
    let Some(mut scene) = Scene::set().await else { return };
    let device = scene.disk.device.display().to_string();
    let mask = move |story: String| story.replace(&device, "$DEVICE");
    let bench = &mut scene.bench;
    let host = Arc::clone(&bench.context.host);
    bench.driver.tell_all();

    let story = mask(bench.run(Operation::Map(Arc::new(bench.mounting()))).await);
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark device uncertain
        call NodeStageVolume {"stagingTargetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/staging/pv","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"block":{}},"volumeId":"h"}
        mark device mounted
        call NodeGetCapabilities
        mark pod uncertain
        call NodePublishVolume {"stagingTargetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/staging/pv","targetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/publish/pv/u1","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"block":{}},"volumeId":"h"}
        mark device mounted from $DEVICE
        event Pod Normal SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv" globalMapPath "$R/plugins/kubernetes.io/csi/volumeDevices/pv/dev"
        event Pod Normal SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv" volumeMapPath "$R/pods/u1/volumeDevices/kubernetes.io~csi"
        mark pod mounted
        done
    "#]].assert_eq(&story);
    expect![[r#"
        $R/plugins 750/
        $R/plugins/kubernetes.io 750/
        $R/plugins/kubernetes.io/csi 750/
        $R/plugins/kubernetes.io/csi/volumeDevices 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/publish 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/publish/pv 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/publish/pv/u1 -> $DEVICE
        $R/plugins/kubernetes.io/csi/volumeDevices/pv 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/pv/data 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/pv/data/vol_data.json 644
        $R/plugins/kubernetes.io/csi/volumeDevices/pv/dev 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/pv/dev/u1 600
        $R/plugins/kubernetes.io/csi/volumeDevices/staging 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/staging/pv 750/
        $R/pods 750/
        $R/pods/u1 750/
        $R/pods/u1/volumeDevices 750/
        $R/pods/u1/volumeDevices/kubernetes.io~csi 750/
        $R/pods/u1/volumeDevices/kubernetes.io~csi/pv -> $DEVICE
    "#]]
    .assert_eq(&scene.tree().await);
    let (bind, link) = (scene.bind(), scene.bench.path("pods/u1/volumeDevices/kubernetes.io~csi/pv"));
    let real = host.metadata(&scene.disk.device).await.unwrap();
    assert!(host.is_mount_point(&bind).await.unwrap());
    assert_eq!(host.metadata(&bind).await.unwrap().rdev, real.rdev);
    assert_eq!(host.metadata(&link).await.unwrap().rdev, real.rdev);
    let lock = host.find_lock(&bind).await.unwrap().expect("the device is held open");
    assert_ne!(lock, scene.disk.device);

    // Everything again, as after a restart: nothing doubles.
    let again = scene.bench.mounting();
    scene.bench.run(Operation::Map(Arc::new(again))).await;
    assert_eq!(host.find_lock(&bind).await.unwrap(), Some(lock.clone()));
    let table = host.mount_table().await.unwrap();
    assert_eq!(table.layers(&bind), 1);

    let bench = &mut scene.bench;
    let story = mask(bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await);
    expect![[r#"
        mark pod undoing
        call NodeUnpublishVolume {"targetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/publish/pv/u1","volumeId":"h"}
        mark pod unmounted
        done
    "#]].assert_eq(&story);
    assert_eq!(host.find_lock(&bind).await.unwrap(), None);
    let story = mask(bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await);
    expect![[r#"
        mark device undoing
        call NodeGetCapabilities
        call NodeUnstageVolume {"stagingTargetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/staging/pv","volumeId":"h"}
        mark device unmounted
        done
    "#]].assert_eq(&story);
    expect![[r#"
        $R/plugins 750/
        $R/plugins/kubernetes.io 750/
        $R/plugins/kubernetes.io/csi 750/
        $R/plugins/kubernetes.io/csi/volumeDevices 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/publish 750/
        $R/plugins/kubernetes.io/csi/volumeDevices/staging 750/
        $R/pods 750/
        $R/pods/u1 750/
        $R/pods/u1/volumeDevices 750/
        $R/pods/u1/volumeDevices/kubernetes.io~csi 750/
    "#]]
    .assert_eq(&scene.tree().await);
}

#[tokio::test]
#[file_serial(root)]
async fn a_device_that_some_pod_still_has_is_not_unstaged() {
    let Some(mut scene) = Scene::set().await else { return };
    let bench = &mut scene.bench;
    bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    let story = bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
    expect![[r#"
        failed Transient: GetDeviceBindMountRefs check failed for volume "kubernetes.io/csi/d.example^h" : the device `$R/plugins/kubernetes.io/csi/volumeDevices/pv/dev` is still referenced from other Pods ["$R/plugins/kubernetes.io/csi/volumeDevices/pv/dev/u1"]
    "#]].assert_eq(&story);
    bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
}

#[tokio::test]
#[file_serial(root)]
async fn an_unpublish_that_fails_is_repeated_after_the_bridges_are_gone() {
    let Some(mut scene) = Scene::set().await else { return };
    let bind = scene.bind();
    let bench = &mut scene.bench;
    bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    bench.driver.fail("NodeUnpublishVolume", Code::Internal);
    let story = bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    assert!(story.contains("UnmapVolume.UnmapPodDevice failed"), "{story}");
    assert!(
        bench.context.host.mount_table().await.unwrap().at(&bind).is_none(),
        "the bind went before the call"
    );
    let story = bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("mark pod unmounted\ndone\n"), "{story}");
    bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
}

#[tokio::test]
#[file_serial(root)]
async fn a_driver_that_publishes_no_device_leaves_the_pod_uncertain() {
    let Some(mut scene) = Scene::set().await else { return };
    let bench = &mut scene.bench;
    bench.driver.set_device(Path::new("/nowhere"));
    let story = bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    assert!(story.contains("FailedMapVolume: MapVolume.EvalHostSymlinks failed"), "{story}");
    bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
    assert_eq!(bench.files().await, ["$R/disk 600"]);
}

#[tokio::test]
#[file_serial(root)]
async fn a_first_stage_that_fails_for_good_leaves_nothing() {
    let Some(mut scene) = Scene::set().await else { return };
    let bench = &mut scene.bench;
    for (before, code, kept) in [
        (Before::Absent, Code::Internal, 0),
        (Before::Absent, Code::Aborted, 1),
        (Before::Uncertain, Code::Internal, 1),
    ] {
        let mut map = bench.mounting();
        map.device = before;
        bench.driver.fail("NodeStageVolume", code);
        let story = bench.run(Operation::Map(Arc::new(map))).await;
        assert!(story.contains("FailedMapVolume: MapVolume.SetUpDevice failed"), "{story}");
        let class = if code == Code::Internal { "Final" } else { "Uncertain" };
        assert!(story.contains(&format!("mark device failed: {class}\n")), "{story}");
        assert_eq!(bench.files().await.len(), 1 + kept, "{before:?} {code:?}");
        let clean = bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
        assert!(clean.ends_with("done\n"), "{clean}");
    }
}

#[tokio::test]
#[file_serial(root)]
async fn a_publish_that_fails_ends_the_mapping_and_the_next_pod_is_not_staged_for() {
    let Some(mut scene) = Scene::set().await else { return };
    let bench = &mut scene.bench;
    bench.driver.fail("NodePublishVolume", Code::Aborted);
    let story = bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    assert!(story.contains("failed Uncertain: MapVolume.MapPodDevice failed"), "{story}");
    assert!(!story.contains("SuccessfulMountVolume"), "{story}");

    let mut again = bench.mounting();
    (again.device, again.before) = (Before::Mounted, Before::Uncertain);
    let story = bench.run(Operation::Map(Arc::new(again))).await;
    assert!(!story.contains("NodeStageVolume") && story.ends_with("mark pod mounted\ndone\n"), "{story}");
    bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
    assert_eq!(bench.files().await, ["$R/disk 600"]);
}

#[tokio::test]
#[file_serial(root)]
async fn a_device_that_cannot_be_grown_is_not_the_pods_yet() {
    let Some(mut scene) = Scene::set().await else { return };
    let bench = &mut scene.bench;
    bench.driver.can(&[Capability::StageUnstageVolume, Capability::ExpandVolume]);
    bench.change_volume(|volume| {
        volume.capacity = Bytes(2);
        volume.claim = Some(ClaimReference { claim: Namespaced::new("default", "data"), uid: "c1".into() });
    });
    bench.put(Claim { meta: Meta::named("default", "data"), ..Claim::default() }.into_object());
    bench.driver.fail("NodeExpandVolume", Code::Internal);
    let story = bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    let step = "failed Final: MapVolume.MarkVolumeAsMounted failed while expanding volume";
    assert!(story.contains(step) && story.contains("mark pod failed: Uncertain"), "{story}");
    assert!(!story.contains("mark pod mounted"), "{story}");
    bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
}

#[tokio::test]
async fn a_device_that_is_not_attached_is_not_staged() {
    let mut bench = Bench::new();
    bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
    bench.object(|driver| driver.attach_required = true);
    let map = MountVolume { attachable: true, ..bench.mounting() };
    let story = bench.run(Operation::Map(Arc::new(map))).await;
    assert!(story.contains("failed Transient: MapVolume.WaitForAttach failed"), "{story}");
    assert!(!story.contains("call") && !story.contains("mark"), "{story}");
}

/// A failure after unstaging leaves the operation undone: the actual state keeps the device, and the unmap is retried.
#[tokio::test]
async fn device_is_unmapped_only_without_leftovers_and_open_handles() {
    for (method, step) in
        [("remove_tree", "UnmapDevice.RemoveMapPath failed"), ("device_opened", "UnmapDevice failed")]
    {
        let (mut bench, host) = Bench::simulated();
        bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
        let mut leaving = bench.leaving();
        host.kernel().make_dir_all(&leaving.device_mount_path, 0o750).unwrap();
        leaving.device_path = "/dev/vdx".to_owned();
        let global = leaving.device_mount_path.clone();
        let on = if method == "remove_tree" { global } else { "/dev/vdx".into() };
        host.faults().decide_with(move |step| match step.method == method && step.path == on {
            true => Order::Fail(5),
            false => Order::Go,
        });
        let story = bench.run(Operation::UnmapDevice(Arc::new(leaving))).await;
        assert!(story.lines().last().unwrap().contains(step), "{method}: {story}");
        assert!(!story.contains("mark device unmounted"), "{method}: {story}");
    }
}
