//! Node calls out of order: too early, twice, and after mounts were lost.

use super::detach_of;
use super::mounts::owned;
use crate::prelude::*;

const LEFT: &str = "NodeUnpublishVolume answered OK, and its target is still there.";

/// A volume that is not staged is not published: the pod would write into a directory of the node.
///
/// CSI, NodePublishVolume: FAILED_PRECONDITION if NodeStageVolume has not been called.
#[case(needs = [Filesystem, StageUnstage, Root], driver = Shared)]
async fn unstaged_volume_is_not_published(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.writes(&node.staging(), "of-the-node").await?;
    let answer = node.publish("web").await?;
    let shows_staging = node.has(&node.target("web"), "of-the-node").await?;
    let cause =
        format!("{NOT_STAGED} (answered {}, and its target shows the empty staging path)", answer.code());
    cx.keeps("DRV-054", "NodePublishVolume", !shows_staging, &cause)?;
    // Removed before the volume is unstaged: a driver may then remove the staging path, which has to be empty.
    node.unlink_if_there(&node.staging().join("of-the-node"));
    if answer.is_ok() {
        return node.undo_publish("web").await;
    }
    // The same call must be OK once the volume is staged.
    if let Some(refusal) = node.refusal("web").await? {
        let cause =
            "Calls for a volume are ABORTED after NodePublishVolume was refused because it was not staged.";
        cx.keeps("DRV-130", "NodePublishVolume", refusal.code() != "Aborted", cause)?;
        refusal.succeeds()?;
    }
    cx.keeps("DRV-130", "NodePublishVolume", true, "")?;
    node.tear_down("web").await
}

/// NodePublishVolume that was refused for its access type leaves nothing at the target: with its file system the volume can be
/// published there.
///
/// CSI, NodePublishVolumeRequest.target_path: "Creation of target_path is the responsibility of the SP."
#[case(needs = [Filesystem, Root], driver = Shared)]
async fn refused_publish_leaves_nothing_at_the_target(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    let mut wrong = node.publish_request("web");
    wrong["volumeCapability"] =
        json!({ "block": {}, "accessMode": wrong["volumeCapability"]["accessMode"].clone() });
    if cx.call("NodePublishVolume", wrong).await?.is_ok() {
        cx.not_tried("DRV-045", "the driver publishes a volume with a file system as a device");
        node.undo_publish("web").await?;
        return node.undo_stage().await;
    }
    let right = node.publish("web").await?;
    let cause = format!(
        "NodePublishVolume as a device was refused, and at the same target answered {} with the volume's file system.",
        right.code()
    );
    cx.keeps("DRV-045", "NodePublishVolume", right.is_ok(), &cause)?;
    if right.is_ok() {
        return node.tear_down("web").await;
    }
    // A file that the refused call left at the target would be in the way of the teardown.
    node.unlink_if_there(&node.target("web"));
    drop(node.unpublish("web").await?);
    node.undo_stage().await
}

