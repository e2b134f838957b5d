//! Volumes that grow, by the controller and by the node, unused and in use. The kernel says whether they have grown.

use super::{can_write, set_read_only, size_of};
use crate::prelude::*;

const LOST: &str = "What was written before the expansion is gone after it.";

/// A file system that is expanded while unpublished has the new size and its old files when it is published again.
///
/// CSI, ControllerExpandVolume, NodeExpandVolume: the capacity of the volume after expansion.
#[case(needs = [Expands, Filesystem, Creates, Root, Persistent], driver = Shared)]
async fn unused_file_system_grows(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "before").await?;
    let before = node.file_system(&target).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let (old, new) = (cx.size(&data), 2 * cx.size(&data));
    let Some(on_node) = grows_by_controller(cx, &node, new).await? else { return Ok(()) };
    node.attach_again().await?;
    node.set_up("web").await?;
    let method = if on_node { "NodeExpandVolume" } else { "ControllerExpandVolume" };
    if on_node && !grows_by_node(cx, &node, new).await? {
        cx.not_tried(
            "DRV-081",
            "the node service answered FailedPrecondition, and the volume was not in use",
        );
        return node.tear_down("web").await;
    }
    has_grown(cx, &node, method, before, (old, new)).await?;
    cx.keeps("DRV-160", method, node.has(&target, "before").await?, LOST)?;
    node.tear_down("web").await
}

/// A file system that a pod uses has the new size when the node has answered, or when it is published again.
///
/// CSI, NodeExpandVolume: FAILED_PRECONDITION if the file system does not support expansion of published volumes.
#[case(needs = [Expands, Filesystem, Creates, Root, Persistent], judges = ["DRV-141"], driver = Shared)]
async fn file_system_grows_in_use(cx: &mut Cx) -> Result {
    if is_offline(cx, "DRV-081") {
        return Ok(());
    }
    let data = cx.volume("data").create().await?;
    grows_in_use(cx, &data).await
}

/// Each further type of file system that the manifest names grows while a pod uses it, or when it is published again.
///
/// CSI, NodeExpandVolume: FAILED_PRECONDITION if the file system does not support expansion of published volumes.
#[case(needs = [Expands, Filesystem, FsTypes, Creates, Root, Persistent], driver = Shared)]
async fn other_file_systems_grow_in_use(cx: &mut Cx) -> Result {
    if is_offline(cx, "DRV-081") {
        return Ok(());
    }
    for fs_type in cx.fs_types().iter().skip(1) {
        let volume = cx.volume(fs_type).fs_type(fs_type).create().await?;
        grows_in_use(cx, &volume).await?;
    }
    Ok(())
}

async fn grows_in_use(cx: &Cx, volume: &Volume) -> Result {
    let node = cx.node_calls(volume).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "before").await?;
    let before = node.file_system(&target).await?;
    let (old, new) = (cx.size(volume), 2 * cx.size(volume));
    let Some(on_node) = grows_by_controller(cx, &node, new).await? else {
        return leave(&node).await;
    };
    let method = if on_node { "NodeExpandVolume" } else { "ControllerExpandVolume" };
    if on_node && !grows_by_node(cx, &node, new).await? {
        // The file system does not grow in use. Publish the volume anew, as for a new pod, and expand it before it is used.
        node.tear_down("web").await?;
        node.set_up("web").await?;
        if !grows_by_node(cx, &node, new).await? {
            cx.not_tried("DRV-081", "the node service answered FailedPrecondition each time");
            return leave(&node).await;
        }
    }
    has_grown(cx, &node, method, before, (old, new)).await?;
    cx.keeps("DRV-160", method, node.has(&target, "before").await?, LOST)?;
    leave(&node).await
}

/// Makes room for the next volume: the node may carry no other beside this one.
async fn leave(node: &NodeCalls) -> Result {
    node.tear_down("web").await?;
    node.detach().await
}

/// A device that is expanded while unpublished has the new size and its old data when it is published again.
///
/// CSI, CapacityRange: "Volume MUST be at least this big."
#[case(needs = [Expands, Block, Creates, Root, Loop, Persistent], judges = ["DRV-080", "DRV-082"], driver = Shared)]
async fn unused_device_grows(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let node = cx.node_calls(&disk).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "before").await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let new = 2 * cx.size(&disk);
    let Some(on_node) = grows_by_controller(cx, &node, new).await? else { return Ok(()) };
    node.attach_again().await?;
    node.set_up("web").await?;
    device_has_grown(cx, &node, on_node, new).await?;
    node.tear_down("web").await
}

