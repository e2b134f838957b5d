//! The device fails under the driver: the image in the driver's directory cannot be read or written, has no space or hangs,
//! while the driver stages, publishes, unpublishes and unstages.

use std::time::Duration;

use super::check_use_beside_a_hang;
use crate::prelude::*;

/// The time for a call to reach a device that hangs.
const READ_WAIT: Duration = Duration::from_secs(5);

/// A volume whose image cannot be read is not formatted: when it can be read again, what was in it is there.
///
/// CSI, NodeStageVolume: this operation MUST be idempotent; what was staged once is staged again as it is.
#[case(needs = [Filesystem, Root, Fuse, OwnProcess, Persistent])]
async fn unreadable_volume_is_not_formatted(cx: &mut Cx) -> Result {
    let state = cx.failing_state().await?;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "kept").await?;
    node.tear_down("web").await?;
    let Some(image) = state.new_image()? else {
        cx.not_tried("DRV-042", "the driver keeps no image of a volume in its directory");
        return Ok(());
    };
    let fails = || FileRule::on(FileCall::Read, FileFault::Errno(nix::errno::Errno::EIO as i32));
    // Fails the first read alone, the reads of a superblock, and all reads.
    for rule in [fails().times(1), fails().range(0..4096), fails()] {
        image.fails(rule)?;
        let staged = node.stage().await?;
        drop(node.publish("web").await?);
        let has_failed = image.has_failed()?;
        image.recovers()?;
        cx.until_ok(|| Box::pin(node.unpublish("web"))).await?.succeeds()?;
        cx.until_ok(|| Box::pin(node.unstage())).await?.succeeds()?;
        node.set_up("web").await?;
        let cause = format!(
            "NodeStageVolume of a volume whose image could not be read answered {}, and what was in it is gone.",
            staged.code()
        );
        let is_there = node.has(&node.target("web"), "kept").await?;
        match has_failed {
            true => cx.keeps("DRV-042", "NodeStageVolume", is_there, &cause)?,
            false => cx.not_tried("DRV-042", "the driver does not read the image of a volume that it stages"),
        }
        node.tear_down("web").await?;
    }
    Ok(())
}

/// A file system that has gone read-only because its device failed is not published as a writable one, and works again
/// when it was staged anew.
///
/// CSI says nothing of a medium that fails while a volume is staged; what was synced before MUST be there afterwards.
#[case(needs = [Filesystem, StageUnstage, Root, Fuse, OwnProcess, Persistent])]
async fn file_system_gone_read_only_is_not_published(cx: &mut Cx) -> Result {
    let state = cx.failing_state().await?;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "kept").await?;
    let Some(image) = state.new_image()? else {
        cx.not_tried("DRV-163", "the driver keeps no image of a volume in its directory");
        return node.tear_down("web").await;
    };
    image.fails(FileRule::on(FileCall::Write, FileFault::Errno(nix::errno::Errno::EIO as i32)))?;
    // A file system goes read-only when its journal cannot be written, which comes after the data.
    for attempt in ["one", "two", "three"] {
        node.can_name("web", attempt).await?;
    }
    let has_gone = node.is_read_only("web")?;
    image.recovers()?;
    node.undo_publish("web").await?;
    if !has_gone {
        cx.not_tried("DRV-163", "the file system takes writes although its device has failed");
        return node.undo_stage().await;
    }
    let published = node.publish("web").await?;
    let is_broken = published.is_ok() && node.is_read_only("web")?;
    let cause = "NodePublishVolume answered OK, and the file system that it published for writing has gone read-only.";
    cx.keeps("DRV-163", "NodePublishVolume", !is_broken, cause)?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    let cause = "What was synced before the device failed is gone.";
    cx.keeps("DRV-160", "NodeStageVolume", node.has(&node.target("web"), "kept").await?, cause)?;
    node.tear_down("web").await
}

