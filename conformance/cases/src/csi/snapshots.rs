//! Snapshots: taken, listed, deleted, and restored to check their data.

use std::collections::BTreeSet;
use std::time::Duration;

use testbed::pages::Pages;

use super::{check_deletion_leaves_no_file, write_and_detach};
use crate::prelude::*;

/// What makes the size of a device no multiple of what a driver may copy at once.
const ODD: u64 = 1 << 20;

/// A repeated CreateSnapshot answers the same snapshot.
///
/// CSI, CreateSnapshot: this operation MUST be idempotent.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn repeated_snapshot_is_the_same(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let first = cx.snapshot("one", &data).await?;
    if first.said["creationTime"].as_str().is_some_and(|time| !time.contains('.')) {
        // The driver counts in seconds: within the same one another moment would look like this one.
        cx.waits(Duration::from_secs(1)).await;
    }
    let request = cx.snapshot_request("one", &data);
    let again = cx.take("CreateSnapshot", request).await?.asked("of a name that its volume has");
    again.is("DRV-037", &["OK"])?;
    for (field, said) in
        [("snapshotId", "id"), ("creationTime", "creation_time"), ("sourceVolumeId", "source")]
    {
        let cause = format!("CreateSnapshot of the same name and volume answered another {said}.");
        let is_same = again.part("/snapshot")[field] == first.said[field];
        cx.keeps("DRV-037", "CreateSnapshot", is_same, &cause)?;
    }
    let is_ready = |snapshot: &serde_json::Value| snapshot["readyToUse"] == json!(true);
    let cause = "CreateSnapshot of a snapshot that was ready to use answered that it is not.";
    let is_kept = !is_ready(&first.said) || is_ready(&again.part("/snapshot"));
    cx.keeps("DRV-037", "CreateSnapshot", is_kept, cause)
}

/// The name of a snapshot is taken for another volume, and the driver works on when it has refused it.
///
/// CSI, CreateSnapshot: ALREADY_EXISTS if the snapshot is of another volume. 'Error Scheme': ABORTED while an operation is
/// pending, and not after it has failed.
#[case(needs = [Snapshots, Creates, Filesystem], judges = ["DRV-037", "DRV-130"], driver = Shared)]
async fn taken_name_for_another_volume_is_refused(cx: &mut Cx) -> Result {
    let (data, other) = (cx.volume("data").create().await?, cx.volume("other").create().await?);
    cx.snapshot("one", &data).await?;
    let request = cx.snapshot_request("one", &data);
    let mut of_other = request.clone();
    of_other["sourceVolumeId"] = json!(cx.handle(&other));
    let refused = cx.take("CreateSnapshot", of_other).await?;
    refused.asked("of a name that is taken, for another volume").is("DRV-037", &["AlreadyExists"])?;
    let again = cx.take("CreateSnapshot", request).await?;
    let cause = format!(
        "After CreateSnapshot has refused a name that is taken, the next one is not answered: {}.",
        again.code()
    );
    cx.keeps("DRV-130", "CreateSnapshot", !matches!(again.code(), "Aborted" | "DeadlineExceeded"), &cause)
}

/// A snapshot that is asked for again, after its volume has grown, has the size that it had.
///
/// CSI, CreateSnapshot: this operation MUST be idempotent; if a snapshot of the name was cut, it is the answer.
#[case(needs = [Snapshots, Creates, Expands, Filesystem], driver = Shared)]
async fn repeated_snapshot_has_the_size_of_its_moment(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.detach().await?;
    let first = cx.snapshot("one", &data).await?;
    if !node.grow(2 * cx.size(&data)).await?.is_ok() {
        cx.not_tried("DRV-037", "the driver does not make a volume of twice the size");
        return Ok(());
    }
    let again = cx.take("CreateSnapshot", cx.snapshot_request("one", &data)).await?;
    let again = again.asked("of a name that its volume has");
    again.is("DRV-037", &["OK"])?;
    let sizes = [first.said["sizeBytes"].clone(), again.part("/snapshot")["sizeBytes"].clone()]
        .map(|size| size.to_string());
    let cause = format!(
        "CreateSnapshot, repeated after the volume has grown, answered another size: {}, then {}.",
        sizes[0], sizes[1]
    );
    cx.keeps("DRV-037", "CreateSnapshot", sizes[0] == sizes[1], &cause)
}