/// A target whose path has odd characters is published and unpublished as any other.
///
/// CSI, NodePublishVolumeRequest.target_path: it MUST be an absolute path. In mount tables the kernel writes a blank as `\040`.
#[case(needs = [Filesystem, Root, Persistent], judges = ["DRV-053", "DRV-060", "DRV-061", "DRV-064"], driver = Shared)]
async fn target_with_an_odd_path_is_unpublished(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.undo_publish("web").await?;
    for name in ["a mount", "back\\slash", "größe"] {
        let target = node.target("web").with_file_name(name);
        let mut publish = node.publish_request("web");
        publish["targetPath"] = json!(target);
        let undo = json!({ "volumeId": node.handle(), "targetPath": target });
        cx.call("NodePublishVolume", publish.clone()).await?.succeeds()?;
        node.writes(&target, "kept").await?;
        drop(cx.call("NodePublishVolume", publish).await?);
        let is_stacked = node.mounts_at(&target)?.len() > 1;
        let undone = cx.call("NodeUnpublishVolume", undo.clone()).await?;
        let is_mounted = !node.mounts_at(&target)?.is_empty();
        if is_mounted {
            node.loses_mount(&target)?;
        }
        let is_left = undone.is_ok() && !is_mounted && target.exists();
        if !undone.is_ok() {
            drop(cx.call("NodeUnpublishVolume", undo).await?);
        }
        node.publish("web").await?.succeeds()?;
        let is_kept = node.has(&node.target("web"), "kept").await?;
        node.undo_publish("web").await?;
        let cause = "NodeUnpublishVolume of a target with an odd path deleted what is in the volume.";
        cx.keeps("DRV-064", "NodeUnpublishVolume", is_kept, cause)?;
        let cause = "NodePublishVolume, repeated at a target with an odd path, mounted the volume twice.";
        cx.keeps("DRV-053", "NodePublishVolume", !is_stacked, cause)?;
        let cause = format!(
            "NodeUnpublishVolume of a target with an odd path answered {}, and the target is still mounted.",
            undone.code()
        );
        cx.keeps("DRV-060", "NodeUnpublishVolume", !is_mounted, &cause)?;
        cx.keeps("DRV-061", "NodeUnpublishVolume", !is_left, LEFT)?;
    }
    node.undo_stage().await
}

/// A volume that was staged can be published.
///
/// CSI, NodeStageVolume: the plugin ensures that the CO can use the staged volume as described.
#[case(needs = [Filesystem, StageUnstage, Root], judges = ["DRV-040"], driver = Shared)]
async fn staged_volume_can_be_published(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "first").await?;
    node.tear_down("web").await
}

/// Data survive each call that could lose them: unpublish, publish, stage again, unstage and stage.
///
/// CSI, NodeUnpublishVolume, NodeUnstageVolume: they undo the work of NodePublishVolume and NodeStageVolume.
#[case(needs = [Filesystem, Root, Persistent], judges = ["DRV-184"], driver = Shared)]
async fn data_outlives_each_call(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "durable").await?;

    node.stage().await?.is("DRV-100", &["OK"])?;
    let cause = "NodeStageVolume of a volume that is staged lost what was written.";
    cx.keeps("DRV-042", "NodeStageVolume", node.has(&target, "durable").await?, cause)?;

    node.undo_publish("web").await?;
    node.publish("web").await?.succeeds()?;
    let cause = "What was written is gone after NodeUnpublishVolume and NodePublishVolume.";
    cx.keeps("DRV-064", "NodeUnpublishVolume", node.has(&target, "durable").await?, cause)?;

    // Not synced: this data is on the disk only if the plugin unmounts the file system when it unstages.
    node.writes_to_cache(&target, "cached").await?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    let cause = "What was on the disk is gone after NodeUnstageVolume and NodeStageVolume.";
    cx.keeps("DRV-042", "NodeStageVolume", node.has(&target, "durable").await?, cause)?;
    let cause = "What was written last is gone after NodeUnstageVolume and NodeStageVolume; what was synced is there.";
    cx.keeps("DRV-072", "NodeUnstageVolume", node.has(&target, "cached").await?, cause)?;
    node.tear_down("web").await
}

/// A volume that is asked for again, after it was used, has its data.
///
/// CSI, CreateVolume: this operation MUST be idempotent. A caller that lost the answer repeats the call at any time.
#[case(needs = [Filesystem, Creates, Root, Persistent], driver = Shared)]
async fn volume_that_is_asked_for_again_keeps_its_data(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let request = cx.last_request("CreateVolume")?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "durable").await?;
    node.tear_down("web").await?;
    drop(cx.call("CreateVolume", request).await?);
    let refusal = node.refusal("web").await?;
    if let Some(refused) = &refusal
        && matches!(refused.code(), "Aborted" | "DeadlineExceeded" | "Unavailable")
    {
        // These codes do not say whether the data is lost.
        return refused.succeeds();
    }
    let is_kept = refusal.is_none() && node.has(&target, "durable").await?;
    let cause = "What was written is gone after a repeated CreateVolume.";
    cx.keeps("DRV-160", "CreateVolume", is_kept, cause)?;
    node.tear_down("web").await
}

