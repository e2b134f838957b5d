//! Lists of volumes and snapshots: their entries match earlier answers, and odd requests do not end the driver.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use testbed::pages::Pages;

use crate::prelude::*;

/// Tokens that look like those of drivers with numbered pages, with other signs and sizes, and tokens that are no numbers.
const ODD_TOKENS: [&str; 9] =
    ["0", "-1", "1", "1000000", "2147483648", "4294967295", "18446744073709551615", "1.5", "größe"];

/// An unknown token or an odd number of entries for ListVolumes does not end the driver; it may refuse them.
///
/// CSI, 'Error Scheme': all calls MUST return a status.
#[case(needs = [Creates, Filesystem, Lists], judges = ["DRV-097"], driver = Shared)]
async fn odd_page_of_volumes_takes_no_driver_down(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    asks_for_odd_pages(cx, "ListVolumes").await
}

/// An unknown token or an odd number of entries for ListSnapshots does not end the driver; it may refuse them.
///
/// CSI, 'Error Scheme': all calls MUST return a status.
#[case(needs = [Snapshots, ListsSnapshots, Creates, Filesystem], judges = ["DRV-097"], driver = Shared)]
async fn odd_page_of_snapshots_takes_no_driver_down(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    cx.snapshot("one", &data).await?;
    asks_for_odd_pages(cx, "ListSnapshots").await
}

async fn asks_for_odd_pages(cx: &Cx, method: &str) -> Result {
    for token in ODD_TOKENS {
        drop(cx.call(method, json!({ "startingToken": token, "maxEntries": 1 })).await?);
    }
    for entries in [-1, i32::MIN, i32::MAX] {
        drop(cx.call(method, json!({ "maxEntries": entries })).await?);
    }
    // The driver still answers an ordinary request.
    cx.call(method, json!({})).await?.succeeds()?;
    cx.keeps("DRV-097", method, true, "")
}

/// A list without a number of entries has each volume once.
///
/// CSI, ListVolumesRequest.max_entries: without it there is no restriction on the number of entries.
#[case(needs = [Creates, Filesystem, Lists, TwoVolumes], driver = Shared)]
async fn whole_list_has_each_volume_once(cx: &mut Cx) -> Result {
    let made = [cx.volume("one").create().await?, cx.volume("two").create().await?];
    let (mut listed, mut pages) = (Vec::new(), Pages::default());
    loop {
        let page = cx.call("ListVolumes", json!({ "startingToken": pages.token() })).await?;
        page.is("DRV-024", &["OK"])?;
        listed.extend(page.list("/entries").iter().map(|entry| entry["volume"]["volumeId"].clone()));
        if pages.follow(page.text("/nextToken")) != Ok(true) {
            break;
        }
    }
    for volume in &made {
        let times = listed.iter().filter(|id| **id == json!(cx.handle(volume))).count();
        let cause = format!("ListVolumes has a volume {times} times.");
        cx.keeps("DRV-024", "ListVolumes", times == 1, &cause)?;
    }
    Ok(())
}

/// ListVolumes and ControllerGetVolume answer of a volume what CreateVolume and ControllerExpandVolume answered.
///
/// CSI, Volume: "A volume uniquely identified by `volume_id` SHALL always report the same volume_context."
#[case(needs = [Creates, Filesystem], judges = ["DRV-111"], driver = Shared)]
async fn volume_is_told_as_it_was_created(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (first, mut created) =
        (cx.last_request("CreateVolume")?, cx.last_answer("CreateVolume")?["volume"].clone());
    // One that is younger, and stays as it is.
    cx.volume("other").create().await?;
    entries_match(cx, &data, &created).await?;
    let mut asked = "of a volume that is there";
    if cx.controller_can("EXPAND_VOLUME") {
        let grown = cx.node_calls(&data).await?;
        grown.detach().await?;
        let answer = grown.grow(2 * cx.size(&data)).await?;
        if answer.is_ok() {
            asked = "of a volume that has grown";
            created["capacityBytes"] = answer.part("/capacityBytes");
            entries_match(cx, &data, &created).await?;
        }
    }
    let again = cx.call("CreateVolume", first).await?.asked(asked);
    again.is("DRV-010", &["OK"])?;
    let again = again.part("/volume");
    let cause = "CreateVolume of a volume that is there answered another volume_context.";
    cx.keeps("DRV-111", "CreateVolume", again["volumeContext"] == created["volumeContext"], cause)?;
    keeps_answer(cx, "CreateVolume", &created, &again)
}

