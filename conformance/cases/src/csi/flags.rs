//! Access modes and mount flags.

use crate::prelude::*;

/// A volume for a single writer is published at one target only.
///
/// CSI, NodePublishVolume: FAILED_PRECONDITION for a second target of a volume with SINGLE_NODE_SINGLE_WRITER.
#[case(needs = [Filesystem, Creates, Root])]
async fn single_writer_has_one_target(cx: &mut Cx) -> Result {
    if !cx.tells_writers_apart() {
        cx.not_tried("DRV-059", "the driver does not report SINGLE_NODE_MULTI_WRITER");
        return Ok(());
    }
    let data = cx.volume("data").single_pod().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let answer = node.publish("other").await?.asked("of a volume for a single writer at a second target");
    answer.is("DRV-059", &["FailedPrecondition"])?;
    node.unpublish("other").await?.succeeds()?;
    node.tear_down("web").await
}

/// The mount flags of a request are in force at the target.
///
/// CSI, VolumeCapability.MountVolume.mount_flags: the mount options of the volume.
#[case(needs = [Filesystem, Root])]
async fn requested_mount_flags_are_in_force(cx: &mut Cx) -> Result {
    let data = cx.volume("data").mount_option("noexec").mount_option("nosuid").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let mounts = node.mounts_at(&node.target("web"))?;
    let options = mounts.last().cloned().unwrap_or_default();
    for flag in ["noexec", "nosuid"] {
        let told = format!("Published with the mount flag `{flag}`, the target is mounted with `{options}`.");
        let is_there = options.split(',').any(|option| option == flag);
        cx.keeps("DRV-057", "NodePublishVolume", is_there || mounts.is_empty(), &told)?;
    }
    node.tear_down("web").await
}