/// A volume that could not be staged because there was no space is staged when there is space again.
///
/// Kubernetes: a kubelet repeats NodeStageVolume until it succeeds.
#[case(needs = [Filesystem, Root, Fuse, OwnProcess, Persistent])]
async fn volume_is_staged_when_there_is_space_again(cx: &mut Cx) -> Result {
    let state = cx.failing_state().await?;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let Some(image) = state.new_image()? else {
        cx.not_tried("DRV-164", "the driver keeps no image of a volume in its directory");
        return Ok(());
    };
    // The space does not suffice for the metadata of a new file system.
    image.fails(FileRule::on(FileCall::Write, FileFault::NoSpace(8 << 10)))?;
    drop(node.stage().await?);
    let published = node.publish("web").await?;
    let has_failed = image.has_failed()?;
    image.recovers()?;
    if !has_failed || published.is_ok() {
        cx.not_tried("DRV-164", "the driver writes nothing to the image of a volume that it stages");
        return node.tear_down("web").await;
    }
    let staged = cx.until_ok(|| Box::pin(node.stage())).await?;
    let published = cx.until_ok(|| Box::pin(node.publish("web"))).await?;
    let works = published.is_ok() && node.can_write("web", "after").await?;
    let cause = format!(
        "After there was no space, and is again, NodeStageVolume answers {} and NodePublishVolume {}.",
        staged.code(),
        published.code()
    );
    cx.keeps("DRV-164", "NodeStageVolume", works, &cause)?;
    if works { node.tear_down("web").await } else { Ok(()) }
}

/// A volume whose device has failed is unpublished and unstaged without waiting for that device, and other volumes go on.
///
/// CSI, 'Error Scheme': all CSI API calls MUST return a standard gRPC status.
#[case(needs = [Filesystem, Root, Fuse, OwnProcess, Persistent, TwoVolumes])]
async fn volume_of_a_failed_device_is_torn_down(cx: &mut Cx) -> Result {
    let state = cx.failing_state().await?;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let Some(image) = state.new_image()? else {
        cx.not_tried("DRV-093", "the driver keeps no image of a volume in its directory");
        return node.tear_down("web").await;
    };
    let other = cx.volume("other").create().await?;
    let beside = cx.node_calls(&other).await?;
    for operation in [FileCall::Write, FileCall::Read, FileCall::Sync, FileCall::Allocate] {
        image.fails(FileRule::on(operation, FileFault::Errno(nix::errno::Errno::EIO as i32)))?;
    }
    node.can_write("web", "lost").await?;
    beside.set_up("web").await?;
    beside.writes(&beside.target("web"), "beside").await?;
    // Any code is allowed, but no answer is not.
    cx.answer_to(Box::pin(node.unpublish("web"))).await?;
    cx.answer_to(Box::pin(node.unstage())).await?;
    let cause = "A volume lost what was written to it when the device of another volume failed.";
    cx.keeps("DRV-160", "NodeUnpublishVolume", beside.has(&beside.target("web"), "beside").await?, cause)?;
    beside.tear_down("web").await?;
    image.recovers()?;
    cx.until_ok(|| Box::pin(node.unpublish("web"))).await?.succeeds()?;
    cx.until_ok(|| Box::pin(node.unstage())).await?.succeeds()
}

/// While the device of one volume does not answer, another volume is staged, published, unpublished and unstaged.
///
/// CSI, 'Error Scheme': all CSI API calls MUST return a standard gRPC status.
#[case(needs = [Filesystem, Root, Fuse, OwnProcess, Persistent, TwoVolumes])]
async fn volume_beside_a_hanging_device_is_used(cx: &mut Cx) -> Result {
    let state = cx.failing_state().await?;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.tear_down("web").await?;
    let Some(image) = state.new_image()? else {
        cx.not_tried("DRV-093", "the driver keeps no image of a volume in its directory");
        return Ok(());
    };
    let other = cx.volume("other").create().await?;
    let beside = cx.node_calls(&other).await?;
    image.fails(FileRule::on(FileCall::Read, FileFault::Hang))?;
    let work = async {
        if !image.is_met(READ_WAIT).await? {
            cx.not_tried("DRV-093", "the driver does not read the image of a volume that it stages");
        }
        check_use_beside_a_hang(cx, &beside, || image.recovers()).await
    };
    let (hung, worked) = tokio::join!(node.stage(), work);
    drop(hung);
    worked?;
    cx.until_ok(|| Box::pin(node.unstage())).await?.succeeds()?;
    node.set_up("web").await?;
    node.tear_down("web").await
}