/// A device that a pod has open has the new size when the driver has answered.
///
/// CSI, CapacityRange: "Volume MUST be at least this big."
#[case(needs = [Expands, Block, Creates, Root, Loop, Persistent], driver = Shared)]
async fn device_grows_in_use(cx: &mut Cx) -> Result {
    if is_offline(cx, "DRV-080") {
        return Ok(());
    }
    let disk = cx.volume("disk").block().create().await?;
    let node = cx.node_calls(&disk).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "before").await?;
    let new = 2 * cx.size(&disk);
    if let Some(on_node) = grows_by_controller(cx, &node, new).await? {
        device_has_grown(cx, &node, on_node, new).await?;
    }
    node.tear_down("web").await
}

async fn device_has_grown(cx: &Cx, node: &NodeCalls, on_node: bool, new: u64) -> Result {
    let target = node.target("web");
    if on_node && !grows_by_node(cx, node, new).await? {
        cx.not_tried("DRV-080", "the node service answered FailedPrecondition");
        return Ok(());
    }
    let method = if on_node { "NodeExpandVolume" } else { "ControllerExpandVolume" };
    let cause = format!("{method} answered OK, and the device is smaller than was asked for.");
    cx.keeps("DRV-080", method, node.device_size(&target).await? >= new, &cause)?;
    cx.keeps("DRV-160", method, node.has_copied(&target, node, "before").await?, LOST)
}

/// A read-only target stays read-only when the node has expanded its volume.
///
/// CSI, NodePublishVolumeRequest.readonly: "SP MUST publish the volume in readonly mode".
#[case(needs = [Expands, Filesystem, Creates, Root, Persistent], driver = Shared)]
async fn read_only_target_stays_so_when_it_grows(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let new = 2 * cx.size(&data);
    let on_node = grows_by_controller(cx, &node, new).await?;
    node.attach_again().await?;
    node.stage().await?.succeeds()?;
    node.publish_as("web", set_read_only).await?.succeeds()?;
    node.is_published("web")?;
    let target = node.target("web");
    // A volume that can be written from the start breaks the promise without any expansion.
    let was_read_only = !can_write(&target);
    if on_node == Some(true) && cx.grows_on_node() {
        // It may refuse to: what counts is what the target is afterwards.
        drop(node.grow_on_node("web", new).await?);
    }
    let cause = "A read-only target can be written after its volume was expanded.";
    cx.keeps("DRV-050", "NodeExpandVolume", !was_read_only || !can_write(&target), cause)?;
    node.tear_down("web").await
}

/// Expanding a volume to its current size or to a smaller one is OK.
///
/// CSI, ControllerExpandVolume, NodeExpandVolume: a plugin SHOULD answer OK if the volume is as large already.
#[case(needs = [Expands, Filesystem, Creates, Root], driver = Shared)]
async fn growth_to_a_size_that_is_reached_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let (old, new) = (cx.size(&data), 2 * cx.size(&data));
    let Some(on_node) = grows_by_controller(cx, &node, new).await? else { return Ok(()) };
    for (size, asked) in
        [(new, "to the size that the volume has"), (old, "to a size that the volume exceeds")]
    {
        let again = node.grow(size).await?.asked(asked);
        again.is("DRV-083", &["OK"])?;
        if !again.is_ok() {
            // A driver that refuses one of the two refuses the other for the same reason.
            break;
        }
        // Expanding to a smaller size does not shrink the volume. A driver that said of no volume how large it is holds
        // no size that it could repeat.
        let cause = format!("ControllerExpandVolume {asked} answered OK and a smaller capacity.");
        let is_stated = states_a_size(cx)?;
        cx.keeps("DRV-082", "ControllerExpandVolume", !is_stated || capacity(&again) >= new, &cause)?;
    }
    node.attach_again().await?;
    node.set_up("web").await?;
    if on_node && cx.grows_on_node() && node.grow_on_node("web", new).await?.is_ok() {
        let again = node.grow_on_node("web", new).await?.asked("to the size that the volume has");
        again.is("DRV-083", &["OK"])?;
        // It may refuse to: what counts is the size of the volume afterwards.
        drop(node.grow_on_node("web", old).await?);
        let mut sizes = cx.descriptions_of(&data).await?.into_iter().map(|volume| size_of(&volume));
        let is_kept = sizes.all(|size| size == 0 || size >= new);
        let cause =
            "NodeExpandVolume to a size that the volume exceeds made the controller report a smaller volume.";
        cx.keeps("DRV-111", "NodeExpandVolume", is_kept, cause)?;
    }
    node.tear_down("web").await
}