/// What was written to a device at its start, in its middle and at its end is there after the volume was unpublished,
/// unstaged, staged and published again.
///
/// CSI, NodeUnstageVolume: this RPC MUST undo the work by the corresponding NodeStageVolume.
#[case(needs = [Block, Root, Loop, Persistent], driver = Shared)]
async fn data_on_a_device_outlives_each_call(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let node = cx.node_calls(&disk).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "durable").await?;
    node.undo_publish("web").await?;
    let again = node.publish("web").await?;
    let cause = format!(
        "After NodeUnpublishVolume of a device that is still staged NodePublishVolume answered {}.",
        again.code()
    );
    cx.keeps("DRV-040", "NodeUnpublishVolume", again.is_ok(), &cause)?;
    let cause = "What was written to the device is gone after NodeUnpublishVolume and NodePublishVolume.";
    cx.keeps("DRV-064", "NodeUnpublishVolume", node.has(&target, "durable").await?, cause)?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    let cause = "What was written to the device is gone after NodeUnstageVolume and NodeStageVolume.";
    cx.keeps("DRV-042", "NodeStageVolume", node.has(&target, "durable").await?, cause)?;
    node.tear_down("web").await
}

/// Unpublishing and unstaging a file system twice are OK, and nothing is mounted or left at the target.
///
/// CSI, NodeUnpublishVolume, NodeUnstageVolume: this operation MUST be idempotent.
#[case(
    needs = [Filesystem, Root],
    judges = ["DRV-055", "DRV-060", "DRV-061", "DRV-062", "DRV-065", "DRV-070", "DRV-071", "DRV-074"], driver = Shared)]
async fn teardown_twice_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    check_teardown_twice(cx, cx.node_calls(&data).await?).await
}

/// Unpublishing and unstaging a device twice are OK, and nothing is bound or left at the target.
///
/// CSI, NodeUnpublishVolume, NodeUnstageVolume: this operation MUST be idempotent.
#[case(
    needs = [Block, Root, Loop],
    judges = ["DRV-055", "DRV-060", "DRV-061", "DRV-062", "DRV-065", "DRV-070", "DRV-071", "DRV-074"], driver = Shared)]
async fn teardown_of_a_device_twice_is_ok(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    check_teardown_twice(cx, cx.node_calls(&disk).await?).await
}

async fn check_teardown_twice(cx: &Cx, node: NodeCalls) -> Result {
    let target = node.target("web");
    let directory = target.parent().expect("a target is in a directory");
    std::fs::create_dir_all(directory)?;
    let owner_before = owned(directory)?;
    node.set_up("web").await?;
    let cause = "NodePublishVolume changed the owner or the mode of the directory of its target.";
    cx.keeps("DRV-065", "NodePublishVolume", owned(directory)? == owner_before, cause)?;
    let is_there = !node.mounts_at(&target)?.is_empty() || node.is_device(&target);
    cx.keeps("DRV-055", "NodePublishVolume", is_there, NOT_MOUNTED)?;
    node.undo_publish("web").await?;
    let cause = "NodeUnpublishVolume answered OK, and its target is still mounted.";
    cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&target)?.is_empty(), cause)?;
    cx.keeps("DRV-061", "NodeUnpublishVolume", !target.exists(), LEFT)?;
    let cause =
        "NodeUnpublishVolume answered OK, and the directory of its target, which the caller made, is gone.";
    cx.keeps("DRV-065", "NodeUnpublishVolume", directory.is_dir(), cause)?;
    node.unpublish("web").await?.asked("of a volume that was unpublished").is("DRV-062", &["OK"])?;
    node.undo_stage().await?;
    let cause = "NodeUnstageVolume answered OK, and the staging path is still mounted.";
    cx.keeps("DRV-070", "NodeUnstageVolume", node.mounts_at(&node.staging())?.is_empty(), cause)?;
    cx.keeps("DRV-074", "NodeUnstageVolume", node.staging().is_dir(), REMOVED)?;
    node.unstage().await?.asked("of a volume that was unstaged").is("DRV-071", &["OK"])
}