/// A snapshot that is asked for again, after its volume was written to, has what it had.
///
/// CSI, CreateSnapshot: this operation MUST be idempotent; if a snapshot of the name was cut, it is the answer.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn repeated_call_does_not_take_the_snapshot_anew(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = write_and_detach(cx, &data, "before").await?;
    let snapshot = cx.snapshot("one", &data).await?;
    node.attach_again().await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await?;
    node.detach().await?;
    // A snapshot that follows its volume breaks another promise, and needs no second call for that.
    let [_, has_later] = restored_has(cx, &snapshot, "first", &node).await?;
    let cause = "The snapshot has a file that was written after it was taken.";
    cx.keeps("DRV-036", "CreateSnapshot", !has_later, cause)?;

    let request = cx.snapshot_request("one", &data);
    let again = cx.take("CreateSnapshot", request).await?.asked("of a name that its volume has");
    again.is("DRV-037", &["OK"])?;
    let [has_earlier, has_later] = restored_has(cx, &snapshot, "second", &node).await?;
    let cause = "CreateSnapshot that was repeated took the snapshot anew: it has what was written after the first call.";
    cx.keeps("DRV-037", "CreateSnapshot", !has_later, cause)?;
    let cause = "CreateSnapshot that was repeated lost what was in the snapshot.";
    cx.keeps("DRV-037", "CreateSnapshot", has_earlier, cause)
}

/// Whether a volume that is restored from a snapshot has `before`, and whether it has `after`.
async fn restored_has(cx: &Cx, snapshot: &Snapshot, name: &str, source: &NodeCalls) -> Result<[bool; 2]> {
    let copy = cx.volume(name).restored_from(snapshot).create().await?;
    let restored = cx.node_calls(&copy).await?;
    restored.set_up("web").await?;
    let at = restored.target("web");
    let has =
        [restored.has_copied(&at, source, "before").await?, restored.has_copied(&at, source, "after").await?];
    restored.tear_down("web").await?;
    restored.detach().await?;
    Ok(has)
}

/// Concurrent CreateSnapshot calls with one name take one snapshot.
///
/// CSI, CreateSnapshot: this operation MUST be idempotent. A caller repeats a call whose answer is late.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn snapshot_asked_for_at_once_is_one(cx: &mut Cx) -> Result {
    const TIMES: usize = 4;
    let data = cx.volume("data").create().await?;
    let request = cx.snapshot_request("at-once", &data);
    let calls = (0..TIMES).map(|_| -> Call { Box::pin(cx.take("CreateSnapshot", request.clone())) });
    let mut answers = cx.at_once(calls.collect()).await?;
    // A call that was not OK may be repeated, and then answers the same snapshot.
    answers.push(cx.until_free(|| Box::pin(cx.take("CreateSnapshot", request.clone()))).await?);
    let good = answers.iter().filter(|answer| answer.is_ok());
    let ids: BTreeSet<&str> = good.map(|answer| answer.text("/snapshot/snapshotId")).collect();
    let cause = "CreateSnapshot that was called several times at once took several snapshots of one name.";
    cx.keeps("DRV-037", "CreateSnapshot", ids.len() == 1, cause)
}

