//! Calls that a cluster makes only after an error or a lost answer: refused, repeated with other fields, or out of order.

use std::collections::BTreeSet;

use serde_json::Value;
use testbed::pages::Pages;

use super::detach_of;
use crate::prelude::*;

/// CreateVolume with the name of an existing volume and a larger size is refused.
///
/// CSI, CreateVolume: ALREADY_EXISTS if a volume of the name exists and is incompatible with the request.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn taken_name_with_another_size_is_refused(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    // `capacity_bytes` may be more than was asked for, and 0 says that the driver does not know the size.
    let answered = cx.last_answer("CreateVolume")?;
    let size: u64 = answered["volume"]["capacityBytes"].as_str().unwrap_or("0").parse()?;
    if size == 0 {
        cx.not_tried("DRV-011", "the driver does not say how large its volumes are");
        return Ok(());
    }
    let mut request = cx.last_request("CreateVolume")?;
    request["capacityRange"] = json!({ "requiredBytes": (4 * size).to_string() });
    let refused = ["AlreadyExists", "OutOfRange"];
    let answer = cx.call("CreateVolume", request).await?;
    let cause = format!(
        "CreateVolume of a name that is taken, for four times the size that its volume has, answered {}, and not {}.",
        answer.code(),
        refused.join(" or ")
    );
    cx.keeps("DRV-011", "CreateVolume", refused.contains(&answer.code()), &cause)
}

/// A volume is no larger than the limit that was asked for, or CreateVolume refuses.
///
/// CSI, CapacityRange.limit_bytes: "Volume MUST not be bigger than this."
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn size_limit_is_respected(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let exact = cx.last_request("CreateVolume")?["capacityRange"]["requiredBytes"].clone();
    let mut request = cx.create_request("limited")?;
    request["capacityRange"] = json!({ "requiredBytes": exact, "limitBytes": exact });
    let created = cx.call("CreateVolume", request).await?;
    if !created.is_ok() {
        return created.is("DRV-012", &["OutOfRange"]);
    }
    let size: u64 = exact.as_str().unwrap_or("0").parse()?;
    let answered: u64 = created.text("/volume/capacityBytes").parse().unwrap_or(0);
    let deleted = cx.call("DeleteVolume", json!({ "volumeId": created.text("/volume/volumeId") })).await?;
    deleted.is("DRV-020", &["OK"])?;
    if answered == 0 {
        cx.not_tried("DRV-012", "the driver does not say how large its volumes are");
        return Ok(());
    }
    let detail = format!("answered {answered} bytes, asked for {size}");
    cx.keeps("DRV-012", "CreateVolume", answered <= size, &format!("{TOO_LARGE} ({detail})"))?;
    cx.keeps("DRV-012", "CreateVolume", answered >= size, &format!("{TOO_SMALL} ({detail})"))
}

/// CreateVolume accepts a name of 128 bytes, and makes a volume that the driver knows.
///
/// CSI, 'Size Limits': strings may have 128 bytes.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn name_of_128_bytes_is_accepted(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let mut request = cx.last_request("CreateVolume")?;
    request["name"] = json!("n".repeat(128));
    let created = cx.call("CreateVolume", request).await?;
    let created = created.asked("of a name of 128 bytes");
    created.is("DRV-017", &["OK"])?;
    if !created.is_ok() {
        return Ok(());
    }
    let uses = cx.last_request("CreateVolume")?["volumeCapabilities"].clone();
    let id = created.text("/volume/volumeId");
    let request = json!({ "volumeId": id, "volumeCapabilities": uses });
    let validated = cx.call("ValidateVolumeCapabilities", request).await?;
    let deleted = cx.call("DeleteVolume", json!({ "volumeId": id })).await?;
    let cause =
        "CreateVolume answers OK for a name of 128 bytes, and ValidateVolumeCapabilities answers NOT_FOUND.";
    cx.keeps("DRV-017", "CreateVolume", validated.code() != "NotFound", cause)?;
    deleted.is("DRV-020", &["OK"])
}

