//! The machine reboots, or the driver's container is replaced: mounts and memory are lost, and files on disks are kept.

use crate::prelude::*;

/// The number of changes to files before the reboot.
const STEPS: usize = 120;

/// A pod has its file system and its device again after the machine has rebooted, with all that was in them, and
/// leaves nothing of them when it is deleted.
///
/// Kubernetes: a pod stays on its node when that reboots; the kubelet sets its volumes up anew.
#[case(needs = [Filesystem, Block, Root, Loop, OwnProcess, Persistent, TwoVolumes], judges = ["DRV-160", "DRV-161"])]
async fn pod_has_its_volumes_after_a_reboot(cx: &mut Cx) -> Result {
    let (data, disk) = (cx.volume("data").create().await?, cx.volume("disk").block().create().await?);
    let files = cx.files("data");
    let web = cx.pod("web").volume(&data, "/data").device(&disk, "/dev/xvda").start().await?;
    files.change(&web.path("/data")?, STEPS).await?;
    let inside = web.container().await?;
    inside.writes("/dev/xvda", "durable").await?;

    cx.machine_reboots().await?;
    web.runs().await?;
    files.are_kept(&web.path("/data")?, "NodeStageVolume", "the machine has rebooted").await?;
    web.container().await?.reads("/dev/xvda", "durable").await?;
    files.change(&web.path("/data")?, STEPS).await?;
    cx.forget().await?;
    web.stop().await?;
    cx.forget().await
}

/// A node that shuts down unmounts and unstages the volumes of its pods before it ends, and when it is back, the next pod has
/// their data.
///
/// CSI, NodeUnstageVolume: this RPC MUST undo the work by the corresponding NodeStageVolume.
/// Kubernetes, graceful node shutdown: pods end by their priority, critical ones last, once the volumes of others are unmounted.
#[case(needs = [Filesystem, Root, Persistent, TwoVolumes], judges = ["DRV-060", "DRV-070"])]
async fn volumes_are_unstaged_before_the_node_shuts_down(cx: &mut Cx) -> Result {
    let (data, log) = (cx.volume("data").create().await?, cx.volume("log").create().await?);
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    let agent = cx.pod("agent").critical().volume(&log, "/log").start().await?;
    web.writes("/data/greeting", "hello").await?;
    agent.writes("/log/greeting", "adieu").await?;
    cx.forget().await?;

    cx.node().shuts_down().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
        csi    Unpublish log agent
        umount <publish:log/agent>
        csi    Unstage log
    "#]])
        .await?;
    let last = cx.last_request("NodeUnpublishVolume")?["volumeId"] == json!(cx.handle(&log));
    cx.finds(last, "The volume of a critical pod was unpublished before that of another pod.")?;
    cx.node().start().await?;
    cx.sees(expect![[""]]).await?;
    web.stop().await?;
    agent.stop().await?;
    let next = cx.pod("next").volume(&data, "/data").volume(&log, "/log").start().await?;
    next.reads("/data/greeting", "hello").await?;
    next.reads("/log/greeting", "adieu").await?;
    next.stop().await
}

/// A pod that was deleted while its machine was down is torn down when the machine is back, and the next pod has its
/// data.
///
/// Kubernetes: the kubelet finds on disk what it had set up, and asks to unpublish what no pod wants.
#[case(needs = [Filesystem, Root, OwnProcess, Persistent])]
async fn pod_deleted_before_a_reboot_is_torn_down(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let files = cx.files("data");
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    files.change(&web.path("/data")?, STEPS).await?;
    cx.node().kill().await?;
    web.remove().await?;
    cx.machine_reboots().await?;
    cx.forget().await?;
    let next = cx.pod("next").volume(&data, "/data").start().await?;
    files.are_kept(&next.path("/data")?, "NodeUnstageVolume", "its pod was deleted before a reboot").await?;
    next.stop().await
}

