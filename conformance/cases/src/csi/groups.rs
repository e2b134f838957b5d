//! Group snapshots: snapshots of several volumes at one point in time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{check_deletion_leaves_no_file, check_ids_differ_for_similar_names};
use crate::prelude::*;

const CREATE: &str = "CreateVolumeGroupSnapshot";
const GET: &str = "GetVolumeGroupSnapshot";

/// A group has a snapshot of each volume, and a volume that is restored from a snapshot has the data of its source.
///
/// CSI, CreateVolumeGroupSnapshot: all snapshots MUST be taken at the same point in time.
#[case(needs = [GroupSnapshots, Snapshots, Creates, Block, Root, Loop, Persistent, TwoVolumes], driver = Shared)]
async fn group_has_the_data_of_each_volume(cx: &mut Cx) -> Result {
    let one = cx.volume("one").block().create().await?;
    let two = cx.volume("two").block().create().await?;
    let mut nodes = Vec::new();
    for volume in [&one, &two] {
        let node = cx.node_calls(volume).await?;
        node.set_up("web").await?;
        node.writes(&node.target("web"), "before").await?;
        node.tear_down("web").await?;
        node.detach().await?;
        nodes.push(node);
    }
    let group = take(cx, &[&one, &two]).await?;
    for node in &nodes {
        node.attach_again().await?;
        node.set_up("web").await?;
        let cause = "A volume has lost what was in it when a snapshot of its group was taken.";
        cx.keeps("DRV-160", CREATE, node.has(&node.target("web"), "before").await?, cause)?;
        node.tear_down("web").await?;
        node.detach().await?;
    }
    let snapshots = members(&group);
    for (volume, node, name) in [(&one, &nodes[0], "copy-of-one"), (&two, &nodes[1], "copy-of-two")] {
        let is_of_volume = |member: &&Value| member["sourceVolumeId"] == json!(cx.handle(volume));
        let id = snapshots.iter().find(is_of_volume).and_then(|member| member["snapshotId"].as_str());
        let cause = "The group has no snapshot of one of its volumes.";
        cx.keeps("DRV-038", CREATE, id.is_some(), cause)?;
        let (id, said) = (id.unwrap_or_default().to_owned(), Value::Null);
        let snapshot = Snapshot { id, size: cx.size(volume), said };
        let copy = cx.volume(name).block().restored_from(&snapshot).create().await?;
        let copied = cx.node_calls(&copy).await?;
        copied.set_up("copy").await?;
        let cause = "A snapshot of the group does not have the data of its volume.";
        let has = copied.has_copied(&copied.target("copy"), node, "before").await?;
        cx.keeps("DRV-038", CREATE, has, cause)?;
        copied.tear_down("copy").await?;
    }
    Ok(())
}

/// CreateVolumeGroupSnapshot answers the group's id, its creation time and its snapshots, and each snapshot names the
/// group.
///
/// CSI, VolumeGroupSnapshot: group_snapshot_id, snapshots, creation_time and ready_to_use are REQUIRED.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn group_describes_itself(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    let id = group.text("/groupSnapshot/groupSnapshotId");
    cx.keeps("DRV-154", CREATE, !id.is_empty(), "CreateVolumeGroupSnapshot answered a group without an id.")?;
    let cause = "CreateVolumeGroupSnapshot answered no time at which the group was taken.";
    cx.keeps("DRV-154", CREATE, group.has("/groupSnapshot/creationTime"), cause)?;
    let snapshots = members(&group);
    let sources: BTreeSet<&str> =
        snapshots.iter().filter_map(|member| member["sourceVolumeId"].as_str()).collect();
    let (one, two) = (cx.handle(&one), cx.handle(&two));
    let cause = "CreateVolumeGroupSnapshot did not answer exactly one snapshot of each volume.";
    let is_complete = snapshots.len() == 2 && sources == BTreeSet::from([one.as_str(), two.as_str()]);
    cx.keeps("DRV-038", CREATE, is_complete, cause)?;
    let names_group = |member: &Value| member["groupSnapshotId"] == json!(id);
    let cause = "A snapshot in the answer of CreateVolumeGroupSnapshot names no group, or another.";
    cx.keeps("DRV-154", CREATE, snapshots.iter().all(names_group), cause)?;
    let is_ready = |snapshot: &Value| snapshot["readyToUse"] == json!(true);
    let cause =
        "CreateVolumeGroupSnapshot answered that the group is ready, but one of its snapshots is not.";
    let all_ready = snapshots.iter().all(is_ready);
    cx.keeps("DRV-154", CREATE, all_ready || !is_ready(&group.part("/groupSnapshot")), cause)?;
    let asked = json!({ "groupSnapshotId": id, "snapshotIds": ids(&group) });
    let now = cx.call(GET, asked).await?;
    let cause = "All snapshots of a group are ready to use, and GetVolumeGroupSnapshot answers that the group is not.";
    let all_ready = now.is_ok() && members(&now).iter().all(is_ready);
    cx.keeps("DRV-154", GET, !all_ready || is_ready(&now.part("/groupSnapshot")), cause)
}