/// CreateVolume refuses, and ValidateVolumeCapabilities does not confirm, a file system type that does not exist.
///
/// CSI, CreateVolume: INVALID_ARGUMENT if the capabilities are not supported.
#[case(needs = [Creates, Filesystem, FsTypes], driver = Shared)]
async fn unknown_file_system_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let impossible =
        json!([{ "mount": { "fsType": "no-such-fs" }, "accessMode": { "mode": "SINGLE_NODE_WRITER" } }]);
    let mut request = cx.last_request("CreateVolume")?;
    request["name"] = json!("impossible");
    request["volumeCapabilities"] = impossible.clone();
    let refused = ["InvalidArgument", "OutOfRange", "FailedPrecondition"];
    let answer = cx.call("CreateVolume", request).await?;
    answer.asked("for a file system that does not exist").is("DRV-016", &refused)?;

    let request = json!({ "volumeId": cx.handle(&data), "volumeCapabilities": impossible });
    let answer = cx.call("ValidateVolumeCapabilities", request).await?;
    let cause = "ValidateVolumeCapabilities confirms a file system type that does not exist.";
    cx.keeps("DRV-023", "ValidateVolumeCapabilities", !answer.has("/confirmed"), cause)?;

    let mut both = cx.last_request("CreateVolume")?["volumeCapabilities"].clone();
    both.as_array_mut().into_iter().for_each(|list| list.push(impossible[0].clone()));
    let request = json!({ "volumeId": cx.handle(&data), "volumeCapabilities": both });
    let answer = cx.call("ValidateVolumeCapabilities", request).await?;
    let cause = "ValidateVolumeCapabilities confirms two capabilities of which the second is of a file system type that does not exist.";
    cx.keeps("DRV-023", "ValidateVolumeCapabilities", !answer.has("/confirmed"), cause)
}

/// ValidateVolumeCapabilities confirms all requested uses, or none.
///
/// CSI, ValidateVolumeCapabilitiesResponse.confirmed: set only if all that was asked for is confirmed, and it has the
/// capabilities that are.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn uses_are_confirmed_together(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let first = cx.last_request("CreateVolume")?["volumeCapabilities"][0].clone();
    let validate = async |uses: Value| {
        let context = cx.last_answer("CreateVolume")?["volume"]["volumeContext"].clone();
        let request = json!({
            "volumeId": cx.handle(&data), "volumeContext": context, "volumeCapabilities": uses,
        });
        cx.call("ValidateVolumeCapabilities", request).await
    };
    let mut tried = false;
    for mode in
        ["SINGLE_NODE_WRITER", "SINGLE_NODE_READER_ONLY", "MULTI_NODE_READER_ONLY", "MULTI_NODE_MULTI_WRITER"]
    {
        let mut second = first.clone();
        second["accessMode"] = json!({ "mode": mode });
        if second == first || !validate(json!([second])).await?.has("/confirmed") {
            continue;
        }
        let both = validate(json!([first, second])).await?;
        if !both.has("/confirmed") {
            continue;
        }
        tried = true;
        let confirmed = both.list("/confirmed/volumeCapabilities");
        let cause = format!(
            "ValidateVolumeCapabilities confirmed {} of two uses that it was asked for together.",
            confirmed.len()
        );
        cx.keeps("DRV-023", "ValidateVolumeCapabilities", confirmed.len() >= 2, &cause)?;
        let has = |asked: &Value| confirmed.iter().any(|one| one["accessMode"] == asked["accessMode"]);
        let cause = "ValidateVolumeCapabilities confirmed other access modes than it was asked for.";
        cx.keeps("DRV-023", "ValidateVolumeCapabilities", has(&first) && has(&second), cause)?;
    }
    if !tried {
        cx.not_tried("DRV-023", "the driver confirms no two uses together");
    }
    Ok(())
}