/// A volume that grows within a limit is no larger than it.
///
/// CSI, CapacityRange.limit_bytes: "Volume MUST not be bigger than this."
#[case(needs = [Expands, Filesystem, Creates], driver = Shared)]
async fn growth_stays_within_its_limit(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let size = 2 * cx.size(&data);
    let mut request = node.grow_request(size);
    request["capacityRange"]["limitBytes"] = json!(size.to_string());
    let answer = cx.call("ControllerExpandVolume", request).await?;
    if matches!(answer.code(), "OutOfRange" | "ResourceExhausted") {
        cx.not_tried("DRV-082", "the driver does not make a volume of exactly twice the size");
        return Ok(());
    }
    answer.succeeds()?;
    let cause = "ControllerExpandVolume with `limit_bytes` answered OK and a larger capacity.";
    cx.keeps("DRV-082", "ControllerExpandVolume", capacity(&answer) <= size, cause)
}

/// Expansion to an impossible size is OUT_OF_RANGE.
///
/// CSI, ControllerExpandVolume: OUT_OF_RANGE if the plugin does not allow the capacity range.
#[case(needs = [Expands, Filesystem, Creates], driver = Shared)]
async fn impossible_growth_is_refused(cx: &mut Cx) -> Result {
    /// 4 EiB: more than any machine has.
    const TOO_LARGE: u64 = 1 << 62;
    let data = cx.volume("data").create().await?;
    let (created, told) = (cx.last_request("CreateVolume")?, cx.last_answer("CreateVolume")?);
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let mut within = node.grow_request(2 * cx.size(&data));
    within["capacityRange"]["limitBytes"] = json!((cx.size(&data) + 4096).to_string());
    let answer = cx.call("ControllerExpandVolume", within).await?;
    let answer = answer.asked("with a limit below what is required");
    answer.is("DRV-140", &["OutOfRange", "InvalidArgument"])?;
    if !states_a_size(cx)? {
        // It may not know how much its storage has.
        return Ok(());
    }
    let answer = node.grow(TOO_LARGE).await?.asked("to more bytes than there are");
    answer.is("DRV-140", &["OutOfRange", "ResourceExhausted"])?;
    // What was refused has changed nothing, and keeps nothing.
    let again = cx.call("CreateVolume", created).await?;
    let again = again.asked("of a volume whose growth was refused");
    again.is("DRV-010", &["OK"])?;
    let cause = "CreateVolume of a volume whose growth was refused answered another capacity than before.";
    let is_same = again.part("/volume/capacityBytes") == told["volume"]["capacityBytes"];
    cx.keeps("DRV-010", "CreateVolume", is_same, cause)?;
    let answer = node.grow(2 * cx.size(&data)).await?;
    let cause = "ControllerExpandVolume is ABORTED after one that was refused for its size.";
    cx.keeps("DRV-130", "ControllerExpandVolume", answer.code() != "Aborted", cause)
}

/// NodeExpandVolume without a capacity range is OK after the controller has expanded the volume.
///
/// CSI, NodeExpandVolumeRequest.capacity_range: this field is OPTIONAL.
#[case(needs = [Expands, Filesystem, Creates, Root], driver = Shared)]
async fn growth_on_the_node_without_a_range_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let new = 2 * cx.size(&data);
    let Some(on_node) = grows_by_controller(cx, &node, new).await? else { return Ok(()) };
    node.attach_again().await?;
    node.set_up("web").await?;
    if on_node && cx.grows_on_node() && node.grow_on_node("web", new).await?.is_ok() {
        let mut request = node.grow_on_node_request("web", new);
        if let Some(fields) = request.as_object_mut() {
            fields.remove("capacityRange");
        }
        let answer = cx.call("NodeExpandVolume", request).await?.asked("without a capacity range");
        answer.is("DRV-028", &["OK"])?;
    }
    node.tear_down("web").await
}

