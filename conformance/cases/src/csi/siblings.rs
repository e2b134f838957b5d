//! Several volumes or snapshots: each has an id of its own, and a call for one does not change the others.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{check_ids_differ_for_similar_names, write_and_detach};
use crate::prelude::*;

/// DeleteVolume of one volume leaves the data of the others, and they can still be used.
///
/// CSI, Volume.volume_id: it identifies this volume uniquely among all others of the plugin.
#[case(needs = [Creates, Filesystem, Root, Persistent, TwoVolumes], driver = Shared)]
async fn deleted_volume_leaves_the_others(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let kept = cx.node_calls(&two).await?;
    kept.set_up("web").await?;
    kept.writes(&kept.target("web"), "kept").await?;
    cx.delete_volume(&one).await?.succeeds()?;
    let cause = "DeleteVolume of one volume took away what another holds.";
    let has = kept.has(&kept.target("web"), "kept").await?;
    cx.keeps("DRV-112", "DeleteVolume", has, cause)?;
    kept.tear_down("web").await?;
    let again = [kept.stage().await?, kept.publish("web").await?];
    let cause = "After DeleteVolume of one volume another cannot be used.";
    cx.keeps("DRV-112", "DeleteVolume", again.iter().all(Answer::is_ok), cause)?;
    kept.tear_down("web").await
}

/// Two volumes of names that are alike, and the request for the second.
struct Pair {
    first: Answer,
    second: Answer,
    request: Value,
}

/// The ends of two names, the first of which begins the second.
const LONGER: [&str; 2] = ["", "-and-more"];

/// Creates such a pair; `None`, and nothing stays, if the driver does not make both.
async fn pair_of_names(cx: &Cx, ends: [&str; 2]) -> Result<Option<Pair>> {
    let mut request = cx.create_request("n")?;
    let name = request["name"].as_str().unwrap_or_default().to_owned();
    let named = |end| json!(format!("{name}{end}"));
    request["name"] = named(ends[0]);
    let first = cx.call("CreateVolume", request.clone()).await?;
    request["name"] = named(ends[1]);
    let second = cx.call("CreateVolume", request.clone()).await?;
    if first.is_ok() && second.is_ok() {
        return Ok(Some(Pair { first, second, request }));
    }
    cx.delete_created(&first).await?;
    cx.delete_created(&second).await?;
    Ok(None)
}

/// DeleteVolume of a volume leaves another one whose name has the same part before a slash, with what is in it.
///
/// CSI, Volume.volume_id: it identifies this volume uniquely among all others of the plugin. CreateVolumeRequest.name: a slash
/// is allowed.
#[case(needs = [Creates, Filesystem, Root, Persistent, TwoVolumes], driver = Shared)]
async fn deleted_volume_leaves_one_with_the_same_part_before_a_slash(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let Some(Pair { first, second, .. }) = pair_of_names(cx, ["/a", "/b"]).await? else {
        cx.not_tried("DRV-112", "the driver makes no volumes whose names have a slash");
        return Ok(());
    };
    let other = cx.node_calls_of(&second, &data).await?;
    other.set_up("web").await?;
    other.writes(&other.target("web"), "kept").await?;
    other.tear_down("web").await?;
    cx.delete_created(&first).await?;
    let is_kept = other.refusal("web").await?.is_none() && other.has(&other.target("web"), "kept").await?;
    drop(other.unpublish("web").await?);
    drop(other.unstage().await?);
    other.detach().await?;
    cx.delete_created(&second).await?;
    let cause =
        "DeleteVolume of one volume deleted another one, whose name has the same part before a slash.";
    cx.keeps("DRV-112", "DeleteVolume", is_kept, cause)
}

/// DeleteVolume of a volume leaves another one whose name begins with the name of the deleted one.
///
/// CSI, Volume.volume_id: it identifies this volume uniquely among all others of the plugin.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn deleted_volume_leaves_one_with_a_longer_name(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let Some(Pair { first: short, second: long, request }) = pair_of_names(cx, LONGER).await? else {
        cx.not_tried("DRV-112", "the driver does not make several volumes");
        return Ok(());
    };
    cx.delete_created(&short).await?;
    let asked = json!({
        "volumeId": long.part("/volume/volumeId"), "volumeContext": long.part("/volume/volumeContext"),
        "volumeCapabilities": request["volumeCapabilities"],
    });
    let found = cx.call("ValidateVolumeCapabilities", asked).await?;
    cx.delete_created(&long).await?;
    let cause = "DeleteVolume of one volume deleted another one, whose name begins with its name.";
    cx.keeps("DRV-112", "DeleteVolume", found.code() != "NotFound", cause)
}