/// A volume whose mounts are gone, as after a reboot, is unpublished and unstaged all the same, and can be used again.
///
/// CSI, NodeUnstageVolume: OK if the volume is not staged to the staging path. A node calls by its own records, whatever is
/// mounted.
#[case(needs = [Filesystem, Root], driver = Shared)]
async fn teardown_of_lost_mounts_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.loses_mount(&node.target("web"))?;
    let unpublished = node.unpublish("web").await?.asked("of a target whose mount is gone");
    unpublished.is("DRV-069", &["OK"])?;
    if !unpublished.is_ok() {
        return Ok(());
    }
    node.loses_mount(&node.staging())?;
    node.unstage().await?.asked("of a staging path whose mount is gone").is("DRV-069", &["OK"])?;
    node.set_up("next").await?;
    node.writes(&node.target("next"), "again").await?;
    node.tear_down("next").await
}

/// A target that is gone with its mount, as after a reboot of a node without a disk, is unpublished all the same.
///
/// CSI, NodeUnpublishVolume: this operation MUST be idempotent. A node calls by its own records, whatever is mounted.
#[case(needs = [Filesystem, Root], driver = Shared)]
async fn unpublish_of_a_lost_target_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let target = node.target("web");
    node.loses_mount(&target)?;
    // Renamed away, as if it had been removed.
    std::fs::rename(&target, target.with_file_name("gone"))?;
    let unpublished = node.unpublish("web").await?.asked("of a target that is gone");
    unpublished.is("DRV-069", &["OK"])?;
    if !unpublished.is_ok() {
        // Put back, so that the driver can unpublish the target: DRV-069 is advice, and a driver that does not follow
        // it must not leave a published volume behind.
        std::fs::rename(target.with_file_name("gone"), &target)?;
        node.unpublish("web").await?;
    }
    node.undo_stage().await
}

/// NodeUnpublishVolume does not answer OK while a process keeps the target mounted.
///
/// Kubernetes: a pod's volume that is unpublished may be given to another node while the process still writes.
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn target_in_use_is_not_unpublished(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    if node.mounts_at(&node.target("web"))?.is_empty() {
        cx.not_tried("DRV-066", "the driver mounts nothing at its targets");
        return node.tear_down("web").await;
    }
    let held = node.opens(&node.target("web"), "held").await?;
    let answer = node.unpublish("web").await?;
    let cause = "NodeUnpublishVolume answered OK while a process has a file of the volume open: its mount is only detached, and still in use.";
    cx.keeps("DRV-066", "NodeUnpublishVolume", !answer.is_ok(), cause)?;
    drop(held);
    node.tear_down("web").await
}

/// NodeUnpublishVolume of a target that a process keeps in use deletes nothing of the volume, whatever it answers.
///
/// CSI, NodeUnpublishVolume: "This RPC MUST undo the work by the corresponding NodePublishVolume", and no more.
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn unpublish_of_a_target_in_use_keeps_the_data(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "kept").await?;
    let held = node.opens(&node.target("web"), "held").await?;
    drop(node.unpublish("web").await?);
    drop(held);
    node.tear_down("web").await?;
    node.set_up("web").await?;
    let cause = "NodeUnpublishVolume of a target in use deleted what is in the volume.";
    cx.keeps("DRV-064", "NodeUnpublishVolume", node.has(&node.target("web"), "kept").await?, cause)?;
    node.tear_down("web").await
}