/// After a reboot a volume that has not been staged again is not published: its pod would write to the node's own disk.
///
/// CSI, NodePublishVolume: FAILED_PRECONDITION if NodeStageVolume has not been called.
#[case(needs = [Filesystem, StageUnstage, Root, OwnProcess, Persistent])]
async fn volume_is_staged_anew_after_a_reboot(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "kept").await?;
    cx.machine_reboots().await?;
    let answer = node.publish("web").await?;
    let is_shown = answer.is_ok() && !node.has(&target, "kept").await?;
    let cause = format!("{NOT_STAGED} (after a reboot, and shows no data of it)");
    cx.keeps("DRV-054", "NodePublishVolume", !is_shown, &cause)?;
    if is_shown {
        return Ok(());
    }
    node.set_up("web").await?;
    let cause = "What was written before a reboot is gone after it.";
    cx.keeps("DRV-160", "NodeStageVolume", node.has(&target, "kept").await?, cause)?;
    node.tear_down("web").await
}

/// A file system that was staged and published before a reboot can be unpublished, unstaged and used again after it.
///
/// CSI, NodeUnpublishVolume, NodeUnstageVolume: the CO calls them for each volume that it knows, in whatever state it is.
#[case(needs = [Filesystem, Root, OwnProcess, Persistent])]
async fn file_system_is_torn_down_after_a_reboot(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    tear_down_after_reboot(cx, cx.node_calls(&data).await?).await
}

/// A device that was staged and published before a reboot can be unpublished, unstaged and used again after it.
///
/// CSI, NodeUnpublishVolume, NodeUnstageVolume: the CO calls them for each volume that it knows, in whatever state it is.
#[case(needs = [Block, Root, Loop, OwnProcess, Persistent])]
async fn device_is_torn_down_after_a_reboot(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    tear_down_after_reboot(cx, cx.node_calls(&disk).await?).await
}

async fn tear_down_after_reboot(cx: &Cx, node: NodeCalls) -> Result {
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "kept").await?;
    cx.machine_reboots().await?;
    let unpublished = node.unpublish("web").await?.asked("of a volume that was published before a reboot");
    unpublished.is("DRV-095", &["OK"])?;
    if !unpublished.is_ok() {
        return Ok(());
    }
    node.unstage().await?.asked("of a volume that was staged before a reboot").is("DRV-069", &["OK"])?;
    node.attach_again().await?;
    node.set_up("web").await?;
    let cause = "What was written before a reboot is gone after it.";
    cx.keeps("DRV-160", "NodeStageVolume", node.has(&target, "kept").await?, cause)?;
    node.tear_down("web").await
}

/// A driver in a new container unmounts the volumes of the old one: everything that it needs for that is outside of the
/// container.
///
/// CSI, NodeUnpublishVolume, NodeUnstageVolume: they undo the work of NodePublishVolume and NodeStageVolume.
#[case(needs = [Filesystem, Root, OwnProcess, Persistent])]
async fn replaced_driver_unmounts_its_volumes(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "kept").await?;
    cx.driver_is_replaced().await?;
    let unpublished = node.unpublish("web").await?.asked("of a volume that a replaced driver has published");
    unpublished.is("DRV-095", &["OK"])?;
    if !unpublished.is_ok() {
        return Ok(());
    }
    let cause =
        "NodeUnpublishVolume answered OK after the driver was replaced, and its target is still mounted.";
    cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&node.target("web"))?.is_empty(), cause)?;
    node.undo_stage().await?;
    let cause =
        "NodeUnstageVolume answered OK after the driver was replaced, and the staging path is still mounted.";
    cx.keeps("DRV-070", "NodeUnstageVolume", node.mounts_at(&node.staging())?.is_empty(), cause)?;
    node.set_up("web").await?;
    let cause = "What was written before the driver was replaced is gone.";
    cx.keeps("DRV-160", "NodeStageVolume", node.has(&node.target("web"), "kept").await?, cause)?;
    node.tear_down("web").await
}