/// DeleteVolume of a volume leaves the snapshots of another one whose name begins with the name of the deleted one.
///
/// CSI, Snapshot.snapshot_id: it identifies this snapshot uniquely among all others of the plugin.
#[case(needs = [Snapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn deleted_volume_leaves_snapshots_of_one_with_a_longer_name(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let Some(Pair { first: short, second: long, mut request }) = pair_of_names(cx, LONGER).await? else {
        cx.not_tried("DRV-112", "the driver does not make several volumes");
        return Ok(());
    };
    let source = long.part("/volume/volumeId");
    let mut taken = json!({ "name": format!("{}-taken", request["name"].as_str().unwrap_or_default()) });
    taken["sourceVolumeId"] = source;
    let snapshot = cx.take("CreateSnapshot", taken).await?;
    snapshot.succeeds()?;
    cx.delete_created(&short).await?;
    request["name"] = json!(format!("{}-restored", request["name"].as_str().unwrap_or_default()));
    let id = snapshot.part("/snapshot/snapshotId");
    request["volumeContentSource"] = json!({ "snapshot": { "snapshotId": id } });
    let restored = cx.call("CreateVolume", request).await?;
    cx.delete_created(&restored).await?;
    cx.delete_snapshot(snapshot.text("/snapshot/snapshotId")).await?.succeeds()?;
    cx.delete_created(&long).await?;
    let cause =
        "DeleteVolume of one volume deleted a snapshot of another one, whose name begins with its name.";
    cx.keeps("DRV-112", "DeleteVolume", restored.code() != "NotFound", cause)
}

/// DeleteSnapshot of one snapshot leaves the other snapshots of its volume.
///
/// CSI, Snapshot.snapshot_id: it identifies this snapshot uniquely among all others of the plugin.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn deleted_snapshot_leaves_the_others(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (one, two) = (cx.snapshot("one", &data).await?, cx.snapshot("two", &data).await?);
    cx.delete_snapshot(&one.id).await?.succeeds()?;
    let restored = cx.volume("copy").restored_from(&two).create_if_supported().await?;
    let cause = "After DeleteSnapshot of one snapshot no volume can be made from another one of its volume.";
    cx.keeps("DRV-112", "DeleteSnapshot", restored.is_ok(), cause)
}

/// DeleteSnapshot of a snapshot whose name reads as a pattern leaves the snapshot whose name the pattern matches.
///
/// CSI, Snapshot.snapshot_id: it identifies this snapshot uniquely among all others of the plugin. CreateSnapshotRequest.name:
/// brackets are allowed.
#[case(needs = [Snapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn deleted_snapshot_leaves_one_that_its_name_matches(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let mut request = cx.snapshot_request("n", &data);
    let name = request["name"].as_str().unwrap_or_default().to_owned();
    request["name"] = json!(format!("{name}[1]"));
    let pattern = cx.take("CreateSnapshot", request.clone()).await?;
    if !pattern.is_ok() {
        cx.not_tried("DRV-112", "the driver takes no snapshot whose name has brackets");
        return Ok(());
    }
    request["name"] = json!(format!("{name}1"));
    let matched = cx.take("CreateSnapshot", request).await?;
    matched.succeeds()?;
    cx.delete_snapshot(pattern.text("/snapshot/snapshotId")).await?.succeeds()?;
    let mut restore = cx.create_request("copy")?;
    let id = matched.part("/snapshot/snapshotId");
    restore["volumeContentSource"] = json!({ "snapshot": { "snapshotId": id } });
    let restored = cx.call("CreateVolume", restore).await?;
    cx.delete_created(&restored).await?;
    let cause =
        "DeleteSnapshot of one snapshot deleted another one, whose name its name matches as a pattern.";
    cx.keeps("DRV-112", "DeleteSnapshot", restored.code() != "NotFound", cause)
}

