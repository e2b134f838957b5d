//! Secrets of each call are not in errors, logs or contexts.

use crate::prelude::*;

/// No call shows a secret that it was given, whether it succeeds or is refused.
///
/// CSI, csi_secret: such fields MUST NOT be logged. Callers log the messages of errors.
#[case(needs = [Creates, Filesystem, Root], judges = ["DRV-094", "DRV-175"], driver = Shared)]
async fn secrets_of_each_call_are_told_to_nobody(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    cx.adds_a_secret_to_each_call();
    let size = cx.size(&data);
    let made = cx.creates_another(size)?.await?;
    let node = cx.node_calls(&data).await?;
    let uses = json!([node.stage_request()["volumeCapability"]]);
    let id = node.handle();
    drop(cx.call("ValidateVolumeCapabilities", json!({ "volumeId": id, "volumeCapabilities": uses })).await?);
    // Both calls are also made to fail: an error text must not show the secret either.
    for method in ["NodeStageVolume", "NodePublishVolume"] {
        drop(cx.call(method, json!({ "volumeId": id })).await?);
    }
    node.set_up("web").await?;
    let range = json!({ "requiredBytes": size.to_string() });
    if cx.grows_on_node() {
        let at = json!({ "volumeId": id, "volumePath": node.target("web"), "capacityRange": range });
        drop(cx.call("NodeExpandVolume", at).await?);
    }
    if cx.controller_can("EXPAND_VOLUME") {
        drop(cx.call("ControllerExpandVolume", json!({ "volumeId": id, "capacityRange": range })).await?);
    }
    if cx.controller_can("CREATE_DELETE_SNAPSHOT") {
        let snapshot = cx.snapshot("one", &data).await?;
        cx.delete_snapshot(&snapshot.id).await?.succeeds()?;
    }
    if cx.controller_can("LIST_SNAPSHOTS") {
        drop(cx.call("ListSnapshots", json!({})).await?);
    }
    node.tear_down("web").await?;
    node.detach().await?;
    cx.delete_created(&made).await
}

/// A call that is refused shows no secret that it was given, whether for its size, for a taken name, or for a volume, a path
/// or a source that does not exist.
///
/// CSI, csi_secret: such fields MUST NOT be logged. Callers log the messages of errors.
#[case(needs = [Creates, Filesystem, Root], judges = ["DRV-094"], driver = Shared)]
async fn secrets_of_refused_calls_are_told_to_nobody(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    cx.adds_a_secret_to_each_call();
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let (unknown, _) = cx.unknown_volume();
    let (missing_target, staging) = (node.target("no-such-target"), node.target("no-such-staging"));
    std::fs::create_dir_all(&staging)?;
    let mut stage = node.stage_request();
    stage["stagingTargetPath"] = json!(staging);
    let range = json!({ "requiredBytes": cx.size(&data).to_string() });
    let mut requests = vec![
        ("NodeStageVolume", stage),
        ("NodePublishVolume", node.publish_request("no-such-target")),
        (
            "ValidateVolumeCapabilities",
            json!({ "volumeCapabilities": [node.stage_request()["volumeCapability"]] }),
        ),
    ];
    if cx.controller_can("EXPAND_VOLUME") {
        requests.push(("ControllerExpandVolume", json!({ "capacityRange": range })));
    }
    if cx.grows_on_node() {
        requests.push(("NodeExpandVolume", json!({ "volumePath": missing_target, "capacityRange": range })));
        let at = json!({ "volumeId": node.handle(), "volumePath": missing_target, "capacityRange": range });
        drop(cx.call("NodeExpandVolume", at).await?);
    }
    let mut contradictory = cx.create_request("contradictory")?;
    contradictory["capacityRange"] =
        json!({ "requiredBytes": (2 * cx.size(&data)).to_string(), "limitBytes": "4096" });
    let made = cx.call("CreateVolume", contradictory).await?;
    cx.delete_created(&made).await?;
    for (method, mut request) in requests {
        request["volumeId"] = json!(unknown);
        drop(cx.call(method, request).await?);
    }
    // A driver that does not check volume ids may have staged and published the unknown volume, so both are undone.
    for (method, path, field) in [
        ("NodeUnpublishVolume", missing_target, "targetPath"),
        ("NodeUnstageVolume", staging, "stagingTargetPath"),
    ] {
        drop(cx.call(method, json!({ "volumeId": unknown, field: path })).await?);
    }
    if cx.controller_can("CREATE_DELETE_SNAPSHOT") {
        let mut request = cx.snapshot_request("one", &data);
        request["sourceVolumeId"] = json!(unknown);
        drop(cx.take("CreateSnapshot", request).await?);
        let other = cx.call("CreateVolume", cx.create_request("other")?).await?;
        let mut taken = cx.snapshot_request("taken", &data);
        drop(cx.take("CreateSnapshot", taken.clone()).await?);
        if other.is_ok() {
            taken["sourceVolumeId"] = other.part("/volume/volumeId");
            drop(cx.take("CreateSnapshot", taken).await?);
        }
        cx.delete_created(&other).await?;
        let mut copy = cx.create_request("copy")?;
        copy["volumeContentSource"] = json!({ "snapshot": { "snapshotId": "no-such-snapshot" } });
        let made = cx.call("CreateVolume", copy).await?;
        cx.delete_created(&made).await?;
    }
    node.tear_down("web").await
}