/// ValidateVolumeCapabilities does not confirm a use for which CreateVolume makes no volume.
///
/// CSI, ValidateVolumeCapabilities: `confirmed` only if all that is asked for is supported.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn refused_use_is_not_confirmed(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let of_file_system = cx.last_request("CreateVolume")?["volumeCapabilities"][0]["mount"].clone();
    let only =
        |kind: &str, access: Value, mode: &str| json!([{ kind: access, "accessMode": { "mode": mode } }]);
    let uses = [
        only("mount", json!({ "fsType": "no-such-fs" }), "SINGLE_NODE_WRITER"),
        only("block", json!({}), "SINGLE_NODE_WRITER"),
        only("mount", of_file_system.clone(), "MULTI_NODE_READER_ONLY"),
        only("mount", of_file_system, "MULTI_NODE_MULTI_WRITER"),
    ];
    let mut refused = Vec::new();
    for (number, requested) in uses.into_iter().enumerate() {
        let mut request = cx.create_request(&format!("use-{number}"))?;
        request["volumeCapabilities"] = requested.clone();
        let created = cx.call("CreateVolume", request).await?;
        refused.extend((created.code() == "InvalidArgument").then_some(requested));
        if created.is_ok() {
            cx.delete_created(&created).await?;
        }
    }
    if refused.is_empty() {
        cx.not_tried("DRV-023", "the driver makes volumes for each use");
    }
    for requested in refused {
        let request = json!({ "volumeId": cx.handle(&data), "volumeCapabilities": requested.clone() });
        let answer = cx.call("ValidateVolumeCapabilities", request).await?;
        let cause = format!(
            "ValidateVolumeCapabilities confirms a use for which CreateVolume answers INVALID_ARGUMENT: {requested}."
        );
        cx.keeps("DRV-023", "ValidateVolumeCapabilities", !answer.has("/confirmed"), &cause)?;
    }
    Ok(())
}

/// A volume with a file system can be published as a device, if ValidateVolumeCapabilities confirms that use.
///
/// CSI, ValidateVolumeCapabilities: `confirmed` only if all that is asked for is supported.
#[case(needs = [Creates, Filesystem, Root, Loop], driver = Shared)]
async fn confirmed_device_can_be_published(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let mode = cx.last_request("CreateVolume")?["volumeCapabilities"][0]["accessMode"].clone();
    let device = json!({ "block": {}, "accessMode": mode });
    let request = json!({ "volumeId": cx.handle(&data), "volumeCapabilities": [device.clone()] });
    let validated = cx.call("ValidateVolumeCapabilities", request).await?;
    let mut cause = String::new();
    if validated.has("/confirmed") {
        let node = cx.node_calls(&data).await?;
        node.ask_with(|asked| *asked = device);
        if let Some(refusal) = node.refusal("web").await? {
            cause = format!(
                "ValidateVolumeCapabilities confirms a device for a volume with a file system, and {} of that answers {}.",
                refusal.method(),
                refusal.code()
            );
        }
    }
    cx.keeps("DRV-023", "ValidateVolumeCapabilities", cause.is_empty(), &cause)
}

/// DeleteVolume refuses a volume that a pod uses.
///
/// CSI, DeleteVolume: FAILED_PRECONDITION if the volume is in use by another resource.
#[case(needs = [Creates, Filesystem, Root, Persistent])]
async fn volume_in_use_is_not_deleted(cx: &mut Cx) -> Result {
    if !cx.driver_attaches() {
        // A driver without ControllerPublishVolume cannot know that the volume is in use and may delete it. The
        // teardown of the pod would fail then.
        cx.not_tried("DRV-021", "a driver that does not attach cannot know which volumes are in use");
        return Ok(());
    }
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    let refused = ["FailedPrecondition"];
    let answer = cx.call("DeleteVolume", json!({ "volumeId": cx.handle(&data) })).await?;
    answer.asked("of a volume that a pod has").is("DRV-021", &refused)?;
    web.reads("/data/greeting", "hello").await?;
    web.stop().await
}

