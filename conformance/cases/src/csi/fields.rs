//! Each field of a request: missing, with an unknown id, or with an odd value.

use serde_json::Value;

use super::detach_of;
use crate::prelude::*;

/// Each call of the controller refuses a request without one of its required fields, and nothing has changed.
///
/// CSI, 'Error Scheme': INVALID_ARGUMENT if required fields are missing.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn controller_call_without_a_field_is_invalid_argument(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let before = cx.descriptions_of(&data).await?;
    let create = cx.create_request("fields")?;
    let volume = json!({ "volumeId": cx.handle(&data) });
    cx.requires("CreateVolume", &create, &["name", "volumeCapabilities"]).await?;
    cx.requires("DeleteVolume", &volume, &["volumeId"]).await?;
    let validate =
        json!({ "volumeId": cx.handle(&data), "volumeCapabilities": create["volumeCapabilities"] });
    cx.requires("ValidateVolumeCapabilities", &validate, &["volumeId", "volumeCapabilities"]).await?;
    if cx.controller_can("GET_VOLUME") {
        cx.requires("ControllerGetVolume", &volume, &["volumeId"]).await?;
    }
    if cx.driver_attaches() {
        let attach = cx.attach_request(&data).await?;
        cx.requires("ControllerPublishVolume", &attach, &["volumeId", "nodeId", "volumeCapability"]).await?;
        let detach = detach_of(&attach);
        cx.requires("ControllerUnpublishVolume", &detach, &["volumeId"]).await?;
    }
    let cause =
        "Calls without a required field were refused, and changed what the driver reports about the volume.";
    cx.keeps("DRV-090", "", cx.descriptions_of(&data).await? == before, cause)
}

/// Each call of the node refuses a request without one of its required fields, and nothing has changed.
///
/// CSI, 'Error Scheme': INVALID_ARGUMENT if required fields are missing.
#[case(needs = [Filesystem, Root], judges = ["DRV-090"], driver = Shared)]
async fn node_call_without_a_field_is_invalid_argument(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let (staging, target) = (node.staging(), node.target("web"));
    if cx.driver_stages() {
        let required = &["volumeId", "stagingTargetPath", "volumeCapability"];
        cx.requires("NodeStageVolume", &node.stage_request(), required).await?;
        let cause = "NodeStageVolume without a required field was refused, and has mounted the volume.";
        cx.keeps("DRV-090", "NodeStageVolume", node.mounts_at(&staging)?.is_empty(), cause)?;
    }
    node.stage().await?.succeeds()?;
    let publish = node.publish_request("web");
    cx.requires("NodePublishVolume", &publish, &["volumeId", "targetPath", "volumeCapability"]).await?;
    let cause = "NodePublishVolume without a required field was refused, and has mounted the volume.";
    cx.keeps("DRV-090", "NodePublishVolume", node.mounts_at(&target)?.is_empty(), cause)?;

    node.publish("web").await?.succeeds()?;
    let before = (node.mounts_at(&staging)?, node.mounts_at(&target)?);
    let unpublish = json!({ "volumeId": node.handle(), "targetPath": target });
    cx.requires("NodeUnpublishVolume", &unpublish, &["volumeId", "targetPath"]).await?;
    if cx.driver_stages() {
        let unstage = json!({ "volumeId": node.handle(), "stagingTargetPath": staging });
        cx.requires("NodeUnstageVolume", &unstage, &["volumeId", "stagingTargetPath"]).await?;
    }
    let at = json!({ "volumeId": node.handle(), "volumePath": target });
    if cx.reports_statistics() {
        cx.requires("NodeGetVolumeStats", &at, &["volumeId", "volumePath"]).await?;
    }
    if cx.grows_on_node() {
        cx.requires("NodeExpandVolume", &at, &["volumeId", "volumePath"]).await?;
    }
    let cause = "Calls without a required field were refused, and have changed a mount.";
    let is_same = (node.mounts_at(&staging)?, node.mounts_at(&target)?) == before;
    cx.keeps("DRV-090", "", is_same, cause)?;
    node.tear_down("web").await
}

/// Publishing without the staging path is refused, where volumes are staged.
///
/// CSI, NodePublishVolume: FAILED_PRECONDITION if STAGE_UNSTAGE_VOLUME is reported and no staging_target_path is set.
#[case(needs = [StageUnstage, Filesystem, Root], driver = Shared)]
async fn publish_without_the_staging_path_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    let answer = node.publish_as("web", |request| request["stagingTargetPath"] = json!("")).await?;
    let answer = answer.asked("without `staging_target_path`");
    if answer.is_ok() {
        node.undo_publish("web").await?;
    }
    node.undo_stage().await?;
    // FAILED_PRECONDITION is CSI's code for this, INVALID_ARGUMENT the one for missing fields in general.
    answer.is("DRV-180", &["FailedPrecondition", "InvalidArgument"])
}