/// A volume whose NodePublishVolume has failed can be unstaged without a NodeUnpublishVolume before.
///
/// Kubernetes: after a final error a caller assumes that nothing was done, and does not undo the call.
#[case(needs = [Filesystem, StageUnstage, Root], driver = Shared)]
async fn publish_that_failed_is_forgotten(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.stage().await?.succeeds()?;
    // The request itself is not needed: publish_request also makes the parent directory of the target.
    drop(node.publish_request("web"));
    std::fs::write(&target, "in the way of a directory")?;
    let failed = node.publish("web").await?;
    if failed.is_ok() {
        cx.not_tried("DRV-045", "the driver publishes where there is a file");
        return node.tear_down("web").await;
    }
    node.unlink_if_there(&target);
    let unstaged = node.unstage().await?;
    let cause = format!(
        "NodePublishVolume failed while a file was at the target, and NodeUnstageVolume answered {} afterwards.",
        unstaged.code()
    );
    cx.keeps("DRV-045", "NodePublishVolume", unstaged.is_ok(), &cause)?;
    if unstaged.is_ok() { Ok(()) } else { node.tear_down("web").await }
}

/// NodeUnstageVolume of a staging path that a process keeps in use deletes nothing of the volume, whatever it answers.
///
/// CSI, NodeUnstageVolume: "This RPC is a reverse operation of `NodeStageVolume`", and no more.
#[case(needs = [Filesystem, StageUnstage, Root, Persistent], driver = Shared)]
async fn unstage_of_a_path_in_use_keeps_the_data(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "kept").await?;
    node.undo_publish("web").await?;
    if node.mounts_at(&node.staging())?.is_empty() {
        cx.not_tried("DRV-072", "the driver mounts nothing at its staging paths");
        return node.undo_stage().await;
    }
    let held = node.opens(&node.staging(), "held").await?;
    drop(node.unstage().await?);
    drop(held);
    node.undo_stage().await?;
    node.set_up("web").await?;
    let cause = "NodeUnstageVolume of a staging path in use deleted what is in the volume.";
    cx.keeps("DRV-072", "NodeUnstageVolume", node.has(&node.target("web"), "kept").await?, cause)?;
    node.tear_down("web").await
}

/// A volume that was unpublished from its node while the node had it mounted, as when the node was lost for a while, is
/// unmounted by NodeUnpublishVolume and NodeUnstageVolume all the same.
///
/// Kubernetes: the attach/detach controller detaches by force, and the node unpublishes when it is back.
#[case(needs = [Filesystem, Creates, Attaches, Root], judges = ["DRV-060"], driver = Shared)]
async fn detached_volume_is_unmounted(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let attached = cx.attach_request(&data).await?;
    let detach = detach_of(&attached);
    if !cx.call("ControllerUnpublishVolume", detach).await?.is_ok() {
        cx.not_tried("DRV-060", "the driver detaches no volume that is in use on its node");
    }
    node.tear_down("web").await
}

/// A volume is not mounted through a symbolic link at its staging path or target.
///
/// Kubernetes: both are in a tree that pods with host paths can reach.
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn link_in_place_of_a_path_is_not_followed(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let elsewhere = node.links(&node.staging())?;
    drop(node.stage().await?);
    let cause = "NodeStageVolume mounted the volume where a symbolic link at the staging path leads.";
    let is_followed = !node.mounts_at(&elsewhere)?.is_empty();
    cx.keeps("DRV-046", "NodeStageVolume", !is_followed, cause)?;
    if is_followed {
        node.loses_mount(&elsewhere)?;
    }
    drop(node.unstage().await?);
    node.unlinks(&node.staging())?;

    node.stage().await?.succeeds()?;
    let elsewhere = node.links(&node.target("web"))?;
    drop(node.publish("web").await?);
    let cause = "NodePublishVolume mounted the volume where a symbolic link at the target leads.";
    let is_followed = !node.mounts_at(&elsewhere)?.is_empty();
    cx.keeps("DRV-056", "NodePublishVolume", !is_followed, cause)?;
    drop(node.unpublish("web").await?);
    if is_followed {
        node.loses_mount(&elsewhere)?;
    }
    node.unlink_if_there(&node.target("web"));
    node.undo_stage().await
}