/// Snapshots whose names differ only in their case, or of which one begins the other, have different ids.
///
/// CSI, Snapshot.snapshot_id: it MUST identify this snapshot uniquely among all others of the plugin.
#[case(needs = [Snapshots, Creates, Filesystem], judges = ["DRV-186"], driver = Shared)]
async fn names_that_differ_are_different_snapshots(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let request = cx.snapshot_request("n", &data);
    check_ids_differ_for_similar_names(cx, "CreateSnapshot", request, "/snapshot/snapshotId").await
}

/// A snapshot that is taken after another was deleted has an id that no other snapshot has.
///
/// CSI, Snapshot.snapshot_id: it MUST identify this snapshot uniquely among all others of the plugin.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn id_of_a_new_snapshot_is_not_that_of_another(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (one, two) = (cx.snapshot("one", &data).await?, cx.snapshot("two", &data).await?);
    cx.delete_snapshot(&one.id).await?.succeeds()?;
    let three = cx.take("CreateSnapshot", cx.snapshot_request("three", &data)).await?;
    three.succeeds()?;
    let is_its_own = three.text("/snapshot/snapshotId") != two.id;
    let cause = "CreateSnapshot answered for a new snapshot the id of another one.";
    cx.keeps("DRV-186", "CreateSnapshot", is_its_own, cause)
}

/// A volume that is restored from a snapshot has nothing of another snapshot, whose name begins with that of the first.
///
/// CSI, CreateVolume: the volume has the data of the snapshot when it is presented by NodePublishVolume.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn snapshots_with_names_that_begin_alike_are_not_mixed_up(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let (first, second) =
        (write_and_detach(cx, &one, "first").await?, write_and_detach(cx, &two, "second").await?);
    let mut longer = cx.snapshot_request("n", &one);
    longer["name"] = json!(format!("{}-and-more", longer["name"].as_str().unwrap_or_default()));
    cx.take("CreateSnapshot", longer).await?.succeeds()?;
    let short = cx.snapshot("n", &two).await?;
    let copy = cx.volume("copy").restored_from(&short).create().await?;
    let restored = cx.node_calls(&copy).await?;
    restored.set_up("web").await?;
    let at = restored.target("web");
    let has = [
        restored.has_copied(&at, &first, "first").await?,
        restored.has_copied(&at, &second, "second").await?,
    ];
    let cause =
        "A volume that was restored from a snapshot has what is in another one, whose name begins alike.";
    cx.keeps("DRV-014", "CreateVolume", has == [false, true], cause)?;
    restored.tear_down("web").await
}

/// Two devices on one node show what was written to each of them.
///
/// CSI, NodePublishVolume: the block device of this volume is at the target.
#[case(needs = [Block, Root, Loop, Persistent, TwoVolumes], driver = Shared)]
async fn devices_are_not_mixed_up(cx: &mut Cx) -> Result {
    let one = cx.node_calls(&cx.volume("one").block().create().await?).await?;
    let two = cx.node_calls(&cx.volume("two").block().create().await?).await?;
    one.set_up("web").await?;
    two.set_up("web").await?;
    one.writes(&one.target("web"), "of-one").await?;
    two.writes(&two.target("web"), "of-two").await?;
    let has = [one.has(&one.target("web"), "of-one").await?, two.has(&two.target("web"), "of-two").await?];
    let cause = "Of two devices at their targets one shows what was written to the other.";
    cx.keeps("DRV-051", "NodePublishVolume", has == [true, true], cause)?;
    one.tear_down("web").await?;
    two.tear_down("web").await?;

    // This time both are staged before either is published.
    one.stage().await?.succeeds()?;
    two.stage().await?.succeeds()?;
    two.publish("web").await?.succeeds()?;
    one.publish("web").await?.succeeds()?;
    let has = [one.has(&one.target("web"), "of-one").await?, two.has(&two.target("web"), "of-two").await?];
    let cause = "Of two devices that were staged and then published one shows what was written to the other.";
    cx.keeps("DRV-051", "NodePublishVolume", has == [true, true], cause)?;
    one.tear_down("web").await?;
    two.tear_down("web").await
}

