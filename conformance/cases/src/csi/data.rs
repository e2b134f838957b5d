//! The files of pods, byte for byte, after each event in the life of a volume, its driver and its node. A seed decides the
//! changes; a difference is reported with its file and its offset.

use crate::prelude::*;

/// The number of changes to files before each event.
const STEPS: usize = 120;

/// A volume for a large file with blocks at its start, in its middle and at its end.
const LARGE: u64 = 96 << 20;

/// Files are as they were left after the volume was published again, after it was staged again, and after its driver
/// was killed and started again.
///
/// CSI, NodePublishVolume: the SP MUST ensure the CO can use the published volume as described.
#[case(needs = [Filesystem, Root, OwnProcess, Persistent], judges = ["DRV-160", "DRV-161"])]
async fn files_stay_through_the_life_of_a_volume(cx: &mut Cx) -> Result {
    let data = cx.volume("data").size(2 * cx.ordinary_size()).create().await?;
    let node = cx.node_calls(&data).await?;
    let (files, at) = (cx.files("data"), node.target("web"));
    node.set_up("web").await?;
    files.change(&at, STEPS).await?;
    node.undo_publish("web").await?;
    node.publish("web").await?.succeeds()?;
    files.are_kept(&at, "NodePublishVolume", "the volume was unpublished and published").await?;

    files.change(&at, STEPS).await?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    files.are_kept(&at, "NodeStageVolume", "the volume was unstaged and staged").await?;

    files.change(&at, STEPS).await?;
    cx.driver().restart().await?;
    files.are_kept(&at, "NodePublishVolume", "the driver was killed and started").await?;
    files.change(&at, STEPS).await?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    files
        .are_kept(&at, "NodeStageVolume", "a driver that was started anew has unstaged and staged it")
        .await?;
    node.tear_down("web").await
}

/// Files are as they were left after the volume has grown.
///
/// CSI, NodePublishVolume: the SP MUST ensure the CO can use the published volume as described.
#[case(needs = [Expands, Filesystem, Creates, Root, Persistent], driver = Shared)]
async fn files_stay_when_a_volume_grows(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let (files, at) = (cx.files("data"), node.target("web"));
    node.set_up("web").await?;
    files.change(&at, STEPS).await?;
    if cx.grows_online() {
        grows(&node, cx.grows_on_node(), 2 * cx.size(&data)).await?;
        files.are_kept(&at, "ControllerExpandVolume", "the volume has grown in use").await?;
        files.change(&at, STEPS).await?;
    }
    node.tear_down("web").await?;
    node.detach().await?;
    node.grow(4 * cx.size(&data)).await?;
    node.attach_again().await?;
    node.set_up("web").await?;
    files.are_kept(&at, "ControllerExpandVolume", "the unused volume has grown").await?;
    files.change(&at, STEPS).await?;
    node.tear_down("web").await
}

/// A snapshot has the files as they were when it was taken, and the volume goes on with its own.
///
/// CSI, CreateSnapshot: a snapshot is a point-in-time copy of a specific volume.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent, TwoVolumes], judges = ["DRV-160"], driver = Shared)]
async fn files_stay_in_a_snapshot(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (node, files) = changed_source(cx, &data).await?;
    let snapshot = cx.snapshot("one", &data).await?;
    let copy = cx.volume("copy").restored_from(&snapshot).create().await?;
    go_their_own_ways(cx, (&node, &files), &copy, "it was restored from a snapshot").await
}

/// A snapshot has the files as they were when it was taken, also those that the volume's workload changed before the
/// snapshot was restored.
///
/// CSI, CreateSnapshot: a snapshot is a point-in-time copy of a specific volume.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], judges = ["DRV-160"], driver = Shared)]
async fn files_of_a_snapshot_stay_when_those_of_the_volume_change(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (node, files) = changed_source(cx, &data).await?;
    let snapshot = cx.snapshot("one", &data).await?;
    let taken = files.as_of_now();
    node.attach_again().await?;
    node.set_up("web").await?;
    files.change(&node.target("web"), STEPS).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let copy = cx.volume("copy").restored_from(&snapshot).create().await?;
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    let after = "the volume was changed after its snapshot was taken";
    taken.are_kept(&copied.target("copy"), "CreateSnapshot", after).await?;
    copied.tear_down("copy").await
}

/// A clone has the files of its source, and each of the two goes on with its own.
///
/// CSI, CreateVolume: the volume has the data of the original volume when it is presented by NodePublishVolume.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent, TwoVolumes], judges = ["DRV-160"], driver = Shared)]
async fn files_stay_in_a_clone(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (node, files) = changed_source(cx, &data).await?;
    let copy = cx.volume("copy").copy_of(&data).create().await?;
    go_their_own_ways(cx, (&node, &files), &copy, "it was cloned").await
}