/// A snapshot that is taken with the name of a deleted one is a new one: it can be restored, and has what was written last.
///
/// CSI, DeleteSnapshot: the snapshot is deleted. CreateSnapshot: "this operation MUST be idempotent" while it is there.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn name_of_a_deleted_snapshot_is_free(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = write_and_detach(cx, &data, "before").await?;
    let first = cx.snapshot("one", &data).await?;
    cx.delete_snapshot(&first.id).await?.succeeds()?;
    node.attach_again().await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let second = cx.snapshot("one", &data).await?;
    let restored = cx.volume("copy").restored_from(&second).create_if_supported().await?;
    let cause = "A snapshot that was taken with the name of a deleted one cannot be restored.";
    cx.keeps("DRV-036", "CreateSnapshot", restored.is_ok(), cause)?;
    let Ok(copy) = restored else { return Ok(()) };
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    let has_last = copied.has_copied(&copied.target("copy"), &node, "after").await?;
    let cause =
        "A snapshot that was taken with the name of a deleted one lacks what was written since that one.";
    cx.keeps("DRV-036", "CreateSnapshot", has_last, cause)?;
    copied.tear_down("copy").await
}

/// A snapshot can be restored more than once.
///
/// CSI, CreateVolume: the volume has the data of the snapshot when it is presented by NodePublishVolume.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn snapshot_is_restored_twice(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = write_and_detach(cx, &data, "before").await?;
    let snapshot = cx.snapshot("one", &data).await?;
    for name in ["first", "second"] {
        let restored = cx.volume(name).restored_from(&snapshot).create_if_supported().await?;
        let cause = "A snapshot that was restored once cannot be restored again.";
        cx.keeps("DRV-036", "CreateVolume", restored.is_ok(), cause)?;
        let Ok(copy) = restored else { return Ok(()) };
        let copied = cx.node_calls(&copy).await?;
        copied.set_up("copy").await?;
        let at = copied.target("copy");
        let has = copied.has_copied(&at, &node, "before").await?;
        copied.tear_down("copy").await?;
        copied.detach().await?;
        cx.keeps(
            "DRV-036",
            "CreateVolume",
            has,
            "A volume from a snapshot that was restored before is empty.",
        )?;
    }
    Ok(())
}

/// CreateSnapshot answers the snapshot's id, its volume and its time, and in the end that it is ready to use.
///
/// CSI, Snapshot: snapshot_id, source_volume_id and creation_time are REQUIRED.
/// CSI, ListSnapshots: when processing is complete, ready_to_use SHALL become true.
#[case(needs = [Snapshots, Creates, Filesystem], judges = ["DRV-009"], driver = Shared)]
async fn snapshot_describes_itself(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let snapshot = cx.snapshot("one", &data).await?;
    let said = &snapshot.said;
    // Missing fields break a promise of their own, in every answer.
    let cause = "CreateSnapshot answered another source than it was asked for.";
    cx.keeps("DRV-144", "CreateSnapshot", said["sourceVolumeId"] == json!(cx.handle(&data)), cause)?;
    let cause = "CreateSnapshot answered that the snapshot is part of a group, and it was taken alone.";
    let group = said["groupSnapshotId"].as_str().unwrap_or_default();
    cx.keeps("DRV-144", "CreateSnapshot", group.is_empty(), cause)?;
    let cause =
        "CreateSnapshot never answered that the snapshot is ready to use, however often it was asked again.";
    cx.keeps("DRV-144", "CreateSnapshot", said["readyToUse"] == json!(true), cause)
}

/// A snapshot of a device has what was on it when it was taken, and nothing that was written later.
///
/// CSI, CreateSnapshot: the call MUST block until the snapshot is cut.
#[case(needs = [Snapshots, Creates, Block, Root, Loop, Persistent, TwoVolumes], driver = Shared)]
async fn snapshot_of_a_device_keeps_its_moment(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().size(cx.ordinary_size() + ODD).create().await?;
    let node = cx.node_calls(&disk).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "before").await?;
    let snapshot = cx.snapshot("one", &disk).await?;
    node.writes(&target, "after").await?;
    node.tear_down("web").await?;

    let copy = cx.volume("copy").block().restored_from(&snapshot).create().await?;
    let restored = cx.node_calls(&copy).await?;
    restored.set_up("web").await?;
    let at = restored.target("web");
    let has_later = restored.has_copied(&at, &node, "after").await?;
    let cause = "The snapshot has what was written to the device after it was taken.";
    cx.keeps("DRV-036", "CreateSnapshot", !has_later, cause)?;
    let cause = "The device that was restored does not have what was written before the snapshot was taken.";
    let has_before = restored.has_copied(&at, &node, "before").await?;
    cx.keeps("DRV-014", "CreateVolume", has_before, cause)?;
    restored.tear_down("web").await
}