/// A capability without an access type or an access mode is refused by each call that takes one.
///
/// CSI, VolumeCapability: one of block and mount MUST be specified, and access_mode is a REQUIRED field.
#[case(needs = [Creates, Filesystem, Root], driver = Shared)]
async fn use_without_type_or_mode_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let complete = &["volumeCapability/mount", "volumeCapability/accessMode"];
    let listed = &["volumeCapabilities/0/mount", "volumeCapabilities/0/accessMode"];
    let is_taken = |answer: &Answer| !answer.is_invalid();
    let mut taken: Vec<(&str, String)> = Vec::new();
    let mut note = |method, answers: Option<String>| taken.extend(answers.map(|answers| (method, answers)));
    let create = cx.create_request("capabilities")?;
    note(CREATE, cx.answers_without(CREATE, &create, listed, is_taken).await?);
    // A use is refused by an answer without `confirmed`, too. A call that is missing altogether is another fault.
    let is_confirmed = |answer: &Answer| match answer.is_ok() {
        true => answer.has("/confirmed"),
        false => is_taken(answer) && answer.code() != "Unimplemented",
    };
    let validate =
        json!({ "volumeId": cx.handle(&data), "volumeCapabilities": create["volumeCapabilities"] });
    note(VALIDATE, cx.answers_without(VALIDATE, &validate, listed, is_confirmed).await?);
    if cx.driver_stages() {
        let stage = node.stage_request();
        note(STAGE, cx.answers_without(STAGE, &stage, complete, is_taken).await?);
        // A driver that does not check the field has staged the volume.
        node.undo_stage().await?;
    }
    node.stage().await?.succeeds()?;
    let publish = node.publish_request("web");
    note(PUBLISH, cx.answers_without(PUBLISH, &publish, complete, is_taken).await?);
    // What was refused is not unpublished, and what was not is unpublished by now.
    node.undo_stage().await?;
    let method = taken.first().map_or("", |(method, _)| method);
    let answers: Vec<&str> = taken.iter().map(|(_, answers)| answers.as_str()).collect();
    let cause = format!("{}, and not InvalidArgument.", answers.join("; "));
    cx.keeps("DRV-027", method, taken.is_empty(), &cause)
}

const CREATE: &str = "CreateVolume";
const VALIDATE: &str = "ValidateVolumeCapabilities";
const STAGE: &str = "NodeStageVolume";
const PUBLISH: &str = "NodePublishVolume";

/// CreateVolume without its optional fields is OK, and the volume can be used with the capability that was asked for.
///
/// CSI: fields that are OPTIONAL.
#[case(needs = [Creates, Filesystem], judges = ["DRV-170"], driver = Shared)]
async fn optional_fields_can_be_left_out(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let full = cx.create_request("plain")?;
    // Parameters stay: a driver may need those of its StorageClass, and every cluster sends them.
    let mut plain = json!({});
    for field in ["name", "volumeCapabilities", "parameters", "accessibilityRequirements"] {
        plain[field] = full[field].clone();
    }
    let made = cx.call("CreateVolume", plain).await?.asked("without a capacity range");
    made.is("DRV-028", &["OK"])?;
    if !made.is_ok() {
        return Ok(());
    }
    let id = json!(made.text("/volume/volumeId"));
    let asked = json!({ "volumeId": id, "volumeCapabilities": full["volumeCapabilities"] });
    let confirmed = cx.call("ValidateVolumeCapabilities", asked).await?;
    cx.delete_created(&made).await?;
    confirmed.is_implemented()?;
    confirmed.is("DRV-028", &["OK"])?;
    // The plugin has created the volume with these capabilities, so it has to confirm them.
    let cause =
        "ValidateVolumeCapabilities does not confirm the capabilities that the volume was created with.";
    cx.keeps("DRV-029", "ValidateVolumeCapabilities", confirmed.has("/confirmed"), cause)
}

/// A volume that does not exist is not found by the calls about it, and deleting it is OK.
///
/// CSI, errors of each call: NOT_FOUND if the volume does not exist. DeleteVolume: OK.
#[case(needs = [Creates, Filesystem], judges = ["DRV-172"], driver = Shared)]
async fn unknown_volume_is_not_found(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let (unknown, codes) = cx.unknown_volume();
    let uses = cx.create_request("unknown")?["volumeCapabilities"].clone();
    let asked = json!({ "volumeId": unknown, "volumeCapabilities": uses });
    let answer = cx.call("ValidateVolumeCapabilities", asked).await?;
    answer.is_implemented()?;
    answer.asked("of a volume that does not exist").is("DRV-099", codes)?;
    if cx.controller_can("GET_VOLUME") {
        let answer = cx.call("ControllerGetVolume", json!({ "volumeId": unknown })).await?;
        answer.asked("of a volume that does not exist").is("DRV-099", codes)?;
    }
    let gone = cx.call("DeleteVolume", json!({ "volumeId": unknown })).await?;
    gone.asked("of a volume that does not exist").is("DRV-020", &["OK"])
}

