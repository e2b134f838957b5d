//! Files and directories in place of a mount that is to be removed.

use std::sync::Arc;

use host::fake::{Order, Rule};

use crate::operation::Operation;
use crate::plugin::testing::Bench;

const VOLUME: &str = "pods/u1/volumes/kubernetes.io~csi/pv";

/// Unknown files are not removed, and the volume whose target contains them is not forgotten.
#[tokio::test]
async fn a_target_that_is_not_empty_keeps_its_record_and_its_pod() {
    let mut bench = Bench::new();
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let (file, host) = (bench.path(VOLUME).join("mount/precious"), Arc::clone(&bench.context.host));
    host.write_file(&file, b"data", 0o600).await.unwrap();
    let there = bench.tree().await;
    let unmounting = Arc::new(bench.unmounting());
    let story = bench.run(Operation::Unmount(Arc::clone(&unmounting))).await;
    assert!(story.contains("call NodeUnpublishVolume"), "{story}");
    assert!(
        story.contains("UnmountVolume.TearDown failed") && !story.contains("mark pod unmounted"),
        "{story}"
    );
    assert_eq!(bench.tree().await, there);
    host.remove_file(&file).await.unwrap();
    let story = bench.run(Operation::Unmount(unmounting)).await;
    assert!(
        story.contains("call NodeUnpublishVolume") && story.ends_with("mark pod unmounted\ndone\n"),
        "{story}"
    );
}

#[tokio::test]
async fn unreadable_mount_state_counts_as_mounted() {
    let (mut bench, host) = Bench::simulated();
    let record = bench.path(VOLUME).join("vol_data.json");
    host.kernel().make_dir_all(&bench.path(VOLUME).join("mount"), 0o750).unwrap();
    let data = br#"{"driverName":"d.example","volumeHandle":"h","specVolID":"pv"}"#;
    host.kernel().write_file(&record, data, 0o644).unwrap();
    for (method, errno) in [("remove_dir", host::errno::EBUSY), ("is_likely_mount_point", host::errno::EIO)] {
        host.faults().add(Rule::new(Order::Fail(errno)).on(method).times(1));
    }
    for (end, stays) in [("failed", true), ("done", false)] {
        let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        assert!(story.contains("call NodeUnpublishVolume"), "{story}");
        assert!(story.lines().last().unwrap().starts_with(end), "{story}");
        assert_eq!(host.kernel().symlink_metadata(&record).is_ok(), stays, "{story}");
    }
}