/// A snapshot of a file system in use has what was written before it was taken, and nothing that was written later.
///
/// CSI, CreateSnapshot: the call MUST block until the snapshot is cut.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent, TwoVolumes], driver = Shared)]
async fn snapshot_of_a_file_system_keeps_its_moment(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "before").await?;
    node.writes_to_cache(&target, "unsynced").await?;
    let snapshot = cx.snapshot("one", &data).await?;
    node.writes(&target, "after").await?;
    node.tear_down("web").await?;

    let copy = cx.volume("copy").restored_from(&snapshot).create().await?;
    let restored = cx.node_calls(&copy).await?;
    restored.set_up("web").await?;
    let at = restored.target("web");
    let cause = "The snapshot has a file that was written after it was taken.";
    cx.keeps("DRV-036", "CreateSnapshot", !restored.has_copied(&at, &node, "after").await?, cause)?;
    let cause = "The snapshot does not have a file that was synced before it was taken.";
    cx.keeps("DRV-036", "CreateSnapshot", restored.has_copied(&at, &node, "before").await?, cause)?;
    let cause = "The snapshot does not have a file that was written before it was taken, and not yet synced.";
    cx.keeps("DRV-146", "CreateSnapshot", restored.has_copied(&at, &node, "unsynced").await?, cause)?;
    restored.tear_down("web").await
}

/// A volume of which a snapshot was taken while it was published is unpublished and unstaged as before.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(needs = [Snapshots, Creates, Filesystem, Root], judges = ["DRV-060"], driver = Shared)]
async fn volume_in_use_is_unpublished_after_its_snapshot(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    if !cx.take("CreateSnapshot", cx.snapshot_request("one", &data)).await?.is_ok() {
        cx.not_tried("DRV-060", "the driver takes no snapshot of a volume in use");
    }
    node.tear_down("web").await
}

/// Deleting a snapshot that is gone, or never was, is OK.
///
/// CSI, DeleteSnapshot: if the snapshot does not exist, the plugin MUST reply 0 OK.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn deleting_a_snapshot_twice_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let snapshot = cx.snapshot("one", &data).await?;
    cx.delete_snapshot(&snapshot.id).await?.succeeds()?;
    let again = cx.delete_snapshot(&snapshot.id).await?;
    again.asked("of a snapshot that was deleted").is("DRV-142", &["OK"])?;
    let never = cx.delete_snapshot("no-such-snapshot").await?;
    never.asked("of a snapshot that never was").is("DRV-142", &["OK"])?;
    if cx.controller_can("GET_SNAPSHOT") {
        let answer = cx.call("GetSnapshot", json!({ "snapshotId": snapshot.id })).await?;
        answer.asked("of a snapshot that was deleted").is("DRV-039", &["NotFound"])?;
    }
    if cx.controller_can("LIST_SNAPSHOTS") {
        let listed = listed(cx, json!({ "sourceVolumeId": cx.handle(&data) })).await?;
        let cause = "DeleteSnapshot answered OK, and ListSnapshots still has the snapshot.";
        cx.keeps("DRV-039", "DeleteSnapshot", !listed.contains(&snapshot.id), cause)?;
    }
    Ok(())
}