/// Expanding an unknown volume is NOT_FOUND.
///
/// CSI, ControllerExpandVolume, NodeExpandVolume: NOT_FOUND if the volume does not exist.
#[case(needs = [Expands, Filesystem, Creates, Root], driver = Shared)]
async fn growth_of_an_unknown_volume_is_not_found(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let (unknown, codes) = cx.unknown_volume();
    let mut request = node.grow_request(2 * cx.size(&data));
    request["volumeId"] = json!(unknown);
    let answer = cx.call("ControllerExpandVolume", request).await?;
    answer.asked("of a volume that does not exist").is("DRV-099", codes)?;
    if !cx.grows_on_node() {
        return Ok(());
    }
    node.set_up("web").await?;
    let mut request = node.grow_on_node_request("web", cx.size(&data));
    request["volumeId"] = json!(unknown);
    let answer = cx.call("NodeExpandVolume", request).await?;
    answer.asked("of a volume that does not exist").is("DRV-099", codes)?;
    node.tear_down("web").await
}

/// Expanding a volume without a required field is INVALID_ARGUMENT.
///
/// CSI, ControllerExpandVolume, NodeExpandVolume: volume_id, capacity_range and volume_path are REQUIRED.
#[case(needs = [Expands, Filesystem, Creates, Root], judges = ["DRV-090"], driver = Shared)]
async fn growth_without_a_field_is_invalid_argument(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let request = node.grow_request(2 * cx.size(&data));
    cx.requires("ControllerExpandVolume", &request, &["volumeId", "capacityRange"]).await?;
    if !cx.grows_on_node() {
        return Ok(());
    }
    node.set_up("web").await?;
    let request = node.grow_on_node_request("web", cx.size(&data));
    cx.requires("NodeExpandVolume", &request, &["volumeId", "volumePath"]).await?;
    node.tear_down("web").await
}

/// ControllerExpandVolume that is repeated before the node has expanded the volume answers that the node must, as before.
///
/// CSI, ControllerExpandVolumeResponse.node_expansion_required: whether node expansion is required for the volume.
#[case(needs = [Expands, Filesystem, Creates], driver = Shared)]
async fn repeated_growth_needs_the_node_again(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let size = 2 * cx.size(&data);
    let Some(on_node) = grows_by_controller(cx, &node, size).await? else { return Ok(()) };
    let again = node.grow(size).await?.asked("that was made already");
    again.is("DRV-083", &["OK"])?;
    // A driver that refuses the repeated call answers nothing about the node.
    let still = !again.is_ok() || again.part("/nodeExpansionRequired") == json!(true);
    let cause = "ControllerExpandVolume that was repeated answered that the node need not expand the volume, and the node has not.";
    cx.keeps("DRV-081", "ControllerExpandVolume", still || !on_node, cause)
}

/// A volume that is staged and not yet published is expanded at its staging path.
///
/// CSI, NodeExpandVolume: it MAY be called before or after NodePublishVolume, on the path where the volume is staged.
#[case(needs = [Expands, ExpandsOnNode, StageUnstage, Filesystem, Creates, Root], driver = Shared)]
async fn staged_volume_grows_at_its_staging_path(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let size = 2 * cx.size(&data);
    let Some(on_node) = grows_by_controller(cx, &node, size).await? else { return Ok(()) };
    if !on_node {
        cx.not_tried("DRV-081", "the controller service expands volumes alone");
        return Ok(());
    }
    node.attach_again().await?;
    node.stage().await?.succeeds()?;
    let mut request = node.grow_on_node_request("web", size);
    request["volumePath"] = json!(node.staging());
    let answer = cx.call("NodeExpandVolume", request).await?;
    node.undo_stage().await?;
    answer
        .asked("at the staging path of a volume that is not published")
        .is("DRV-081", &["OK", "FailedPrecondition"])
}