/// ControllerPublishVolume of an unknown volume, or to an unknown node, is not found.
///
/// CSI, ControllerPublishVolume: NOT_FOUND if the volume or the node does not exist.
#[case(needs = [Creates, Attaches, Filesystem, Root], driver = Shared)]
async fn attach_of_an_unknown_volume_or_node_is_not_found(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    // With the right ids it works: what is refused below is refused for the wrong one.
    cx.node_calls(&data).await?.detach().await?;
    let request = cx.attach_request(&data).await?;
    let changed = |field: &str, value: &str| {
        let mut request = request.clone();
        request[field] = json!(value);
        request
    };
    let (volume, codes) = cx.unknown_volume();
    let answer = cx.call("ControllerPublishVolume", changed("volumeId", &volume)).await?;
    answer.asked("of a volume that does not exist").is("DRV-099", codes)?;
    let (node, codes) = cx.unknown_node();
    let answer = cx.call("ControllerPublishVolume", changed("nodeId", &node)).await?;
    answer.asked("on a node that does not exist").is("DRV-033", codes)
}

/// A volume that is attached to a node for writing is not attached to it read-only as well.
///
/// CSI, ControllerPublishVolume: ALREADY_EXISTS if the volume is published to the node and is incompatible.
#[case(needs = [Creates, Attaches, Filesystem, Root, Persistent, AttachesReadOnly], driver = Shared)]
async fn incompatible_attach_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "before").await?;
    let mut read_only = cx.attach_request(&data).await?;
    read_only["readonly"] = json!(true);
    let answer = cx.call("ControllerPublishVolume", read_only).await?;
    answer
        .asked("for reading only, where the volume is attached for writing,")
        .is("DRV-102", &["AlreadyExists"])?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await
}

/// Each call that the driver offers refuses a request that lacks a required field.
///
/// CSI, 'Error Scheme': INVALID_ARGUMENT if required fields are missing.
#[case(judges = ["DRV-182"], driver = Shared)]
async fn missing_field_is_invalid_argument(cx: &mut Cx) -> Result {
    let mut wrong = Vec::new();
    for method in cx.calls_that_need_a_field() {
        let answer = cx.call(method, json!({})).await?;
        if answer.code() != "InvalidArgument" {
            wrong.push((method, answer.code().to_owned()));
        }
    }
    let method = wrong.first().map_or("", |(method, _)| *method);
    let answers: Vec<String> =
        wrong.iter().map(|(method, code)| format!("{method} answered {code}")).collect();
    let cause =
        format!("Without any of the required fields, {}, and not InvalidArgument.", answers.join(", "));
    cx.keeps("DRV-090", method, wrong.is_empty(), &cause)
}

/// The pages of ListVolumes together hold each volume once.
///
/// CSI, ListVolumes: a token of one answer leads to the entries after it.
#[case(needs = [Creates, Filesystem, Lists], driver = Shared)]
async fn list_pages_hold_each_volume_once(cx: &mut Cx) -> Result {
    let mut made = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let volume = cx.volume(name).create().await?;
        made.push(cx.handle(&volume));
    }
    let ids: BTreeSet<&String> = made.iter().collect();
    let one_id = "CreateVolume answered one id for two names, and a list cannot have both volumes.";
    cx.keeps("DRV-024", "ListVolumes", ids.len() == made.len(), one_id)?;
    let (mut listed, mut pages) = (Vec::new(), Pages::default());
    loop {
        let request = json!({ "maxEntries": 2, "startingToken": pages.token() });
        let page = cx.call("ListVolumes", request).await?;
        let is_first = pages.token().is_empty();
        let page = if is_first { page } else { page.asked("with the token of the page before") };
        page.is("DRV-024", &["OK"])?;
        let entries = page.list("/entries");
        let too_many = "With `max_entries` 2, a page has more entries.";
        cx.keeps("DRV-024", "ListVolumes", entries.len() <= 2, too_many)?;
        let id = |entry: &serde_json::Value| entry["volume"]["volumeId"].as_str().map(str::to_owned);
        listed.extend(entries.iter().filter_map(id));
        let next = pages.follow(page.text("/nextToken"));
        let endless = next.as_ref().err().map(|endless| endless.cause("ListVolumes")).unwrap_or_default();
        cx.keeps("DRV-024", "ListVolumes", next.is_ok(), &endless)?;
        if next == Ok(false) {
            break;
        }
    }
    let times = |volume: &String| listed.iter().filter(|listed| *listed == volume).count();
    let missing = "With `max_entries` 2, a volume is on no page up to the one without `next_token`.";
    cx.keeps("DRV-024", "ListVolumes", made.iter().all(|volume| times(volume) > 0), missing)?;
    let twice = "With `max_entries` 2, a volume is on two pages.";
    cx.keeps("DRV-024", "ListVolumes", made.iter().all(|volume| times(volume) < 2), twice)
}