/// A volume that has a snapshot is deleted, and the snapshot can be restored; or the volume is not deleted.
///
/// CSI, DeleteVolume: existing snapshots MUST still be fully operational, or the answer is FAILED_PRECONDITION.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], judges = ["DRV-143"], driver = Shared)]
async fn snapshot_outlives_its_source(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = write_and_detach(cx, &data, "before").await?;
    let snapshot = cx.snapshot("one", &data).await?;
    let deleted = cx.delete_volume(&data).await?.asked("of a volume that has a snapshot");
    deleted.is("DRV-143", &["OK", "FailedPrecondition"])?;
    if !deleted.is_ok() {
        node.attach_again().await?;
        node.set_up("web").await?;
        let cause = "DeleteVolume refused a volume that has a snapshot, and took what was in it.";
        let kept = node.has(&node.target("web"), "before").await?;
        cx.keeps("DRV-143", "DeleteVolume", kept, cause)?;
        return node.tear_down("web").await;
    }
    if cx.controller_can("LIST_SNAPSHOTS") {
        let cause = "DeleteVolume answered OK, and ListSnapshots has the volume's snapshot no more.";
        let listed = listed(cx, json!({ "snapshotId": snapshot.id })).await?;
        cx.keeps("DRV-143", "DeleteVolume", listed.contains(&snapshot.id), cause)?;
        let by_source = self::listed(cx, json!({ "sourceVolumeId": node.handle() })).await?;
        let cause =
            "ListSnapshots does not have a snapshot by its `source_volume_id` since that volume was deleted.";
        cx.keeps("DRV-039", "ListSnapshots", by_source.contains(&snapshot.id), cause)?;
    }
    let restored = cx.volume("copy").restored_from(&snapshot).create_if_supported().await?;
    let cause = "DeleteVolume answered OK, and the volume's snapshot cannot be restored any more.";
    cx.keeps("DRV-143", "DeleteVolume", restored.is_ok(), cause)?;
    let Ok(copy) = restored else { return Ok(()) };
    let restored = cx.node_calls(&copy).await?;
    restored.set_up("web").await?;
    let cause = "DeleteVolume answered OK, and what was in the volume's snapshot is gone.";
    let kept = restored.has_copied(&restored.target("web"), &node, "before").await?;
    cx.keeps("DRV-143", "DeleteVolume", kept, cause)?;
    restored.tear_down("web").await
}

/// ListSnapshots lists the snapshot that it is asked for, and of an unknown one none.
///
/// CSI, ListSnapshots: all snapshots within the given parameters.
#[case(needs = [Snapshots, ListsSnapshots, Creates, Filesystem], judges = ["DRV-039"], driver = Shared)]
async fn snapshot_is_listed_by_its_id(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (one, two) = (cx.snapshot("one", &data).await?.id, cx.snapshot("two", &data).await?.id);
    let all = listed(cx, json!({})).await?;
    let cause = "ListSnapshots does not have a snapshot that was taken.";
    cx.keeps("DRV-039", "ListSnapshots", [&one, &two].iter().all(|id| all.contains(*id)), cause)?;
    lists_only(cx, json!({ "snapshotId": one }), "With `snapshot_id`", &[&one]).await?;
    let unknown = json!({ "snapshotId": "no-such-snapshot" });
    lists_only(cx, unknown, "With the `snapshot_id` of no snapshot", &[]).await
}

/// ListSnapshots lists those of the volume that it is asked for, and of an unknown one none.
///
/// CSI, ListSnapshots: all snapshots within the given parameters.
#[case(needs = [Snapshots, ListsSnapshots, Creates, Filesystem], judges = ["DRV-039"], driver = Shared)]
async fn snapshots_are_listed_by_their_source(cx: &mut Cx) -> Result {
    let (data, other) = (cx.volume("data").create().await?, cx.volume("other").create().await?);
    let one = cx.snapshot("one", &data).await?.id;
    let two = cx.snapshot("two", &data).await?.id;
    let three = cx.snapshot("three", &other).await?.id;
    let (unknown, _) = cx.unknown_volume();
    let no_volume = "With the `source_volume_id` of no volume";
    lists_only(cx, json!({ "sourceVolumeId": unknown }), no_volume, &[]).await?;
    let of_volume = "With `source_volume_id`";
    lists_only(cx, json!({ "sourceVolumeId": cx.handle(&other) }), of_volume, &[&three]).await?;
    lists_only(cx, json!({ "sourceVolumeId": cx.handle(&data) }), of_volume, &[&one, &two]).await
}