/// ListVolumes and ControllerGetVolume answer of a volume with a larger limit what CreateVolume answered.
///
/// CSI, Volume.capacity_bytes: the capacity of the volume, and not the largest that was allowed.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn volume_with_a_limit_is_told_as_it_was_created(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let (least, most) = (cx.ordinary_size().to_string(), (4 * cx.ordinary_size()).to_string());
    let mut request = cx.create_request("limited")?;
    request["capacityRange"] = json!({ "requiredBytes": least, "limitBytes": most });
    let made = cx.call("CreateVolume", request).await?.asked("of a size with a larger limit");
    made.succeeds()?;
    let created = made.part("/volume");
    let entries = cx.entries_of_id(made.text("/volume/volumeId").to_owned()).await?;
    cx.delete_created(&made).await?;
    if entries.is_empty() {
        cx.not_tried("DRV-111", "the controller reports no single volumes");
    }
    entries.iter().try_for_each(|(method, entry)| keeps_answer(cx, method, &created, &entry["volume"]))
}

/// ListVolumes and ControllerGetVolume answer of a copy that is larger than its source what CreateVolume answered.
///
/// CSI, CreateVolume: the volume has the requested (larger) size.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn larger_copy_is_told_as_it_was_created(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let snapshot = cx.snapshot("one", &data).await?;
    let wanted = cx.volume("copy").restored_from(&snapshot).size(2 * snapshot.size);
    let Ok(copy) = wanted.create_if_supported().await? else {
        cx.not_tried("DRV-111", "the driver makes no copy that is larger than its source");
        return Ok(());
    };
    let created = cx.last_answer("CreateVolume")?["volume"].clone();
    entries_match(cx, &copy, &created).await
}

async fn entries_match(cx: &Cx, volume: &Volume, created: &Value) -> Result {
    let entries = cx.entries_of(volume).await?;
    if entries.is_empty() {
        cx.not_tried("DRV-111", "the controller reports no single volumes");
    }
    for (method, entry) in entries {
        let entry = &entry["volume"];
        let other = format!("{method} answered another volume than it was asked for.");
        cx.keeps("DRV-111", method, entry["volumeId"] == created["volumeId"], &other)?;
        keeps_answer(cx, method, created, entry)?;
    }
    Ok(())
}

/// Checks that a later answer has the capacity and the context of the first one. A list may leave both out.
fn keeps_answer(cx: &Cx, method: &str, created: &Value, listed: &Value) -> Result {
    let size = |volume: &Value| volume["capacityBytes"].as_str().and_then(|size| size.parse::<i64>().ok());
    if let (Some(answered), Some(later)) = (size(created), size(listed)) {
        let smaller = "The controller reports a smaller capacity of a volume than it answered before.";
        cx.keeps("DRV-111", method, later == 0 || later >= answered, smaller)?;
    }
    for (field, name) in [("contentSource", "content_source"), ("accessibleTopology", "accessible_topology")]
    {
        let cause = format!("The controller reports another {name} of a volume than it answered before.");
        let is_told =
            listed[field].is_object() || listed[field].as_array().is_some_and(|all| !all.is_empty());
        cx.keeps("DRV-111", method, !is_told || listed[field] == created[field], &cause)?;
    }
    let context = |volume: &Value| volume["volumeContext"].as_object().cloned().unwrap_or_default();
    let (answered, later) = (context(created), context(listed));
    let other = "The controller reports another volume_context of a volume than it answered before.";
    cx.keeps("DRV-111", method, later.is_empty() || later == answered, other)
}

/// ListVolumes and ControllerGetVolume answer the condition of a volume if the controller reports VOLUME_CONDITION.
///
/// CSI, ListVolumes, ControllerGetVolume: volume_condition MUST be specified if VOLUME_CONDITION is supported.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn condition_of_a_volume_is_told(cx: &mut Cx) -> Result {
    if !cx.controller_can("VOLUME_CONDITION") {
        cx.not_tried("DRV-176", "the controller does not report VOLUME_CONDITION");
        return Ok(());
    }
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    // Each twice: what is true of the first may not be of the next.
    for volume in [&one, &two, &one, &two] {
        for (method, entry) in cx.entries_of(volume).await? {
            let cause = format!("{method} answered no volume_condition, and VOLUME_CONDITION is reported.");
            let condition = &entry["status"]["volumeCondition"];
            cx.keeps("DRV-176", method, condition.is_object(), &cause)?;
            let cause = format!("{method} calls a volume abnormal that has just been created.");
            cx.keeps("DRV-179", method, condition["abnormal"] != json!(true), &cause)?;
        }
    }
    Ok(())
}