/// ListVolumes refuses a starting token that it never gave out.
///
/// CSI, ListVolumes: ABORTED if the token is not valid.
#[case(needs = [Lists], driver = Shared)]
async fn unknown_list_token_is_refused(cx: &mut Cx) -> Result {
    let answer = cx.call("ListVolumes", json!({ "startingToken": "no-such-token" })).await?;
    answer.asked("with a token that was never given out").is("DRV-025", &["Aborted"])
}

/// A volume that is staged with a file system is not staged as a device at the same path.
///
/// CSI, NodeStageVolume: ALREADY_EXISTS if the volume is staged and incompatible with the capability.
#[case(needs = [StageUnstage, Filesystem, Root, Persistent])]
async fn incompatible_stage_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    let staged = cx.last_request("NodeStageVolume")?;
    let mut as_device = staged.clone();
    as_device["volumeCapability"] =
        json!({ "block": {}, "accessMode": staged["volumeCapability"]["accessMode"] });
    // The volume was created for a file system: a driver may as well say that a device exceeds what this volume can do
    // (FAILED_PRECONDITION), or that it has no devices (INVALID_ARGUMENT), before it looks at what is staged.
    let refused = ["AlreadyExists", "FailedPrecondition", "InvalidArgument"];
    let answer = cx.call("NodeStageVolume", as_device).await?;
    answer.asked("as a device, where the volume is staged with a file system,").is("DRV-047", &refused)?;
    web.reads("/data/greeting", "hello").await?;
    web.stop().await
}

/// A volume that is published for writing is not published read-only at the same target.
///
/// CSI, NodePublishVolume: ALREADY_EXISTS if the volume is published at the target in an incompatible way.
#[case(needs = [Filesystem, Root, Persistent])]
async fn incompatible_publish_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    let mut read_only = cx.last_request("NodePublishVolume")?;
    read_only["readonly"] = json!(true);
    let refused = ["AlreadyExists", "FailedPrecondition"];
    let answer = cx.call("NodePublishVolume", read_only).await?;
    answer.asked("read-only, where the volume is published for writing,").is("DRV-058", &refused)?;
    web.writes("/data/greeting", "still mine").await?;
    web.stop().await
}

/// NodeUnstageVolume refuses a volume that is published.
///
/// CSI, NodeUnstageVolume: called after all NodeUnpublishVolume calls of the volume on the node.
#[case(needs = [StageUnstage, Filesystem, Root, Persistent], judges = ["DRV-045"])]
async fn published_volume_is_not_unstaged(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "still mine").await?;
    let staged = cx.last_request("NodeStageVolume")?;
    let unstage = json!({ "volumeId": staged["volumeId"], "stagingTargetPath": staged["stagingTargetPath"] });
    let answer = cx.call("NodeUnstageVolume", unstage).await?.asked("of a volume that is published");
    answer.is_refused("DRV-075")?;
    // A driver may unstage it all the same. Then the target has nothing to read.
    if !answer.is_ok() {
        web.reads("/data/greeting", "still mine").await?;
        let published = cx.last_request("NodePublishVolume")?;
        let again = cx.call("NodePublishVolume", published).await?;
        let cause = format!(
            "NodeUnstageVolume refused a volume that is published, and NodePublishVolume answered {} when it was repeated.",
            again.code()
        );
        cx.keeps("DRV-045", "NodeUnstageVolume", again.is_ok(), &cause)?;
    }
    web.stop().await
}