/// A repeated CreateVolumeGroupSnapshot answers the same group; the same name with other volumes is ALREADY_EXISTS.
///
/// CSI, CreateVolumeGroupSnapshot: the group snapshot MUST only be created once; ALREADY_EXISTS for other volumes.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn repeated_group_is_the_same(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let first = take(cx, &[&one, &two]).await?;
    let again = cx.take(CREATE, request(cx, &[&one, &two])).await?;
    let again = again.asked("of the same name and volumes");
    again.is("DRV-153", &["OK"])?;
    let cause = "CreateVolumeGroupSnapshot of the same name and volumes answered another group.";
    let id = "/groupSnapshot/groupSnapshotId";
    cx.keeps("DRV-153", CREATE, again.text(id) == first.text(id), cause)?;
    let cause = "CreateVolumeGroupSnapshot of the same name and volumes answered other snapshots.";
    cx.keeps("DRV-153", CREATE, ids(&again) == ids(&first), cause)?;
    let turned = cx.take(CREATE, request(cx, &[&two, &one])).await?;
    turned.asked("of the same name, for the same volumes in another order,").is("DRV-153", &["OK"])?;
    let answer = cx.take(CREATE, request(cx, &[&one])).await?;
    answer.asked("of the same name for other volumes").is("DRV-153", &["AlreadyExists"])
}

/// A repeated CreateVolumeGroupSnapshot describes the group and each of its snapshots as the first time.
///
/// CSI, CreateVolumeGroupSnapshot: the group snapshot MUST only be created once, and the answer describes it.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn repeated_group_is_described_as_before(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let first = take(cx, &[&one, &two]).await?;
    let again = take(cx, &[&one, &two]).await?;
    for field in ["sourceVolumeId", "creationTime", "groupSnapshotId"] {
        let cause = format!(
            "CreateVolumeGroupSnapshot that was repeated answered another `{field}` of a snapshot than before."
        );
        cx.keeps("DRV-153", CREATE, of_each(&again, field) == of_each(&first, field), &cause)?;
    }
    let is_ready = |group: &Answer| group.part("/groupSnapshot/readyToUse") == json!(true);
    let cause = "CreateVolumeGroupSnapshot that was repeated answered that the group is not ready, after it had been.";
    cx.keeps("DRV-154", CREATE, is_ready(&again) || !is_ready(&first), cause)
}

/// Groups whose names differ only in their case, or of which one begins the other, have different ids.
///
/// CSI, VolumeGroupSnapshot.group_snapshot_id: it MUST identify this group uniquely among all others of the plugin.
#[case(needs = [GroupSnapshots, Creates, Filesystem], judges = ["DRV-186"], driver = Shared)]
async fn names_that_differ_are_different_groups(cx: &mut Cx) -> Result {
    let one = cx.volume("one").create().await?;
    let asked = request(cx, &[&one]);
    check_ids_differ_for_similar_names(cx, CREATE, asked, "/groupSnapshot/groupSnapshotId").await
}

