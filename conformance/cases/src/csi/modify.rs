//! ControllerModifyVolume: changes of the mutable parameters of a volume.

use crate::prelude::*;

const MODIFY: &str = "ControllerModifyVolume";

/// A modification that is refused for one parameter changes no parameter.
///
/// CSI, ControllerModifyVolume: INVALID_ARGUMENT, and the plugin MUST NOT have applied any modification.
#[case(needs = [Modifies, Creates, Filesystem], driver = Shared)]
async fn refused_modification_changes_nothing(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let Some(request) = cx.modify_request(&data) else {
        cx.not_tried("DRV-087", "the manifest names no `mutable_parameters`");
        return Ok(());
    };
    let before = cx.descriptions_of(&data).await?;
    // One wrong name sorts before the right ones, and one after them: a driver may apply parameters in this order
    // before it comes to the wrong one.
    for wrong in ["aaa-volproof-no-such-parameter", "zzz-volproof-no-such-parameter"] {
        let mut request = request.clone();
        request["mutableParameters"][wrong] = json!("yes");
        let answer = cx.call(MODIFY, request).await?.asked("with a parameter that does not exist");
        answer.is_implemented()?;
        if answer.is_ok() {
            cx.not_tried("DRV-087", "the driver accepts a parameter that does not exist");
            return Ok(());
        }
        answer.is("DRV-087", &["InvalidArgument"])?;
        let cause = "ControllerModifyVolume refused a parameter, and changed what the driver reports about the volume.";
        cx.keeps("DRV-087", MODIFY, cx.descriptions_of(&data).await? == before, cause)?;
    }
    Ok(())
}

/// A parameter whose name is only a piece of that of a mutable one, or begins with it, does not exist.
///
/// CSI, ControllerModifyVolume: INVALID_ARGUMENT if a parameter is not supported.
#[case(needs = [Modifies, Creates, Filesystem], driver = Shared)]
async fn piece_of_a_parameter_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let Some(request) = cx.modify_request(&data) else {
        cx.not_tried("DRV-157", "the manifest names no `mutable_parameters`");
        return Ok(());
    };
    let known = request["mutableParameters"].as_object().cloned().unwrap_or_default();
    let request_with = |name: &str, value: &serde_json::Value| {
        let mut request = request.clone();
        request["mutableParameters"] = json!({ name: value });
        request
    };
    if cx.call(MODIFY, request_with("volproof-no-such-parameter", &json!("yes"))).await?.is_ok() {
        cx.not_tried("DRV-157", "the driver accepts a parameter that does not exist");
        return Ok(());
    }
    for (name, value) in &known {
        let piece: String = name.chars().take(name.chars().count() - 1).collect();
        for wrong in [piece, format!("{name}-and-more")] {
            let answer = cx.call(MODIFY, request_with(&wrong, value)).await?;
            answer
                .asked("with a name that is nearly that of a parameter")
                .is("DRV-157", &["InvalidArgument"])?;
        }
    }
    Ok(())
}

/// A volume that does not exist is not modified.
///
/// CSI, ControllerModifyVolume: NOT_FOUND if the volume does not exist.
#[case(needs = [Modifies, Creates, Filesystem], driver = Shared)]
async fn unknown_volume_is_not_modified(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (unknown, not_found) = cx.unknown_volume();
    // A driver may refuse a parameter that it does not have before it looks for the volume.
    let (mut request, codes) = match cx.modify_request(&data) {
        Some(request) => (request, not_found),
        None => {
            let parameters = json!({ "volproof-no-such-parameter": "yes" });
            (json!({ "mutableParameters": parameters }), &["NotFound", "InvalidArgument"][..])
        }
    };
    request["volumeId"] = json!(unknown);
    let answer = cx.call(MODIFY, request).await?;
    answer.asked("of a volume that does not exist").is("DRV-099", codes)
}

/// A volume with a mutable parameter that does not exist is not created.
///
/// CSI, ControllerModifyVolume: INVALID_ARGUMENT if a parameter is not supported.
#[case(needs = [Modifies, Creates, Filesystem], driver = Shared)]
async fn volume_with_an_unknown_parameter_is_refused(cx: &mut Cx) -> Result {
    // Its request is the pattern for the next one.
    cx.volume("data").create().await?;
    let mut request = cx.create_request("class")?;
    request["mutableParameters"] = json!({ "volproof-no-such-parameter": "yes" });
    let made = cx.call("CreateVolume", request).await?;
    cx.delete_created(&made).await?;
    made.asked("with a mutable parameter that does not exist").is("DRV-157", &["InvalidArgument"])
}

/// A repeated modification is OK.
///
/// CSI, ControllerModifyVolume: this operation MUST be idempotent.
#[case(needs = [Modifies, Creates, Filesystem], judges = ["DRV-090"], driver = Shared)]
async fn repeated_modification_is_ok(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let Some(request) = cx.modify_request(&data) else {
        cx.not_tried("DRV-156", "the manifest names no `mutable_parameters`");
        return Ok(());
    };
    cx.requires(MODIFY, &request, &["volumeId", "mutableParameters"]).await?;
    cx.call(MODIFY, request.clone()).await?.succeeds()?;
    let before = cx.descriptions_of(&data).await?;
    let again = cx.call(MODIFY, request).await?.asked("that was made already");
    again.is("DRV-156", &["OK"])?;
    let cause = "A repeated ControllerModifyVolume changed what the driver reports about the volume.";
    cx.keeps("DRV-156", MODIFY, cx.descriptions_of(&data).await? == before, cause)
}

/// A volume that was modified while it was published is unpublished and unstaged as before.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(needs = [Modifies, Creates, Filesystem, Root], judges = ["DRV-060"], driver = Shared)]
async fn volume_in_use_is_unpublished_after_it_was_modified(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let Some(request) = cx.modify_request(&data) else {
        cx.not_tried("DRV-060", "the manifest names no `mutable_parameters`");
        return Ok(());
    };
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    drop(cx.call(MODIFY, request).await?);
    node.tear_down("web").await
}
