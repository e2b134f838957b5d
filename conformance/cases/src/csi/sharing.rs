//! One volume, more than one pod.

use std::os::unix::fs::FileExt;

use super::set_read_only;
use crate::prelude::*;

/// Two pods on a node share one staging of a volume, and it is unstaged only after the last pod.
///
/// CSI, NodeUnstageVolume: called after every NodeUnpublishVolume on the node succeeded.
#[case(needs = [Filesystem, Shared, StageUnstage, Root, Persistent], judges = ["DRV-063"])]
async fn two_pods_share_one_staging(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;

    let first = cx.pod("first").volume(&data, "/data").start().await?;
    let second = cx.pod("second").volume(&data, "/data").start().await?;
    first.writes("/data/greeting", "hello").await?;
    second.reads("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data first
        mount  <publish:data/first>
        csi    Publish data second
        mount  <publish:data/second>
    "#]])
        .await?;

    first.stop().await?;
    second.reads("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Unpublish data first
        umount <publish:data/first>
    "#]])
        .await?;

    second.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data second
        umount <publish:data/second>
        csi    Unstage data
    "#]])
        .await
}

/// A volume whose pod is deleted while another pod waits for it is unpublished from the first before it is published to
/// the second, and stays staged in between.
///
/// CSI, NodePublishVolume: one target for each workload; what is staged for the node serves the next.
#[case(needs = [Filesystem, Shared, StageUnstage, Root])]
async fn volume_moves_to_the_next_pod(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let publish = cx.hold(Method::Publish);

    let first = cx.pod("first").volume(&data, "/data").add().await?;
    publish.reached().await?;
    // While the first NodePublishVolume is held, the manager learns of both changes and then decides their order itself.
    first.remove().await?;
    let second = cx.pod("second").volume(&data, "/data").add().await?;
    second.is_noticed().await?;
    publish.release();
    second.runs().await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data first
        mount  <publish:data/first>
        csi    Unpublish data first
        umount <publish:data/first>
        csi    Publish data second
        mount  <publish:data/second>
    "#]])
        .await?;

    second.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data second
        umount <publish:data/second>
        csi    Unstage data
    "#]])
        .await
}

/// A target that is unpublished once more than it was published takes nothing from another target of the volume.
///
/// CSI, NodeUnpublishVolume: this operation MUST be idempotent, and is about one target.
#[case(needs = [Filesystem, Shared, Root, Persistent], judges = ["DRV-062"], driver = Shared)]
async fn repeated_unpublish_is_about_its_own_target(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "kept").await?;
    node.publish("next").await?.succeeds()?;
    node.undo_publish("next").await?;
    for _ in 0..2 {
        node.unpublish("next").await?.asked("of a target that was unpublished").is("DRV-062", &["OK"])?;
    }
    let cause = "NodeUnpublishVolume that was repeated took away another target of the volume.";
    let has = node.has(&node.target("web"), "kept").await?;
    cx.keeps("DRV-063", "NodeUnpublishVolume", has, cause)?;
    node.undo_publish("web").await?;
    let cause = "After a repeated NodeUnpublishVolume of one target, that of the other answers OK and leaves it mounted.";
    let is_gone = node.mounts_at(&node.target("web"))?.is_empty();
    cx.keeps("DRV-060", "NodeUnpublishVolume", is_gone, cause)?;
    if cx.driver_stages() { node.undo_stage().await } else { Ok(()) }
}

/// A device that is published at one target for reading only can be written at another.
///
/// CSI, NodePublishVolumeRequest.readonly: it is about the target of the request.
#[case(needs = [Block, Root, Loop, Shared, Creates], driver = Shared)]
async fn writable_device_is_beside_a_read_only_one(cx: &mut Cx) -> Result {
    let Ok(disk) = cx.volume("disk").block().shared().create_if_supported().await? else {
        cx.not_tried("DRV-092", "the driver makes no device for several pods of a node");
        return Ok(());
    };
    let node = cx.node_calls(&disk).await?;
    node.set_up("writer").await?;
    // Opening a device for writing is no proof: Linux refuses the write itself.
    let takes_writes = |name: &str| {
        let device = std::fs::File::options().write(true).open(node.target(name));
        device.is_ok_and(|device| device.write_at(b"written", 0).is_ok())
    };
    let before = takes_writes("writer");
    let reader = node.publish_as("reader", set_read_only).await?;
    let with = takes_writes("writer");
    if !reader.is_ok() || !before {
        cx.not_tried("DRV-092", "the driver publishes the device at one target alone");
    }
    let cause = "A device that can be written at its target cannot any more after it was published read-only at another.";
    cx.keeps("DRV-092", "NodePublishVolume", !reader.is_ok() || !before || with, cause)?;
    if reader.is_ok() {
        node.undo_publish("reader").await?;
    }
    node.tear_down("writer").await
}