/// A volume with files that a workload has changed, unpublished and detached.
async fn changed_source(cx: &Cx, data: &Volume) -> Result<(NodeCalls, Files)> {
    let node = cx.node_calls(data).await?;
    let files = cx.files("data");
    node.set_up("web").await?;
    files.change(&node.target("web"), STEPS).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    Ok((node, files))
}

/// Changes copy and source in turn: each has only its own changes.
async fn go_their_own_ways(
    cx: &Cx,
    (node, files): (&NodeCalls, &Files),
    copy: &Volume,
    happened: &str,
) -> Result {
    let copies = files.as_of_now();
    node.attach_again().await?;
    if let Some(refused) = node.refusal("web").await? {
        let cause = format!("{} of a volume that was copied answered {}.", refused.method(), refused.code());
        return cx.keeps("DRV-160", "CreateVolume", false, &cause);
    }
    files.are_kept(&node.target("web"), "CreateVolume", "the volume was copied").await?;
    files.change(&node.target("web"), STEPS).await?;
    let copied = cx.node_calls(copy).await?;
    copied.set_up("copy").await?;
    copies.are_kept(&copied.target("copy"), "CreateVolume", happened).await?;
    copies.change(&copied.target("copy"), STEPS).await?;
    files.are_kept(&node.target("web"), "CreateVolume", "a copy of the volume was changed").await?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    files.are_kept(&node.target("web"), "NodeStageVolume", "the source of a copy was staged again").await?;
    node.tear_down("web").await?;
    copied.tear_down("copy").await
}

/// Files of a pod are as it left them when the node's agent was killed and has recovered.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent; a CO that has lost its state repeats it.
#[case(needs = [Filesystem, Root, Persistent])]
async fn files_stay_when_the_node_restarts(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let files = cx.files("data");
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    files.change(&web.path("/data")?, STEPS).await?;
    cx.node().restart().await?;
    cx.node().revive().await?;
    files.are_kept(&web.path("/data")?, "NodePublishVolume", "the node was killed and started").await?;
    files.change(&web.path("/data")?, STEPS).await?;
    cx.forget().await?;
    web.stop().await?;
    let next = cx.pod("next").volume(&data, "/data").start().await?;
    files
        .are_kept(&next.path("/data")?, "NodeUnstageVolume", "a recovered node has unstaged the volume")
        .await?;
    next.stop().await
}

/// Files of a pod are as it left them when it has moved to another node and back.
///
/// CSI, NodeUnstageVolume: this RPC MUST undo the work by the corresponding NodeStageVolume.
#[case(needs = [Filesystem, Root, Persistent, TwoNodes])]
async fn files_stay_when_a_pod_moves(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").create().await?;
    let files = cx.files("data");
    let first = cx.pod("first").volume(&data, "/data").start().await?;
    files.change(&first.path("/data")?, STEPS).await?;
    first.stop().await?;
    let second = other.pod("second").volume(&data, "/data").start().await?;
    files.are_kept(&second.path("/data")?, "NodeStageVolume", "the volume moved to another node").await?;
    files.change(&second.path("/data")?, STEPS).await?;
    second.stop().await?;
    let third = cx.pod("third").volume(&data, "/data").start().await?;
    files.are_kept(&third.path("/data")?, "NodeStageVolume", "the volume moved back").await?;
    third.stop().await
}

/// A large file has each of its blocks, at its start, in its middle and at its end, after the volume was staged again
/// and after it was copied.
///
/// CSI, NodeUnstageVolume: this RPC MUST undo the work by the corresponding NodeStageVolume.
#[case(needs = [Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn large_file_stays_from_start_to_end(cx: &mut Cx) -> Result {
    let data = cx.volume("data").size(LARGE).create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let Some(blocks) = cx.blocks_of_a_file("data", &node.target("web"))? else {
        cx.not_tried("DRV-160", "a volume of 96 MiB has less than 32 MiB free");
        return node.tear_down("web").await;
    };
    let at = node.file(&node.target("web"), "large");
    blocks.write(&at).await?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    blocks.are_kept("DRV-160", &at, "NodeUnstageVolume", "the volume was unstaged and staged").await?;
    node.tear_down("web").await
}

