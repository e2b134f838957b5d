//! Block volumes on a kernel that refuses: what follows a device that is published, and its record.

use std::path::Path;
use std::sync::Arc;

use api::VolumeMode;
use api::names::{PodUid, SpecName};
use host::Host as _;
use host::fake::{FakeHost, Order, Rule};
use plugin_api::Before;
use tonic::Code;

use crate::operation::{MountVolume, Operation};
use crate::plugin::testing::Bench;

/// A bench with a block volume that its driver has published.
fn published() -> (Bench, FakeHost) {
    let (mut bench, host) = Bench::simulated();
    bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
    let paths = &bench.context.paths;
    let (inner, pod) = (SpecName::new("pv"), PodUid::new("u1"));
    let publish = paths.csi_block_publish_dir(&inner);
    host.kernel().add_disk("sdb", 1 << 20).unwrap();
    host.kernel().make_dir_all(&publish, 0o750).unwrap();
    host.kernel().symlink(Path::new("/dev/sdb"), &paths.csi_block_target(&inner, &pod)).unwrap();
    (bench, host)
}

#[tokio::test]
async fn a_device_without_its_bridges_is_published_and_not_the_pods() {
    for method in ["bind", "symlink", "lock_device"] {
        let (mut bench, host) = published();
        host.faults().add(Rule::new(Order::Fail(host::errno::EIO)).on(method).times(1));
        let story = bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
        assert!(
            story.contains("call NodePublishVolume\nmark device mounted from /dev/sdb\n"),
            "{method}: {story}"
        );
        assert!(story.contains("mark pod failed: Uncertain\n"), "{method}: {story}");
        let step = "event Pod Warning FailedMapVolume: MapVolume.MapBlockVolume failed for volume \"pv\" : ";
        assert!(story.contains(step) && !story.contains("SuccessfulMountVolume"), "{method}: {story}");
        let map = MountVolume { device: Before::Mounted, before: Before::Uncertain, ..bench.mounting() };
        let story = bench.run(Operation::Map(Arc::new(map))).await;
        assert!(story.ends_with("mark pod mounted\ndone\n"), "{method}: {story}");
    }
}

/// A lost record is written again for the next pod, although the volume is not staged again.
#[tokio::test]
async fn every_pod_of_a_device_writes_its_record() {
    let (mut bench, host) = published();
    let record = bench.path("plugins/kubernetes.io/csi/volumeDevices/pv/data/vol_data.json");
    let map = Arc::new(MountVolume { device: Before::Mounted, ..bench.mounting() });
    let story = bench.run(Operation::Map(Arc::clone(&map))).await;
    assert!(story.ends_with("done\n") && !story.contains("NodeStageVolume"), "{story}");
    assert!(host.kernel().symlink_metadata(&record).is_ok());

    host.remove_file(&record).await.unwrap();
    host.faults().add(Rule::new(Order::Fail(host::errno::EIO)).on("write_file").times(1));
    let story = bench.run(Operation::Map(map)).await;
    let step = "FailedMapVolume: MapVolume.NewBlockVolumeMapper initialization failed for volume \"pv\" : ";
    assert!(story.contains(step) && !story.contains("call"), "{story}");
}

#[tokio::test]
async fn a_device_whose_record_cannot_be_written_leaves_nothing_unless_it_may_be_staged() {
    for (device, kept) in [(Before::Absent, false), (Before::Uncertain, true)] {
        let (mut bench, host) = published();
        host.faults().add(Rule::new(Order::Fail(host::errno::EIO)).on("write_file").times(1));
        let map = MountVolume { device, ..bench.mounting() };
        // The published file does not matter here.
        let publish = bench.context.paths.csi_block_target(&"pv".into(), &"u1".into());
        host.remove_file(&publish).await.unwrap();
        let story = bench.run(Operation::Map(Arc::new(map))).await;
        assert!(story.contains("mark device failed: Final\n") && !story.contains("call"), "{story}");
        let own = bench.path("plugins/kubernetes.io/csi/volumeDevices/pv");
        assert_eq!(host.kernel().symlink_metadata(&own).is_ok(), kept, "{device:?}");
    }
}

/// A failed step of a teardown stops the later steps, and is only logged.
#[tokio::test]
async fn a_device_that_cannot_leave_says_where_it_stopped() {
    let (mut bench, host) = published();
    let story = bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    let name = "for volume \"kubernetes.io/csi/d.example^h\" : ";
    for method in ["unlock_device", "remove_file", "unmount"] {
        host.faults().add(Rule::new(Order::Fail(host::errno::EIO)).on(method).times(1));
        let story = bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
        let failed = format!("UnmapVolume.UnmapBlockVolume failed {name}");
        assert!(
            story.starts_with("mark pod undoing\nfailed") && story.contains(&failed),
            "{method}: {story}"
        );
    }
    let story = bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("mark pod unmounted\ndone\n"), "{story}");
    bench.driver.fail("NodeUnstageVolume", Code::Internal);
    let story = bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
    let failed = format!("UnmapDevice.TearDownDevice failed {name}");
    assert!(story.contains(&failed) && !story.contains("event"), "{story}");
    assert!(host.kernel().symlink_metadata(&bench.leaving().device_mount_path).is_ok(), "{story}");
}
