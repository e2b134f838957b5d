//! The node or the driver is killed, and starts again with only its files on disk.

use crate::prelude::*;

/// The node is killed while a volume is published, and the pod is deleted meanwhile: the restarted node finds the
/// volume on disk and tears it down.
///
/// CSI: the CO is responsible for calling NodeUnpublishVolume and NodeUnstageVolume, also after its own restart.
#[case(needs = [Filesystem, Root, Persistent])]
async fn pod_deleted_while_the_node_is_down(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    cx.node().kill().await?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// The driver is killed after it published a volume and before it answered: the repeated call succeeds, and so does the
/// teardown.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent.
#[case(needs = [Filesystem, OwnProcess, Root, Persistent])]
async fn driver_killed_during_publish(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let publish = cx.hold_and_lose(Method::Publish);

    let web = cx.pod("web").volume(&data, "/data").add().await?;
    publish.reached().await?;
    cx.driver().kill().await?;
    publish.release();
    cx.driver().start().await?;
    web.runs().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web    UNAVAILABLE "injected"
        mount  <publish:data/web>
        csi    Publish data web
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// A restarted driver unpublishes and unstages the volumes from before its restart.
///
/// Kubernetes: a node plugin is replaced with each update, and the pods stay.
#[case(needs = [Filesystem, OwnProcess, Root], judges = ["DRV-133"])]
async fn restarted_driver_knows_its_volumes(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    cx.driver().restart().await?;

    let unpublished = node.unpublish("web").await?.asked("of a volume that was published before a restart");
    unpublished.is("DRV-095", &["OK"])?;
    if !unpublished.is_ok() {
        return Ok(());
    }
    let cause = "NodeUnpublishVolume answered OK after a restart, and the target is still mounted.";
    cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&node.target("web"))?.is_empty(), cause)?;
    node.undo_stage().await?;
    let cause = "NodeUnstageVolume answered OK after a restart, and the staging path is still mounted.";
    cx.keeps("DRV-070", "NodeUnstageVolume", node.mounts_at(&node.staging())?.is_empty(), cause)?;
    node.set_up("web").await?;
    node.tear_down("web").await
}

/// A driver that is restarted between two node calls of a volume answers the second one with OK.
///
/// Kubernetes: a node plugin is replaced with each update, between any two calls.
#[case(needs = [Filesystem, OwnProcess, Root])]
async fn restarted_driver_answers_the_next_node_call(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    cx.driver().restart().await?;
    let staged = node.stage().await?.asked("of a volume that was created before a restart");
    staged.is("DRV-095", &["OK"])?;
    if !staged.is_ok() {
        return Ok(());
    }
    cx.driver().restart().await?;
    let published = node.publish("web").await?.asked("of a volume that was staged before a restart");
    published.is("DRV-095", &["OK"])?;
    if !published.is_ok() {
        return Ok(());
    }
    node.undo_publish("web").await?;
    cx.driver().restart().await?;
    let unstaged = node.unstage().await?.asked("of a volume that was unpublished before a restart");
    unstaged.is("DRV-095", &["OK"])?;
    if !unstaged.is_ok() {
        return Ok(());
    }
    cx.driver().restart().await?;
    let staged = node.stage().await?.asked("of a volume that was unstaged before a restart");
    staged.is("DRV-095", &["OK"])?;
    if staged.is_ok() { node.undo_stage().await } else { Ok(()) }
}

/// A restarted driver unmounts each target of a volume that was published at two.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(needs = [Filesystem, Shared, OwnProcess, Root])]
async fn each_target_is_unpublished_after_a_restart(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.publish("job").await?.succeeds()?;
    cx.driver().restart().await?;
    for target in ["web", "job"] {
        node.unpublish(target).await?.succeeds()?;
        let cause = "After a restart NodeUnpublishVolume of one of two targets answered OK, and the target is still mounted.";
        let is_gone = node.mounts_at(&node.target(target))?.is_empty();
        cx.keeps("DRV-060", "NodeUnpublishVolume", is_gone, cause)?;
    }
    node.undo_stage().await
}

/// A published volume can be read while the driver is dead, and after its restart.
///
/// Kubernetes: a node plugin is replaced with each update, and the pods stay.
#[case(needs = [Filesystem, OwnProcess, Root, Persistent])]
async fn published_volume_outlives_the_driver(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "kept").await?;
    cx.driver().kill().await?;
    let while_down = node.has(&node.target("web"), "kept").await?;
    cx.driver().start().await?;
    let afterwards = node.has(&node.target("web"), "kept").await?;
    let cause = match while_down {
        true => "The published data cannot be read after the driver's restart.",
        false => "The published data cannot be read while the driver is down.",
    };
    cx.keeps("DRV-096", "NodePublishVolume", while_down && afterwards, cause)?;
    if while_down && afterwards { node.tear_down("web").await } else { Ok(()) }
}
