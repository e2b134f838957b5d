//! Secrets of each call are not in errors, logs or contexts.

use crate::prelude::*;

/// No call that works, and none that is refused, shows a secret that it was given.
///
/// CSI, csi_secret: such fields MUST NOT be logged. Callers log the messages of errors.
#[case(needs = [Creates, Filesystem, Root], judges = ["DRV-094", "DRV-175"], driver = Shared)]
async fn secrets_of_each_call_are_told_to_nobody(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    cx.confides_in_each_call();
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
    cx.unmake(&made).await
}