async fn lists_only(cx: &Cx, filter: serde_json::Value, asked: &str, expected: &[&String]) -> Result {
    let answer = cx.call("ListSnapshots", filter.clone()).await?.asked("with a filter");
    answer.is("DRV-039", &["OK"])?;
    let found = listed(cx, filter).await?;
    let expected: BTreeSet<String> = expected.iter().map(|id| (*id).clone()).collect();
    let missing = format!("{asked} ListSnapshots does not have a snapshot that it should have.");
    cx.keeps("DRV-039", "ListSnapshots", found.is_superset(&expected), &missing)?;
    let others = format!("{asked} ListSnapshots has others, too.");
    cx.keeps("DRV-039", "ListSnapshots", found.is_subset(&expected), &others)
}

/// A deleted snapshot leaves no file in the driver's directory.
///
/// CSI, DeleteSnapshot: a file of a snapshot that is in no books any more cannot be deleted by a call.
#[case(needs = [Snapshots, Creates, Filesystem, OwnProcess], judges = ["DRV-022"])]
async fn deleted_snapshot_leaves_no_file(cx: &mut Cx) -> Result {
    let cx = &*cx;
    let data = &cx.volume("data").create().await?;
    let take_and_delete = async |number| {
        let snapshot = cx.snapshot(&format!("number-{number}"), data).await?;
        cx.delete_snapshot(&snapshot.id).await?.succeeds()
    };
    let object = "snapshot that is taken and deleted";
    check_deletion_leaves_no_file(cx, "DeleteSnapshot", object, 3, take_and_delete).await
}

/// The pages of ListSnapshots together hold each snapshot once, and no more entries than asked for.
///
/// CSI, ListSnapshotsRequest: the plugin MUST NOT return more entries than max_entries; ABORTED for a token that is not
/// valid.
#[case(needs = [Snapshots, ListsSnapshots, Creates, Filesystem], driver = Shared)]
async fn snapshot_pages_hold_each_once(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let mut taken = Vec::new();
    for name in ["one", "two", "three", "four", "five"] {
        taken.push(cx.snapshot(name, &data).await?.id);
    }
    let (mut listed, mut pages) = (Vec::new(), Pages::default());
    loop {
        let request = json!({ "maxEntries": 2, "startingToken": pages.token() });
        let page = cx.call("ListSnapshots", request).await?.asked("with `max_entries` 2");
        page.is("DRV-145", &["OK"])?;
        let cause = "With `max_entries` 2, a page of ListSnapshots has more entries.";
        cx.keeps("DRV-145", "ListSnapshots", page.list("/entries").len() <= 2, cause)?;
        listed.extend(ids(&page));
        let next = pages.follow(page.text("/nextToken"));
        let endless = next.as_ref().err().map(|endless| endless.cause("ListSnapshots")).unwrap_or_default();
        cx.keeps("DRV-145", "ListSnapshots", next.is_ok(), &endless)?;
        if next == Ok(false) {
            break;
        }
    }
    let times = |id: &String| listed.iter().filter(|listed| *listed == id).count();
    let cause = "With `max_entries` 2, a snapshot is on no page of ListSnapshots.";
    cx.keeps("DRV-145", "ListSnapshots", taken.iter().all(|id| times(id) > 0), cause)?;
    let cause = "With `max_entries` 2, a snapshot is on two pages of ListSnapshots.";
    cx.keeps("DRV-145", "ListSnapshots", taken.iter().all(|id| times(id) < 2), cause)?;
    let answer = cx.call("ListSnapshots", json!({ "startingToken": "no-such-token" })).await?;
    answer.asked("with a token that was never given out").is("DRV-025", &["Aborted"])
}