/// A volume that does not exist is neither staged nor published.
///
/// CSI, NodeStageVolume, NodePublishVolume: NOT_FOUND if the volume does not exist.
#[case(needs = [Creates, Filesystem, Root], driver = Shared)]
async fn unknown_volume_is_not_found_on_the_node(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let mut requests = vec![("NodePublishVolume", node.publish_request("web"))];
    if cx.driver_stages() {
        requests.push(("NodeStageVolume", node.stage_request()));
    }
    node.stage().await?.succeeds()?;
    for (method, mut request) in requests {
        request["volumeId"] = json!(cx.unknown_volume().0);
        // Some drivers find a volume by its context alone, so the context of the known volume is left out.
        request["volumeContext"] = json!({});
        request["publishContext"] = json!({});
        let answer = cx.call(method, request).await?.asked("of a volume that does not exist");
        answer.is("DRV-099", &["NotFound", "InvalidArgument", "FailedPrecondition"])?;
    }
    node.undo_stage().await
}

/// Odd texts: non-ASCII letters, and texts with a meaning for paths or programs.
const ODD_TEXTS: [&str; 6] = ["größe-体积-📦", "-rf", "a b\tc", "'\"", "%s%n%x", "…/\u{202e}txt"];

/// No text and no number in a field of a call ends the driver.
///
/// CSI, 'Error Scheme': all calls MUST return a status.
#[case(needs = [Creates, Filesystem, Root], judges = ["DRV-097"], driver = Shared)]
async fn odd_field_takes_no_driver_down(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let made_by_shell = node.target("made-by-a-shell");
    // The command has no slash: a driver may refuse a slash in a name before a shell sees the name.
    let path = made_by_shell.display().to_string().replace('/', "${s}");
    let (long, command) = ("l".repeat(128), format!("$(s=$(printf \\\\057);mkdir -p {path})"));
    let odd: Vec<&str> = ODD_TEXTS.into_iter().chain([long.as_str(), command.as_str()]).collect();
    let create = cx.create_request("odd")?;
    for text in &odd {
        call_with_value(
            cx,
            "CreateVolume",
            &create,
            &["/name", "/volumeCapabilities/0/mount/fsType"],
            json!(text),
        )
        .await?;
        let (target, staging) = (node.target("web"), node.staging());
        let uses = &create["volumeCapabilities"];
        let mut requests = vec![
            ("DeleteVolume", json!({})),
            ("ValidateVolumeCapabilities", json!({ "volumeCapabilities": uses })),
        ];
        if cx.driver_stages() {
            requests.push(("NodeStageVolume", node.stage_request()));
            requests.push(("NodeUnstageVolume", json!({ "stagingTargetPath": staging })));
        }
        requests.push(("NodePublishVolume", node.publish_request("web")));
        requests.push(("NodeUnpublishVolume", json!({ "targetPath": target })));
        for (method, request) in requests {
            call_with_value(cx, method, &request, &["/volumeId"], json!(text)).await?;
        }
    }
    let (least, most) = (i64::MIN.to_string(), i64::MAX.to_string());
    for (required, limit) in [("-1", "0"), ("0", "-1"), (&*least, &*least), (&*most, &*most), ("2", "1")] {
        let range = json!({ "requiredBytes": required, "limitBytes": limit });
        call_with_value(cx, "CreateVolume", &create, &["/capacityRange"], range).await?;
    }
    // Each call above was answered, or the case would have failed there.
    cx.keeps("DRV-097", "", true, "")?;
    let cause = format!("A shell of the driver's has run the command in the name or id `{command}`.");
    cx.keeps("DRV-188", "", !made_by_shell.exists(), &cause)?;
    // The driver still answers ordinary calls.
    node.set_up("web").await?;
    node.tear_down("web").await?;
    cx.volume("after").create().await.map(drop)
}

/// Makes a call with the value in one of these fields, for each of them. Any answer is allowed; a created volume is deleted.
async fn call_with_value(cx: &Cx, method: &str, request: &Value, fields: &[&str], value: Value) -> Result {
    for field in fields {
        let mut request = request.clone();
        let (parent, name) = field.rsplit_once('/').unwrap_or_default();
        // A field that the request does not have yet is added.
        if let Some(parent) = request.pointer_mut(parent) {
            parent[name] = value.clone();
        }
        let answer = cx.call(method, request).await?;
        cx.delete_created(&answer).await?;
    }
    Ok(())
}