/// GetVolumeGroupSnapshot answers a group with all its snapshots, and NOT_FOUND for a group that does not exist.
///
/// CSI, GetVolumeGroupSnapshot: current information; NOT_FOUND if the group snapshot does not exist.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn group_is_gotten_whole(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    let asked = json!({
        "groupSnapshotId": group.text("/groupSnapshot/groupSnapshotId"),
        "snapshotIds": ids(&group),
    });
    let answer = cx.call(GET, asked).await?.asked("of an existing group");
    answer.is("DRV-038", &["OK"])?;
    let cause = "GetVolumeGroupSnapshot answered other snapshots than CreateVolumeGroupSnapshot did.";
    cx.keeps("DRV-038", GET, ids(&answer) == ids(&group), cause)?;
    let cause = "GetVolumeGroupSnapshot answered another creation_time than CreateVolumeGroupSnapshot did.";
    let time = "/groupSnapshot/creationTime";
    cx.keeps("DRV-154", GET, answer.text(time) == group.text(time), cause)?;
    let id = "/groupSnapshot/groupSnapshotId";
    let cause = "GetVolumeGroupSnapshot answered another group than it was asked for.";
    cx.keeps("DRV-154", GET, answer.text(id) == group.text(id), cause)?;
    for field in ["sourceVolumeId", "creationTime", "groupSnapshotId", "sizeBytes"] {
        let cause = format!(
            "GetVolumeGroupSnapshot answered another `{field}` of a snapshot than CreateVolumeGroupSnapshot did."
        );
        cx.keeps("DRV-154", GET, of_each(&answer, field) == of_each(&group, field), &cause)?;
    }
    let unknown = json!({ "groupSnapshotId": "no-such-group", "snapshotIds": ids(&group) });
    let answer = cx.call(GET, unknown).await?.asked("of a group that does not exist");
    answer.is("DRV-155", &["NotFound"])
}

/// A group that was taken before the driver was killed is known afterwards.
///
/// Kubernetes: a driver is replaced with each update, and its groups are kept for long.
#[case(needs = [GroupSnapshots, Creates, Filesystem, OwnProcess])]
async fn group_outlives_a_restart(cx: &mut Cx) -> Result {
    let one = cx.volume("one").create().await?;
    let group = take(cx, &[&one]).await?;
    cx.driver().restart().await?;
    let id = group.part("/groupSnapshot/groupSnapshotId");
    let answer = cx.call(GET, json!({ "groupSnapshotId": id, "snapshotIds": ids(&group) })).await?;
    answer.asked("of a group that was taken before a restart").is("DRV-095", &["OK"])
}

/// A snapshot of a group is not deleted alone.
///
/// CSI, DeleteSnapshot: INVALID_ARGUMENT if the snapshot is part of a group.
#[case(needs = [GroupSnapshots, Snapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn member_of_a_group_is_not_deleted_alone(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    let member = ids(&group).first().cloned().unwrap_or_default();
    let answer = cx.call("DeleteSnapshot", json!({ "snapshotId": member })).await?;
    answer.asked("of a snapshot that names its group").is("DRV-158", &["InvalidArgument"])
}

/// A snapshot of a group is not deleted alone after a restart of the driver either.
///
/// CSI, DeleteSnapshot: INVALID_ARGUMENT if the snapshot is part of a group.
#[case(needs = [GroupSnapshots, Snapshots, Creates, Filesystem, TwoVolumes, OwnProcess])]
async fn member_of_a_group_is_not_deleted_alone_after_a_restart(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    cx.driver().restart().await?;
    let member = ids(&group).first().cloned().unwrap_or_default();
    let answer = cx.call("DeleteSnapshot", json!({ "snapshotId": member })).await?;
    answer.asked("of a snapshot of a group, after a restart,").is("DRV-158", &["InvalidArgument"])
}

/// A snapshot of a group names its group in GetSnapshot and ListSnapshots too.
///
/// CSI, Snapshot.group_snapshot_id: the SP MUST provide it of a snapshot that must not be deleted alone.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn member_names_its_group_wherever_it_is_told(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    let id = group.part("/groupSnapshot/groupSnapshotId");
    for member in ids(&group) {
        let mut answered = Vec::new();
        if cx.controller_can("GET_SNAPSHOT") {
            let answer = cx.call("GetSnapshot", json!({ "snapshotId": member })).await?;
            answer.succeeds()?;
            answered.push(("GetSnapshot", answer.part("/snapshot")));
        }
        if cx.controller_can("LIST_SNAPSHOTS") {
            let answer = cx.call("ListSnapshots", json!({ "snapshotId": member })).await?;
            answer.succeeds()?;
            let entries = answer.list("/entries").iter().map(|entry| entry["snapshot"].clone());
            answered.extend(
                entries
                    .filter(|listed| listed["snapshotId"] == json!(member))
                    .map(|one| ("ListSnapshots", one)),
            );
        }
        for (method, snapshot) in answered {
            let cause = format!("{method} does not name the group that the snapshot is part of.");
            cx.keeps("DRV-178", method, snapshot["groupSnapshotId"] == id, &cause)?;
        }
    }
    Ok(())
}