/// A clone of a large volume has each block of its source, also those at its end.
///
/// CSI, CreateVolume: the volume has the data of the original volume when it is presented by NodePublishVolume.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent, TwoVolumes], driver = Shared)]
async fn large_file_is_cloned_from_start_to_end(cx: &mut Cx) -> Result {
    let data = cx.volume("data").size(LARGE).create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let Some(blocks) = cx.blocks_of_a_file("data", &node.target("web"))? else {
        cx.not_tried("DRV-014", "a volume of 96 MiB has less than 32 MiB free");
        return node.tear_down("web").await;
    };
    blocks.write(&node.file(&node.target("web"), "large")).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let copy = cx.volume("copy").copy_of(&data).create().await?;
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    let at = copied.file(&copied.target("copy"), "large");
    blocks.are_kept("DRV-014", &at, "CreateVolume", "the volume was cloned").await?;
    copied.tear_down("copy").await
}

/// A device has each of its blocks at its own offset after it was published again, staged again, and after its driver
/// was killed and started again.
///
/// CSI, NodeUnstageVolume: this RPC MUST undo the work by the corresponding NodeStageVolume.
#[case(needs = [Block, Root, Loop, OwnProcess, Persistent], judges = ["DRV-160"])]
async fn blocks_stay_through_the_life_of_a_device(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let node = cx.node_calls(&disk).await?;
    let at = node.target("web");
    node.set_up("web").await?;
    let blocks = cx.blocks_of_a_device("disk", node.device_size(&at).await?);
    blocks.write(&at).await?;
    node.undo_publish("web").await?;
    node.publish("web").await?.succeeds()?;
    blocks.are_kept("DRV-160", &at, "NodePublishVolume", "the device was unpublished and published").await?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    blocks.are_kept("DRV-160", &at, "NodeStageVolume", "the device was unstaged and staged").await?;
    cx.driver().restart().await?;
    blocks.are_kept("DRV-160", &at, "NodePublishVolume", "the driver was killed and started").await?;
    node.tear_down("web").await
}

/// A device has each of its blocks at its own offset after it has grown.
///
/// CSI, NodePublishVolume: the SP MUST ensure the CO can use the published volume as described.
#[case(needs = [Expands, Block, Creates, Root, Loop, Persistent], judges = ["DRV-160"], driver = Shared)]
async fn blocks_stay_when_a_device_grows(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let node = cx.node_calls(&disk).await?;
    let at = node.target("web");
    node.set_up("web").await?;
    let blocks = cx.blocks_of_a_device("disk", node.device_size(&at).await?);
    blocks.write(&at).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    node.grow(2 * cx.size(&disk)).await?;
    node.attach_again().await?;
    node.set_up("web").await?;
    blocks.are_kept("DRV-160", &at, "ControllerExpandVolume", "the device has grown").await?;
    node.tear_down("web").await
}

/// A clone of a device has each block of its source at its own offset.
///
/// CSI, CreateVolume: the volume has the data of the original volume when it is presented by NodePublishVolume.
#[case(needs = [Clones, Block, Creates, Root, Loop, Persistent, TwoVolumes], driver = Shared)]
async fn blocks_stay_in_a_clone_of_a_device(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let node = cx.node_calls(&disk).await?;
    node.set_up("web").await?;
    let blocks = cx.blocks_of_a_device("disk", node.device_size(&node.target("web")).await?);
    blocks.write(&node.target("web")).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let copy = cx.volume("copy").block().copy_of(&disk).create().await?;
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    blocks.are_kept("DRV-014", &copied.target("copy"), "CreateVolume", "the device was cloned").await?;
    copied.tear_down("copy").await
}

/// The files of a volume support what applications do on any disk: create exclusively, execute, link, rename over an open
/// file, sync a directory.
///
/// Kubernetes: a container runs its programs in its volumes, and finds there what it finds on its node.
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn applications_use_files_as_on_a_node(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let refused = cx.refused_uses(&node.target("web")).await?;
    let cause =
        format!("Not all that applications do with files works in the volume: {}.", refused.join("; "));
    cx.keeps("DRV-162", "NodePublishVolume", refused.is_empty(), &cause)?;
    node.tear_down("web").await
}

/// A lock that one pod holds on a file is seen by another pod with the same volume.
///
/// Kubernetes: pods of a node that share a volume share its files.
#[case(needs = [Filesystem, Shared, Root, Persistent], driver = Shared)]
async fn lock_of_one_pod_is_seen_by_another(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.publish("next").await?.succeeds()?;
    let is_seen = cx.lock_is_seen(&node.target("web"), &node.target("next")).await?;
    let cause = "A lock of a file that is held at one target is not seen at another target of the volume.";
    cx.keeps("DRV-162", "NodePublishVolume", is_seen, cause)?;
    node.undo_publish("next").await?;
    node.tear_down("web").await
}

async fn grows(node: &NodeCalls, on_node: bool, size: u64) -> Result {
    let grown = node.grow(size).await?;
    if grown.is_ok() && on_node && grown.part("/nodeExpansionRequired") == json!(true) {
        node.grow_on_node("web", size).await?;
    }
    Ok(())
}