/// A volume that was unstaged can be staged at another path.
///
/// CSI, NodeUnstageVolume: this RPC MUST undo the work by the corresponding NodeStageVolume.
#[case(needs = [Filesystem, StageUnstage, Root], driver = Shared)]
async fn unstaged_volume_is_staged_elsewhere(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    node.undo_stage().await?;
    let elsewhere = node.staging().with_file_name("elsewhere");
    std::fs::create_dir_all(&elsewhere)?;
    let mut request = node.stage_request();
    request["stagingTargetPath"] = json!(elsewhere);
    let staged = cx.call("NodeStageVolume", request).await?;
    let undo = json!({ "volumeId": node.handle(), "stagingTargetPath": elsewhere });
    cx.call("NodeUnstageVolume", undo).await?.succeeds()?;
    let cause = format!(
        "NodeStageVolume of a volume that was unstaged from another path answered {}.",
        staged.code()
    );
    cx.keeps("DRV-070", "NodeUnstageVolume", staged.is_ok(), &cause)
}

/// A volume is published at a target whose path is the beginning of that of another target, where it is published already.
///
/// CSI, NodePublishVolumeRequest.target_path: the path to which the volume will be published.
#[case(needs = [Filesystem, Shared, Root, Persistent], driver = Shared)]
async fn volume_is_published_beside_a_longer_path(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    if cx.driver_stages() {
        node.stage().await?.succeeds()?;
    }
    let longer = published_at_a_longer_path(cx, &node).await?;
    let published = node.publish("web").await?;
    let is_there = !node.mounts_at(&node.target("web"))?.is_empty() || node.mounts_at(&longer)?.is_empty();
    unpublished(cx, &node, &longer).await?;
    let cause = format!(
        "NodePublishVolume at a target whose path begins that of another target of the volume answered {}.",
        published.code()
    );
    cx.keeps("DRV-092", "NodePublishVolume", published.is_ok(), &cause)?;
    let cause = "NodePublishVolume answered OK and mounted nothing at a target whose path begins that of another target.";
    cx.keeps("DRV-055", "NodePublishVolume", is_there, cause)?;
    node.tear_down("web").await
}

/// A target stays when one is unpublished whose path is the beginning of its own.
///
/// CSI, NodeUnpublishVolumeRequest.target_path: the path at which the volume was published.
#[case(needs = [Filesystem, Shared, Root, Persistent], driver = Shared)]
async fn target_with_a_longer_path_stays(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let longer = published_at_a_longer_path(cx, &node).await?;
    node.undo_publish("web").await?;
    let is_there = !node.mounts_at(&longer)?.is_empty();
    unpublished(cx, &node, &longer).await?;
    let cause = "NodeUnpublishVolume of one target unmounted another, whose path begins with it.";
    cx.keeps("DRV-063", "NodeUnpublishVolume", is_there, cause)?;
    node.undo_stage().await
}

/// A target is unmounted although one was unpublished before whose path is the beginning of its own.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(needs = [Filesystem, Shared, Root, Persistent], driver = Shared)]
async fn target_with_a_longer_path_is_unpublished(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    let longer = published_at_a_longer_path(cx, &node).await?;
    node.publish("web").await?.succeeds()?;
    node.undo_publish("web").await?;
    unpublished(cx, &node, &longer).await?;
    let cause = "A target stays mounted, though NodeUnpublishVolume answered OK, since one whose path is the beginning of its own was unpublished before.";
    cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&longer)?.is_empty(), cause)?;
    node.undo_stage().await
}

/// Publishes a volume at a target whose path begins with that of `web`.
async fn published_at_a_longer_path(cx: &Cx, node: &NodeCalls) -> Result<PathBuf> {
    let longer = node.target("web").with_file_name("mount-and-more");
    let mut request = node.publish_request("web");
    request["targetPath"] = json!(longer);
    cx.call("NodePublishVolume", request).await?.succeeds()?;
    Ok(longer)
}

/// Unpublishes a volume at this target.
async fn unpublished(cx: &Cx, node: &NodeCalls, target: &Path) -> Result {
    let undo = json!({ "volumeId": node.handle(), "targetPath": target });
    cx.call("NodeUnpublishVolume", undo).await?.succeeds()
}