/// ListVolumes and ControllerGetVolume name the node that a volume is published to if the controller reports
/// LIST_VOLUMES_PUBLISHED_NODES.
///
/// CSI, ControllerGetVolume: published_node_ids MUST be specified if LIST_VOLUMES_PUBLISHED_NODES is supported.
#[case(needs = [Creates, Attaches, Filesystem, Root], driver = Shared)]
async fn node_of_a_published_volume_is_told(cx: &mut Cx) -> Result {
    if !cx.controller_can("LIST_VOLUMES_PUBLISHED_NODES") {
        cx.not_tried("DRV-177", "the controller does not report LIST_VOLUMES_PUBLISHED_NODES");
        return Ok(());
    }
    let data = cx.volume("data").create().await?;
    let node = cx.attach_request(&data).await?["nodeId"].clone();
    drop(cx.node_calls(&data).await?);
    for (method, entry) in cx.entries_of(&data).await? {
        let cause = format!("{method} does not name the node that the volume is published to.");
        let nodes = entry["status"]["publishedNodeIds"].as_array().cloned().unwrap_or_default();
        cx.keeps("DRV-177", method, nodes.contains(&node), &cause)?;
    }
    Ok(())
}

/// ListSnapshots answers of each snapshot what CreateSnapshot answered.
///
/// CSI, Snapshot: source_volume_id and creation_time are REQUIRED, of each snapshot wherever it stands.
#[case(needs = [Snapshots, ListsSnapshots, Creates, Filesystem], driver = Shared)]
async fn snapshot_is_listed_as_it_was_taken(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let taken = cx.snapshot("one", &data).await?;
    for filter in
        [json!({}), json!({ "snapshotId": taken.id }), json!({ "sourceVolumeId": cx.handle(&data) })]
    {
        let list = cx.call("ListSnapshots", filter).await?;
        list.succeeds()?;
        let mut entries = list.list("/entries").iter().map(|entry| &entry["snapshot"]);
        let Some(listed) = entries.find(|listed| listed["snapshotId"] == json!(taken.id)) else { continue };
        for field in ["sourceVolumeId", "creationTime", "readyToUse", "sizeBytes"] {
            let cause = format!(
                "ListSnapshots reports another `{field}` of a snapshot than CreateSnapshot answered."
            );
            let (now, before) = (&listed[field], &taken.said[field]);
            cx.keeps("DRV-144", "ListSnapshots", now == before || may_change(field, now, before), &cause)?;
        }
    }
    Ok(())
}

/// A list of all snapshots has one whose volume was deleted.
///
/// CSI, ListSnapshots: all snapshots on the storage system within the given parameters.
#[case(needs = [Snapshots, ListsSnapshots, Creates, Filesystem], driver = Shared)]
async fn snapshot_of_a_deleted_volume_is_listed(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let taken = cx.snapshot("one", &data).await?;
    if !cx.delete_volume(&data).await?.is_ok() {
        cx.not_tried("DRV-039", "the driver deletes no volume that has a snapshot");
        return Ok(());
    }
    let (mut found, mut pages) = (false, Pages::default());
    loop {
        let page = cx.call("ListSnapshots", json!({ "startingToken": pages.token() })).await?;
        page.succeeds()?;
        found |= page.list("/entries").iter().any(|entry| entry["snapshot"]["snapshotId"] == json!(taken.id));
        if pages.follow(page.text("/nextToken")) != Ok(true) {
            break;
        }
    }
    let cause = "ListSnapshots without a filter does not have a snapshot whose volume was deleted.";
    cx.keeps("DRV-039", "ListSnapshots", found, cause)
}

/// A snapshot was taken when CreateSnapshot was called, by its own time.
///
/// CSI, Snapshot.creation_time: "Timestamp when the point-in-time snapshot is taken on the storage system."
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn time_of_a_snapshot_is_that_of_the_call(cx: &mut Cx) -> Result {
    /// Clocks of storage systems differ; an hour is a time zone.
    const APART: Duration = Duration::from_secs(45 * 60);
    let data = cx.volume("data").create().await?;
    let before = SystemTime::now();
    let taken = cx.snapshot("one", &data).await?;
    let Some(time) = taken.time() else {
        // A missing time breaks a promise of its own.
        cx.not_tried("DRV-144", "the driver does not say when the snapshot was taken");
        return Ok(());
    };
    let is_close = time + APART > before && time < SystemTime::now() + APART;
    let cause = "CreateSnapshot answered a creation_time that is not that of the call.";
    cx.keeps("DRV-144", "CreateSnapshot", is_close, cause)
}

/// A size that was not known may be known by now or be left out, and a snapshot may have become ready.
fn may_change(field: &str, now: &Value, before: &Value) -> bool {
    let is_unknown = |size: &Value| matches!(size.as_str(), None | Some("0"));
    match field {
        "readyToUse" => *now == json!(true),
        "sizeBytes" => is_unknown(now) || is_unknown(before),
        _ => false,
    }
}