/// A volume that grows within a larger limit has the size that ControllerExpandVolume answered.
///
/// CSI, ControllerExpandVolumeResponse.capacity_bytes: the capacity of the volume after expansion.
#[case(needs = [Expands, Filesystem, Creates], driver = Shared)]
async fn size_within_a_larger_limit_is_that_of_the_volume(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let created = cx.last_request("CreateVolume")?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let mut request = node.grow_request(2 * cx.size(&data));
    request["capacityRange"]["limitBytes"] = json!((4 * cx.size(&data)).to_string());
    let grown = cx.call("ControllerExpandVolume", request).await?;
    if matches!(grown.code(), "OutOfRange" | "ResourceExhausted") {
        cx.not_tried("DRV-082", "the driver does not make a volume of twice the size");
        return Ok(());
    }
    grown.succeeds()?;
    // An idempotent call says how large the volume is, also where there is no list.
    let again = cx.call("CreateVolume", created).await?;
    let has: u64 = again.text("/volume/capacityBytes").parse().unwrap_or(0);
    let cause = format!(
        "ControllerExpandVolume with a larger `limit_bytes` answered {} bytes, and CreateVolume says that the volume has {has}.",
        capacity(&grown)
    );
    cx.keeps("DRV-082", "ControllerExpandVolume", has == 0 || has >= capacity(&grown), &cause)
}

/// Whether the driver expands volumes only while they are unpublished; if so, the promise is recorded as not tried.
fn is_offline(cx: &Cx, promise: &str) -> bool {
    if !cx.grows_online() {
        cx.not_tried(promise, "the plugin does not report VolumeExpansion.ONLINE");
    }
    !cx.grows_online()
}

/// Expands a volume by the controller. Returns whether the node must follow; `None` if the driver has no volume so large.
async fn grows_by_controller(cx: &Cx, node: &NodeCalls, size: u64) -> Result<Option<bool>> {
    let answer = node.grow(size).await?;
    answer.is_implemented()?;
    if matches!(answer.code(), "OutOfRange" | "ResourceExhausted") {
        cx.not_tried("DRV-082", "the driver does not make a volume of twice the size");
        return Ok(None);
    }
    let answer = answer.asked("to twice the size");
    answer.succeeds()?;
    let cause = "ControllerExpandVolume answered OK and a smaller capacity than was asked for.";
    cx.keeps("DRV-082", "ControllerExpandVolume", capacity(&answer) >= size, cause)?;
    Ok(Some(answer.part("/nodeExpansionRequired") == json!(true)))
}

/// Expands the volume by the node at its target. Returns `false` if the driver cannot while the volume is published.
async fn grows_by_node(cx: &Cx, node: &NodeCalls, size: u64) -> Result<bool> {
    let cause = "ControllerExpandVolume answered that the node must follow, and the node service does not report EXPAND_VOLUME.";
    cx.keeps("DRV-141", "ControllerExpandVolume", cx.grows_on_node(), cause)?;
    if !cx.grows_on_node() {
        return Ok(false);
    }
    let answer = node.grow_on_node("web", size).await?;
    answer.is_implemented()?;
    if answer.code() == "FailedPrecondition" {
        return Ok(false);
    }
    let answer = answer.asked("after the controller has grown the volume");
    answer.succeeds()?;
    let cause = "NodeExpandVolume answered OK and a smaller capacity than was asked for.";
    let answered = capacity(&answer);
    cx.keeps("DRV-082", "NodeExpandVolume", answered == 0 || answered >= size, cause)?;
    Ok(true)
}

/// Whether the driver has said how large the volume is that it created last: zero means that it does not know.
fn states_a_size(cx: &Cx) -> Result<bool> {
    Ok(size_of(&cx.last_answer("CreateVolume")?["volume"]) > 0)
}

fn capacity(answer: &Answer) -> u64 {
    answer.text("/capacityBytes").parse().unwrap_or(0)
}

/// Checks that the file system has grown by at least half of the expansion: its own metadata may take the rest.
async fn has_grown(
    cx: &Cx,
    node: &NodeCalls,
    method: &str,
    before: FileSystem,
    (old, new): (u64, u64),
) -> Result {
    if before.bytes > old {
        cx.not_tried("DRV-081", "the volume is a part of a larger file system");
        return Ok(());
    }
    let after = node.file_system(&node.target("web")).await?;
    let cause = format!("{method} answered OK, and the file system has not grown.");
    cx.keeps("DRV-081", method, after.bytes >= before.bytes + (new - old) / 2, &cause)
}