/// A volume is not staged with the publish context of an attachment that has ended.
///
/// Kubernetes: a node that was away may still have the context of an earlier attachment.
#[case(needs = [Filesystem, StageUnstage, Attaches, Root], driver = Shared)]
async fn context_of_an_earlier_attachment_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let mut stale = node.stage_request();
    node.detach().await?;
    node.attach_again().await?;
    if stale["publishContext"] == node.publish_context() {
        cx.not_tried("DRV-048", "each attachment has the same publish context");
        return Ok(());
    }
    stale["secrets"] = json!({});
    let answer =
        node.stage_as(stale).await?.asked("with the publish context of an attachment that has ended");
    answer.is_refused("DRV-048")
}

/// A volume is staged with the publish context of its attachment, also when it was attached before.
///
/// CSI, ControllerPublishVolume: the SP MUST ensure the CO can use the published volume as described.
#[case(needs = [Filesystem, StageUnstage, Attaches, Root], driver = Shared)]
async fn context_of_the_attachment_is_good(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    for attached in ["once", "again"] {
        let staged = node.stage().await?;
        // These codes say that the publish context is wrong; any other code may have another reason.
        let is_refused = ["FailedPrecondition", "InvalidArgument", "NotFound"].contains(&staged.code());
        let cause = format!(
            "NodeStageVolume of a volume that was attached {attached} answered {} to the publish context of that attachment.",
            staged.code()
        );
        cx.keeps("DRV-031", "ControllerPublishVolume", !is_refused, &cause)?;
        staged.succeeds()?;
        node.undo_stage().await?;
        node.detach().await?;
        node.attach_again().await?;
    }
    Ok(())
}

/// A failed NodeStageVolume leaves nothing mounted at the staging path.
///
/// Kubernetes: after a final error a kubelet assumes that nothing was done, and does not undo the call.
#[case(needs = [Filesystem, StageUnstage, Root], driver = Shared)]
async fn refused_stage_leaves_no_mount(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let staged = node.stage().await?;
    // If this plain call fails already, its failure is judged below.
    if staged.is_ok() {
        node.undo_stage().await?;
        node.ask_with(|asked| asked["mount"]["mountFlags"] = json!(["volproof-no-such-flag"]));
        let answer = node.stage().await?;
        if answer.is_ok() {
            cx.not_tried("DRV-045", "the driver takes a mount flag that does not exist");
            return node.undo_stage().await;
        }
    }
    let cause = "NodeStageVolume failed, and left the volume mounted at the staging path.";
    let is_clean = node.mounts_at(&node.staging())?.is_empty();
    cx.keeps("DRV-045", "NodeStageVolume", is_clean, cause)?;
    node.undo_stage().await
}

/// Unpublishing a target at which there is a second mount deletes nothing of the volume.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume, which is to mount.
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn unpublish_of_a_stacked_target_keeps_the_data(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "kept").await?;
    node.stacks(&target)?;
    // A driver may refuse the call, or leave the second mount, which is not its own.
    let answer = node.unpublish("web").await?;
    node.loses_mount(&target)?;
    if !answer.is_ok() {
        node.undo_publish("web").await?;
    }
    // Not staged again in between: losing data at a NodeStageVolume is another fault.
    node.publish("next").await?.succeeds()?;
    let cause =
        "NodeUnpublishVolume of a target with two mounts on top of each other deleted what is in the volume.";
    cx.keeps("DRV-064", "NodeUnpublishVolume", node.has(&node.target("next"), "kept").await?, cause)?;
    node.tear_down("next").await
}