/// A group that is asked for with other snapshots than its own is refused.
///
/// CSI, GetVolumeGroupSnapshotRequest.snapshot_ids: the SP SHOULD report an error if it detects a mismatch.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn group_with_other_snapshots_is_refused(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    let id = group.part("/groupSnapshot/groupSnapshotId");
    let asked = json!({ "groupSnapshotId": id, "snapshotIds": ["no-such-snapshot"] });
    cx.call(GET, asked)
        .await?
        .asked("with snapshots that are not those of the group")
        .is_refused("DRV-181")?;
    // As many as the group has, of which one is another.
    let mut ids: Vec<Value> = members(&group).iter().map(|member| member["snapshotId"].clone()).collect();
    ids.pop();
    ids.push(json!("no-such-snapshot"));
    let asked = json!({ "groupSnapshotId": id, "snapshotIds": ids });
    let answer = cx.call(GET, asked).await?;
    answer.asked("with snapshots of which one is not of the group").is_refused("DRV-181")
}

/// A group that is to be deleted with other snapshots than its own is refused.
///
/// CSI, DeleteVolumeGroupSnapshotRequest.snapshot_ids: the SP SHOULD report an error if it detects a mismatch.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn group_is_not_deleted_with_other_snapshots(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    let id = group.text("/groupSnapshot/groupSnapshotId");
    let answer = cx.delete_group(id, &["no-such-snapshot".to_owned()]).await?;
    answer.asked("with snapshots that are not those of the group").is_refused("DRV-181")
}

/// A group of which a volume does not exist leaves no snapshot of the others.
///
/// CSI, CreateVolumeGroupSnapshot: the SP SHOULD clean up and make sure that no snapshots are leaked.
#[case(needs = [GroupSnapshots, Creates, Filesystem, OwnProcess])]
async fn failed_group_leaves_no_snapshot(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let before = cx.driver_files()?;
    for attempt in ["one", "two"] {
        let mut asked = request(cx, &[&data]);
        asked["name"] = json!(format!("{}-{attempt}", asked["name"].as_str().unwrap_or_default()));
        asked["sourceVolumeIds"] = json!([cx.handle(&data), cx.unknown_volume().0]);
        let answer = cx.take(CREATE, asked).await?.asked("of a volume that does not exist");
        answer.is_refused("DRV-159")?;
    }
    let cause = "Each CreateVolumeGroupSnapshot that failed left a snapshot in the driver's directory.";
    cx.keeps("DRV-159", CREATE, cx.driver_files()? < before + 2, cause)
}

/// DeleteVolumeGroupSnapshot deletes the group and its snapshots, and succeeds when it is repeated.
///
/// CSI, DeleteVolumeGroupSnapshot: deletes the group as well as all individual snapshots that are part of it.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes], driver = Shared)]
async fn group_goes_as_a_whole(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    let (id, snapshots) = (group.text("/groupSnapshot/groupSnapshotId").to_owned(), ids(&group));
    let members: Vec<String> = snapshots.iter().cloned().collect();
    cx.delete_group(&id, &members).await?.succeeds()?;
    let answer = cx.call(GET, json!({ "groupSnapshotId": id, "snapshotIds": members })).await?;
    answer.asked("of a group that was deleted").is("DRV-155", &["NotFound"])?;
    for snapshot in &snapshots {
        let cause = "DeleteVolumeGroupSnapshot answered OK, but a snapshot of the group still exists.";
        if cx.controller_can("LIST_SNAPSHOTS") {
            let listed = cx.call("ListSnapshots", json!({ "snapshotId": snapshot })).await?;
            cx.keeps("DRV-038", "DeleteVolumeGroupSnapshot", listed.list("/entries").is_empty(), cause)?;
        }
        if cx.controller_can("GET_SNAPSHOT") {
            let answer = cx.call("GetSnapshot", json!({ "snapshotId": snapshot })).await?;
            cx.keeps("DRV-038", "DeleteVolumeGroupSnapshot", !answer.is_ok(), cause)?;
        }
    }
    let again = cx.delete_group(&id, &members).await?.asked("of a group that was deleted");
    again.is("DRV-142", &["OK"])
}

