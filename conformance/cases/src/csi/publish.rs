//! Volumes that are published read-only, and again while their pod runs.

use super::{can_write, detach_of, set_read_only};
use crate::prelude::*;

/// A claim that its pod uses read-only is published read-only: the pod cannot write to it, and reads what an earlier
/// pod wrote.
///
/// CSI, NodePublishVolumeRequest.readonly: the volume is published in read-only mode.
#[case(needs = [Filesystem, Root, Persistent], judges = ["DRV-050"])]
async fn read_only_claim_cannot_be_written(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let writer = cx.pod("writer").volume(&data, "/data").start().await?;
    writer.writes("/data/greeting", "hello").await?;
    writer.stop().await?;
    cx.forget().await?;

    let reader = cx.pod("reader").volume(&data, "/data").read_only().start().await?;
    reader.reads("/data/greeting", "hello").await?;
    reader.cannot_write("/data/other").await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data reader
        mount  <publish:data/reader>   ro
    "#]])
        .await?;

    reader.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data reader
        umount <publish:data/reader>
        csi    Unstage data
    "#]])
        .await
}

/// A volume whose CSIDriver has requiresRepublish is published again within 90 seconds, and stays mounted.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent.
/// Kubernetes, CSIDriver.requiresRepublish: NodePublishVolume is called periodically.
#[case(needs = [Filesystem, Root, Persistent])]
async fn volume_is_published_again_by_itself(cx: &mut Cx) -> Result {
    cx.republishes()?;
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    cx.time_passes(std::time::Duration::from_secs(90)).await?;
    cx.sees(expect![[r#"
        csi    Publish data web
    "#]])
        .await?;
    web.reads("/data/greeting", "hello").await?;
    web.stop().await
}

/// A target whose directory is there already, as an earlier try has left it, is read-only all the same.
///
/// CSI, NodePublishVolumeRequest.readonly: "SP MUST publish the volume in readonly mode".
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn read_only_target_that_is_there_cannot_be_written(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    if cx.driver_stages() {
        node.stage().await?.succeeds()?;
    }
    std::fs::create_dir_all(&target)?;
    let published = node.publish_as("web", set_read_only).await?;
    if published.is_ok() {
        node.is_published("web")?;
        let cause = format!("{FOR_WRITING} (where the directory of the target was there)");
        cx.keeps("DRV-050", "NodePublishVolume", !can_write(&target), &cause)?;
    } else {
        let why = format!("the driver does not publish read-only where a directory is: {published:?}");
        cx.not_tried("DRV-050", &why);
    }
    node.tear_down("web").await
}

/// A volume that was attached read-only, and detached, can be written when it is attached for writing.
///
/// CSI, ControllerUnpublishVolume: the reverse operation of ControllerPublishVolume.
#[case(needs = [Creates, Attaches, AttachesReadOnly, Filesystem, Root, Persistent], driver = Shared)]
async fn volume_is_written_after_a_read_only_attachment(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let mut request = cx.attach_request(&data).await?;
    let detach = detach_of(&request);
    request["readonly"] = json!(true);
    let attached = cx.call("ControllerPublishVolume", request).await?;
    cx.call("ControllerUnpublishVolume", detach).await?.succeeds()?;
    attached.succeeds()?;
    node.attach_again().await?;
    let again = cx.call("ControllerPublishVolume", cx.attach_request(&data).await?).await?;
    again
        .asked("for writing, repeated after an earlier attachment for reading only,")
        .is("DRV-030", &["OK"])?;
    node.set_up("web").await?;
    let cause = "A volume that is attached for writing cannot be written, after an earlier attachment for reading only.";
    cx.keeps("DRV-031", "ControllerPublishVolume", can_write(&node.target("web")), cause)?;
    node.tear_down("web").await
}