/// GetSnapshot answers a snapshot as it was taken.
///
/// CSI, GetSnapshot: the snapshot of the id; source_volume_id and creation_time are REQUIRED.
#[case(needs = [Snapshots, GetsSnapshots, Creates, Filesystem], driver = Shared)]
async fn snapshot_is_gotten_as_it_was_taken(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let taken = [cx.snapshot("one", &data).await?, cx.snapshot("two", &data).await?];
    for snapshot in taken {
        let gotten = cx.call("GetSnapshot", json!({ "snapshotId": snapshot.id })).await?;
        gotten.is_implemented()?;
        gotten.succeeds()?;
        for (field, said) in [
            ("snapshotId", "id"),
            ("sourceVolumeId", "source"),
            ("creationTime", "creation_time"),
            ("readyToUse", "ready_to_use"),
        ] {
            let cause = format!("GetSnapshot answered another {said} than CreateSnapshot.");
            let is_same = gotten.part("/snapshot")[field] == snapshot.said[field];
            cx.keeps("DRV-144", "GetSnapshot", is_same, &cause)?;
        }
    }
    Ok(())
}

/// CreateSnapshot accepts a name of 128 bytes.
///
/// CSI, 'Size Limits': strings may have 128 bytes.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn name_of_128_bytes_is_accepted(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let mut request = cx.snapshot_request("long", &data);
    let name = request["name"].as_str().unwrap_or_default();
    request["name"] = json!(format!("{name}{}", "n".repeat(128_usize.saturating_sub(name.len()))));
    let answer = cx.take("CreateSnapshot", request).await?;
    answer.asked("of a name of 128 bytes").is("DRV-017", &["OK"])
}

/// A snapshot of a volume that does not exist is refused.
///
/// CSI, CreateSnapshot: a non-ok code if the call cannot be completed. Its errors have no code for an unknown source.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn snapshot_of_an_unknown_volume_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (unknown, _) = cx.unknown_volume();
    let mut request = cx.snapshot_request("one", &data);
    request["sourceVolumeId"] = json!(unknown);
    for asked in ["of a volume that does not exist", "of a volume that does not exist, repeated,"] {
        let answer = cx.take("CreateSnapshot", request.clone()).await?;
        answer.asked(asked).is_refused("DRV-099")?;
    }
    Ok(())
}

/// Taking and deleting a snapshot are refused without each of the required fields.
///
/// CSI, CreateSnapshot, DeleteSnapshot, GetSnapshot: source_volume_id, name and snapshot_id are REQUIRED.
#[case(needs = [Snapshots, Creates, Filesystem], judges = ["DRV-090"], driver = Shared)]
async fn snapshot_without_a_field_is_invalid_argument(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let request = cx.snapshot_request("one", &data);
    cx.requires("CreateSnapshot", &request, &["name", "sourceVolumeId"]).await?;
    cx.requires("DeleteSnapshot", &json!({ "snapshotId": "no-such-snapshot" }), &["snapshotId"]).await?;
    if cx.controller_can("GET_SNAPSHOT") {
        cx.requires("GetSnapshot", &json!({ "snapshotId": "no-such-snapshot" }), &["snapshotId"]).await?;
    }
    Ok(())
}

/// The ids of all snapshots that match a filter, from all pages.
async fn listed(cx: &Cx, mut filter: serde_json::Value) -> Result<BTreeSet<String>> {
    let (mut found, mut pages) = (BTreeSet::new(), Pages::default());
    loop {
        filter["startingToken"] = json!(pages.token());
        let page = cx.call("ListSnapshots", filter.clone()).await?;
        page.succeeds()?;
        found.extend(ids(&page));
        let next = pages.follow(page.text("/nextToken"));
        let endless = next.as_ref().err().map(|endless| endless.cause("ListSnapshots")).unwrap_or_default();
        cx.keeps("DRV-145", "ListSnapshots", next.is_ok(), &endless)?;
        if next == Ok(false) {
            return Ok(found);
        }
    }
}

fn ids(page: &Answer) -> Vec<String> {
    let id = |entry: &serde_json::Value| entry["snapshot"]["snapshotId"].as_str().map(str::to_owned);
    page.list("/entries").iter().filter_map(id).collect()
}