/// The snapshots of a group are deleted with it also when their volumes were deleted before.
///
/// CSI, DeleteVolumeGroupSnapshot: deletes the group as well as all individual snapshots that are part of it.
#[case(needs = [GroupSnapshots, Creates, Filesystem, TwoVolumes, ListsSnapshots], driver = Shared)]
async fn group_goes_after_its_volumes(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let group = take(cx, &[&one, &two]).await?;
    let snapshots = ids(&group);
    let members: Vec<String> = snapshots.iter().cloned().collect();
    for volume in [&one, &two] {
        // A driver may refuse to delete a volume that has a snapshot.
        drop(cx.delete_volume(volume).await?);
    }
    cx.delete_group(group.text("/groupSnapshot/groupSnapshotId"), &members).await?.succeeds()?;
    for snapshot in &snapshots {
        let listed = cx.call("ListSnapshots", json!({ "snapshotId": snapshot })).await?;
        let cause = "DeleteVolumeGroupSnapshot answered OK, but a snapshot of the group, whose volume was deleted before, still exists.";
        cx.keeps("DRV-038", "DeleteVolumeGroupSnapshot", listed.list("/entries").is_empty(), cause)?;
    }
    Ok(())
}

/// A deleted group leaves no file in the driver's directory.
///
/// CSI, DeleteVolumeGroupSnapshot: a file of a group that is in no books any more cannot be deleted by a call.
#[case(needs = [GroupSnapshots, Creates, Filesystem, OwnProcess], judges = ["DRV-022"])]
async fn deleted_group_leaves_no_file(cx: &mut Cx) -> Result {
    let cx = &*cx;
    let one = &cx.volume("one").create().await?;
    let take_and_delete = async |_| {
        let group = take(cx, &[one]).await?;
        let members: Vec<String> = ids(&group).into_iter().collect();
        cx.delete_group(group.text("/groupSnapshot/groupSnapshotId"), &members).await?.succeeds()
    };
    let object = "group that is taken and deleted";
    check_deletion_leaves_no_file(cx, "DeleteVolumeGroupSnapshot", object, 3, take_and_delete).await
}

/// A group snapshot call without one of its required fields is INVALID_ARGUMENT.
///
/// CSI, CreateVolumeGroupSnapshot and the others: name, source_volume_ids and group_snapshot_id are REQUIRED.
#[case(needs = [GroupSnapshots, Creates, Filesystem], judges = ["DRV-090"], driver = Shared)]
async fn group_without_a_field_is_invalid_argument(cx: &mut Cx) -> Result {
    let one = cx.volume("one").create().await?;
    cx.requires(CREATE, &request(cx, &[&one]), &["name", "sourceVolumeIds"]).await?;
    let group = json!({ "groupSnapshotId": "no-such-group", "snapshotIds": ["no-such-snapshot"] });
    cx.requires(GET, &group, &["groupSnapshotId"]).await?;
    cx.requires("DeleteVolumeGroupSnapshot", &group, &["groupSnapshotId"]).await
}

fn request(cx: &Cx, volumes: &[&Volume]) -> Value {
    let sources: Vec<String> = volumes.iter().map(|volume| cx.handle(volume)).collect();
    let named = cx.snapshot_request("group", volumes[0]);
    json!({ "name": named["name"], "sourceVolumeIds": sources })
}

async fn take(cx: &Cx, volumes: &[&Volume]) -> Result<Answer> {
    let group = cx.take(CREATE, request(cx, volumes)).await?;
    group.succeeds()?;
    Ok(group)
}

/// A field of each snapshot of a group, by the snapshot's id.
fn of_each(group: &Answer, field: &str) -> BTreeMap<String, Value> {
    let id_and_field = |member: Value| (member["snapshotId"].to_string(), member[field].clone());
    members(group).into_iter().map(id_and_field).collect()
}

fn members(group: &Answer) -> Vec<Value> {
    group.list("/groupSnapshot/snapshots").to_vec()
}

fn ids(group: &Answer) -> BTreeSet<String> {
    let id = |member: &Value| member["snapshotId"].as_str().map(str::to_owned);
    group.list("/groupSnapshot/snapshots").iter().filter_map(id).collect()
}