/// ControllerUnpublishVolume without a node detaches the volume from its node, and the volume can be attached again.
///
/// CSI, ControllerUnpublishVolumeRequest.node_id is OPTIONAL: without it the volume is unpublished from all nodes.
#[case(needs = [Creates, Attaches, Filesystem, Root], driver = Shared)]
async fn detach_without_a_node_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let answer = cx.call("ControllerUnpublishVolume", json!({ "volumeId": cx.handle(&data) })).await?;
    answer.asked("without a node").is("DRV-034", &["OK"])?;
    if cx.controller_can("LIST_VOLUMES_PUBLISHED_NODES") {
        for (method, entry) in cx.entries_of(&data).await? {
            let cause = format!(
                "ControllerUnpublishVolume without a node answered OK, and {method} says that the volume is published."
            );
            let nodes = entry["status"]["publishedNodeIds"].as_array();
            cx.keeps("DRV-034", "ControllerUnpublishVolume", nodes.is_none_or(Vec::is_empty), &cause)?;
        }
    }
    if cx.controller_can("PUBLISH_READONLY") {
        // An attachment for writing that is still there is incompatible with this one.
        let mut read_only = cx.attach_request(&data).await?;
        read_only["readonly"] = json!(true);
        let undo = detach_of(&read_only);
        let attached = cx.call("ControllerPublishVolume", read_only).await?;
        let cause = "ControllerUnpublishVolume without a node answered OK, and ControllerPublishVolume finds the volume attached as it was before.";
        cx.keeps("DRV-034", "ControllerUnpublishVolume", attached.code() != "AlreadyExists", cause)?;
        cx.call("ControllerUnpublishVolume", undo).await?.succeeds()?;
    }
    node.attach_again().await
}

/// ControllerUnpublishVolume of a volume that was detached and deleted is OK: it is published nowhere.
///
/// CSI, ControllerUnpublishVolume: OK if the volume cannot be found and can be regarded as unpublished. A CO that lost
/// the first answer asks again, and cannot go on before the answer is OK.
#[case(needs = [Creates, Attaches, Filesystem, Root], driver = Shared)]
async fn detach_of_a_deleted_volume_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let attach = cx.attach_request(&data).await?;
    cx.node_calls(&data).await?.detach().await?;
    cx.delete_volume(&data).await?.succeeds()?;
    let detach = detach_of(&attach);
    let answer = cx.call("ControllerUnpublishVolume", detach).await?;
    answer.asked("of a volume that was detached and deleted").is("DRV-183", &["OK"])
}

/// Each optional call that the node service reports works on a published volume.
///
/// CSI, NodeGetCapabilities: a plugin that reports a capability implements its call.
#[case(needs = [Filesystem, Root, Stats, ExpandsOnNode], judges = ["DRV-002"], driver = Shared)]
async fn reported_node_calls_work(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let published = node.publish_request("web");
    let at_path = |path: &serde_json::Value| json!({ "volumeId": cx.handle(&data), "volumePath": path });
    let stats = cx.call("NodeGetVolumeStats", at_path(&published["targetPath"])).await?;
    stats.is_implemented()?;
    stats.succeeds()?;
    // Expands to the current size, with every field that a kubelet sends: a driver may need fields that are optional in CSI.
    let mut expand = at_path(&published["targetPath"]);
    for field in ["stagingTargetPath", "volumeCapability"] {
        expand[field] = published[field].clone();
    }
    expand["capacityRange"] = json!({ "requiredBytes": cx.size(&data).to_string() });
    let expanded = cx.call("NodeExpandVolume", expand).await?;
    expanded.is_implemented()?;
    let expanded = expanded.asked("to the size that the volume has");
    expanded.is("DRV-083", &["OK"])?;
    node.tear_down("web").await
}
