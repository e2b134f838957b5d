//! The driver's process: resources that it gathers while it runs, its end and its restart.

use std::time::Duration;

use super::{check_deletion_leaves_no_file, write_and_detach};
use crate::prelude::*;

/// A volume that comes and goes twenty times leaves no descriptor, thread or process in the driver.
///
/// Kubernetes: a node plugin runs as long as the node, and serves each pod that comes.
#[case(needs = [Filesystem, Root, OwnProcess])]
async fn cycles_leave_the_driver_as_it_was(cx: &mut Cx) -> Result {
    const WARM_UP: usize = 4;
    const CYCLES: usize = 20;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let mut before = cx.driver_size()?;
    for cycle in 0..WARM_UP + CYCLES {
        if cycle == WARM_UP {
            before = cx.driver_size()?;
        }
        node.set_up("web").await?;
        node.tear_down("web").await?;
    }
    let after = cx.driver_size()?;
    // A leak has at least one more for each cycle; a few come and go with the runtime of the driver's language.
    let resources = after.beside(&before).map(|(what, before, after)| (what, before, after, CYCLES));
    let memory = ("memory", before.megabytes, after.megabytes, 2 * CYCLES);
    for (what, before, after, most) in resources.into_iter().chain([memory]) {
        let cause = format!("With each cycle of publishing and unpublishing the driver has more {what}.");
        cx.keeps("DRV-131", "NodePublishVolume", after < before + most, &cause)?;
    }
    Ok(())
}

/// A read-only call that is made twenty times leaves no descriptor, thread or process in the driver.
///
/// Kubernetes: a kubelet asks for the statistics of each volume each minute, and sidecars for lists as often.
#[case(needs = [Filesystem, Root, OwnProcess])]
async fn questions_leave_the_driver_as_it_was(cx: &mut Cx) -> Result {
    const WARM_UP: usize = 4;
    const TIMES: usize = 20;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let volume = json!({ "volumeId": node.handle() });
    let at = json!({ "volumeId": node.handle(), "volumePath": node.target("web") });
    let questions = [
        ("NodeGetVolumeStats", at, cx.reports_statistics()),
        ("ListVolumes", json!({}), cx.controller_can("LIST_VOLUMES")),
        ("ControllerGetVolume", volume, cx.controller_can("GET_VOLUME")),
        ("GetCapacity", json!({}), cx.controller_can("GET_CAPACITY")),
        ("ListSnapshots", json!({}), cx.controller_can("LIST_SNAPSHOTS")),
        ("Probe", json!({}), true),
    ];
    for (method, request, _) in questions.into_iter().filter(|(_, _, can)| *can) {
        let mut before = cx.driver_size()?;
        for time in 0..WARM_UP + TIMES {
            if time == WARM_UP {
                before = cx.driver_size()?;
            }
            drop(cx.call(method, request.clone()).await?);
        }
        let after = cx.driver_size()?;
        for (resource, before, after) in after.beside(&before) {
            let cause = format!("With each {method} the driver has more {resource}.");
            cx.keeps("DRV-131", method, after < before + TIMES, &cause)?;
        }
    }
    node.tear_down("web").await
}

/// A call that is refused twenty times leaves no descriptor, thread or process in the driver.
///
/// Kubernetes: a call that fails is made again for as long as its pod is there.
#[case(needs = [Filesystem, StageUnstage, Root, OwnProcess], judges = ["DRV-131"])]
async fn refused_calls_leave_the_driver_as_it_was(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    let elsewhere = node.staging().with_file_name("elsewhere");
    std::fs::create_dir_all(&elsewhere)?;
    let (unknown, _) = cx.unknown_volume();
    let with = |mut request: serde_json::Value, field: &str, value: serde_json::Value| {
        request[field] = value;
        request
    };
    let refused = [
        ("NodeStageVolume", with(node.stage_request(), "volumeId", json!(unknown))),
        ("NodeStageVolume", with(node.stage_request(), "stagingTargetPath", json!(elsewhere))),
        ("NodePublishVolume", with(node.publish_request("web"), "volumeId", json!(unknown))),
        ("NodePublishVolume", with(node.publish_request("web"), "stagingTargetPath", json!(elsewhere))),
    ];
    for (method, request) in refused {
        let undo = async |_: Answer| {
            let undo = json!({ "volumeId": request["volumeId"], "targetPath": node.target("web") });
            drop(cx.call("NodeUnpublishVolume", undo).await?);
            let undo = json!({ "volumeId": request["volumeId"], "stagingTargetPath": elsewhere });
            cx.call("NodeUnstageVolume", undo).await.map(drop)
        };
        refusals_leave_the_driver_as_it_was(cx, method, &request, undo).await?;
    }
    node.undo_stage().await
}

/// A CreateVolume that is refused twenty times leaves no descriptor, thread or process in the driver.
///
/// Kubernetes: a provisioner asks again for as long as the claim is there.
#[case(needs = [Creates, Filesystem, OwnProcess], judges = ["DRV-131"])]
async fn refused_volumes_leave_the_driver_as_it_was(cx: &mut Cx) -> Result {
    const TOO_MUCH: u64 = 1 << 62;
    let exactly = |bytes: u64| json!({ "requiredBytes": bytes.to_string(), "limitBytes": bytes.to_string() });
    let size = cx.ordinary_size();
    let data = cx.volume("data").size(2 * size).create().await?;
    let with = |name: &str, source: serde_json::Value, bytes: u64| -> Result<serde_json::Value> {
        let mut request = cx.create_request(name)?;
        request["volumeContentSource"] = source;
        request["capacityRange"] = exactly(bytes);
        Ok(request)
    };
    let nothing = || serde_json::Value::Null;
    let mut refused = vec![with("data", nothing(), size)?, with("vast", nothing(), TOO_MUCH)?];
    if cx.controller_can("CLONE_VOLUME") {
        refused.push(with("clone", json!({ "volume": { "volumeId": cx.handle(&data) } }), size)?);
    }
    if cx.controller_can("CREATE_DELETE_SNAPSHOT") {
        let snapshot = cx.snapshot("one", &data).await?;
        refused.push(with("restored", json!({ "snapshot": { "snapshotId": snapshot.id } }), size)?);
    }
    for request in refused {
        let undo = async |made: Answer| match made.text("/volume/volumeId") == cx.handle(&data) {
            true => Ok(()),
            false => cx.delete_created(&made).await,
        };
        refusals_leave_the_driver_as_it_was(cx, "CreateVolume", &request, undo).await?;
    }
    Ok(())
}

/// Repeats a call that is refused. One that the driver takes is undone, and not repeated.
async fn refusals_leave_the_driver_as_it_was(
    cx: &Cx,
    method: &'static str,
    request: &serde_json::Value,
    undo: impl AsyncFn(Answer) -> Result,
) -> Result {
    const WARM_UP: usize = 4;
    const TIMES: usize = 20;
    let mut before = cx.driver_size()?;
    for time in 0..WARM_UP + TIMES {
        if time == WARM_UP {
            before = cx.driver_size()?;
        }
        let answer = cx.call(method, request.clone()).await?;
        if answer.is_ok() {
            undo(answer).await?;
            break;
        }
    }
    let after = cx.driver_size()?;
    for (resource, before, after) in after.beside(&before) {
        let cause = format!("With each {method} that is refused the driver has more {resource}.");
        cx.keeps("DRV-131", method, after < before + TIMES, &cause)?;
    }
    Ok(())
}

/// A volume that was used and deleted leaves no file in the driver's directory.
///
/// CSI, DeleteVolume: a file of a volume that is in no books any more cannot be deleted by a call.
#[case(needs = [Creates, Filesystem, Root, OwnProcess], judges = ["DRV-022"])]
async fn deleted_volume_leaves_no_file(cx: &mut Cx) -> Result {
    let cx = &*cx;
    let use_and_delete = async |number| {
        let data = cx.volume(&format!("data-{number}")).create().await?;
        let node = cx.node_calls(&data).await?;
        node.set_up("web").await?;
        node.tear_down("web").await?;
        node.detach().await?;
        cx.delete_volume(&data).await?.succeeds()
    };
    let object = "volume that is created and deleted";
    check_deletion_leaves_no_file(cx, "DeleteVolume", object, 4, use_and_delete).await
}

/// A volume that comes and goes leaves no file in the directory for temporary files.
///
/// Not in CSI: such files stay unnoticed until the node's disk is full.
#[case(needs = [Filesystem, Root, OwnProcess], judges = ["DRV-132"])]
async fn cycles_leave_no_temporary_file(cx: &mut Cx) -> Result {
    let cx = &*cx;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    leaves_no_temporary_file(cx, "NodePublishVolume", async |_| {
        node.set_up("web").await?;
        node.tear_down("web").await
    })
    .await
}

/// A snapshot that is taken and deleted leaves no file in the directory for temporary files.
///
/// Not in CSI: such files stay unnoticed until the node's disk is full.
#[case(needs = [Snapshots, Creates, Filesystem, OwnProcess], judges = ["DRV-132"])]
async fn snapshots_leave_no_temporary_file(cx: &mut Cx) -> Result {
    let cx = &*cx;
    let data = &cx.volume("data").create().await?;
    leaves_no_temporary_file(cx, "CreateSnapshot", async |number| {
        let snapshot = cx.snapshot(&format!("number-{number}"), data).await?;
        cx.delete_snapshot(&snapshot.id).await?.succeeds()
    })
    .await
}

/// A driver with a root of its own has a /tmp of its own, which is not looked at.
async fn leaves_no_temporary_file(cx: &Cx, method: &str, round: impl AsyncFn(usize) -> Result) -> Result {
    const ROUNDS: usize = 4;
    let files = || -> Result<usize> { Ok(std::fs::read_dir("/tmp")?.count()) };
    round(0).await?;
    let before = files()?;
    for number in 1..=ROUNDS {
        round(number).await?;
    }
    let cause = format!("With each {method} there are more files in /tmp.");
    cx.keeps("DRV-132", method, files()? < before + ROUNDS, &cause)
}

/// A driver that ends on SIGTERM leaves its published volumes, and tears them down after its restart.
///
/// Kubernetes: a node plugin is ended by SIGTERM and started again with each update, and the pods stay.
#[case(needs = [Filesystem, Root, OwnProcess, Persistent])]
async fn terminated_driver_leaves_what_is_published(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "kept").await?;
    cx.driver_is_terminated().await;
    let while_away = node.has(&node.target("web"), "kept").await?;
    cx.driver().start().await?;
    let cause = "The published data cannot be read after the driver was asked to end.";
    cx.keeps("DRV-096", "NodePublishVolume", while_away, cause)?;
    if !while_away {
        return Ok(());
    }
    let unpublished =
        node.unpublish("web").await?.asked("of a volume that was published before the driver was ended");
    unpublished.is("DRV-095", &["OK"])?;
    let cause = "NodeUnpublishVolume answered OK after the driver was asked to end and started again, and the target is still mounted.";
    let is_gone = node.mounts_at(&node.target("web"))?.is_empty();
    cx.keeps("DRV-060", "NodeUnpublishVolume", is_gone, cause)?;
    node.undo_stage().await
}

/// A snapshot that was taken before the driver was killed can be restored afterwards.
///
/// Kubernetes: a driver is replaced with each update, and its snapshots are kept for long.
#[case(needs = [Snapshots, Creates, Filesystem, Root, OwnProcess, Persistent])]
async fn snapshot_outlives_a_restart(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = write_and_detach(cx, &data, "before").await?;
    let snapshot = cx.snapshot("one", &data).await?;
    cx.driver().restart().await?;
    let restored = cx.volume("copy").restored_from(&snapshot).create_if_supported().await?;
    let cause = "After a restart no volume can be made from a snapshot that was taken before.";
    cx.keeps("DRV-095", "CreateVolume", restored.is_ok(), cause)?;
    let Ok(copy) = restored else { return Ok(()) };
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    let cause = "After a restart a volume from a snapshot does not have what was in it.";
    let has = copied.has_copied(&copied.target("copy"), &node, "before").await?;
    cx.keeps("DRV-095", "CreateVolume", has, cause)?;
    copied.tear_down("copy").await
}

/// A snapshot that is asked for again after the driver was killed has the fields that it had before.
///
/// CSI, CreateSnapshot: this operation MUST be idempotent.
#[case(needs = [Snapshots, Creates, Filesystem, OwnProcess])]
async fn snapshot_is_told_as_before_a_restart(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let taken = cx.snapshot("one", &data).await?;
    let repeated = cx.take("CreateSnapshot", cx.snapshot_request("one", &data)).await?;
    cx.driver().restart().await?;
    let again = cx.take("CreateSnapshot", cx.snapshot_request("one", &data)).await?;
    let again = again.asked("of a name that it had before a restart");
    again.is("DRV-095", &["OK"])?;
    // What changes without a restart is another fault.
    let is_steady = |field: &&str| repeated.part("/snapshot")[*field] == taken.said[*field];
    let fields = ["snapshotId", "sourceVolumeId", "creationTime", "readyToUse", "sizeBytes"];
    for field in fields.into_iter().filter(is_steady) {
        let cause = format!("After a restart CreateSnapshot answered another `{field}` of a snapshot.");
        let is_same = again.part("/snapshot")[field] == taken.said[field];
        cx.keeps("DRV-095", "CreateSnapshot", is_same, &cause)?;
    }
    Ok(())
}

/// A volume that is attached for reading only is so after a restart of the driver: the same call is OK again.
///
/// CSI, ControllerPublishVolume: this operation MUST be idempotent.
#[case(needs = [Creates, Attaches, AttachesReadOnly, Filesystem, OwnProcess])]
async fn read_only_attachment_outlives_a_restart(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let mut attach = cx.attach_request(&data).await?;
    attach["readonly"] = json!(true);
    cx.call("ControllerUnpublishVolume", super::detach_of(&attach)).await?.succeeds()?;
    cx.call("ControllerPublishVolume", attach.clone()).await?.succeeds()?;
    cx.driver().restart().await?;
    let again = cx.call("ControllerPublishVolume", attach.clone()).await?;
    cx.call("ControllerUnpublishVolume", super::detach_of(&attach)).await?.succeeds()?;
    again.asked("for reading only, as before a restart,").is("DRV-095", &["OK"])
}

/// A device that was created before the driver was killed can be used afterwards, and has what was written to it.
///
/// Kubernetes: a driver is replaced with each update, and its volumes are kept for long.
#[case(needs = [Block, Root, Loop, OwnProcess, Persistent])]
async fn device_outlives_a_restart(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let node = cx.node_calls(&disk).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "before").await?;
    node.tear_down("web").await?;
    cx.driver().restart().await?;
    let refusal = node.refusal("web").await?;
    let method = refusal.as_ref().map_or("NodePublishVolume", Answer::method);
    let code = refusal.as_ref().map_or("OK", Answer::code);
    let cause = format!("{method} of a device that was created before a restart answered {code}.");
    cx.keeps("DRV-095", method, refusal.is_none(), &cause)?;
    if refusal.is_some() {
        return Ok(());
    }
    let cause = "After a restart a device does not have what was written to it before.";
    cx.keeps("DRV-160", "NodePublishVolume", node.has(&node.target("web"), "before").await?, cause)?;
    node.tear_down("web").await
}

/// A killed controller still knows the volumes that it has created, expanded and deleted.
///
/// Kubernetes: a driver is replaced with each update, at any time after an answer.
#[case(needs = [Creates, Filesystem, OwnProcess])]
async fn controller_killed_after_each_call_goes_on(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let request = cx.create_request("lasting")?;
    let made = cx.call(CREATE, request.clone()).await?;
    made.succeeds()?;
    cx.driver().restart().await?;
    let again = cx.call(CREATE, request.clone()).await?.asked("of a name that it had before a restart");
    again.is("DRV-095", &["OK"])?;
    let cause = "CreateVolume of a name that it had before a restart made a second volume.";
    let id = made.part("/volume/volumeId");
    cx.keeps("DRV-095", CREATE, again.part("/volume/volumeId") == id, cause)?;
    let bytes = |answer: &Answer, at: &str| answer.text(at).parse().unwrap_or(0_u64);
    let size = bytes(&made, "/volume/capacityBytes");
    if cx.controller_can("EXPAND_VOLUME") && size > 0 {
        let mut larger =
            json!({ "volumeId": id, "capacityRange": { "requiredBytes": (2 * size).to_string() } });
        larger["volumeCapability"] = request["volumeCapabilities"][0].clone();
        let grown = cx.call("ControllerExpandVolume", larger).await?;
        cx.driver().restart().await?;
        let again = cx.call(CREATE, request.clone()).await?;
        let cause = "After a restart the controller does not know that a volume has grown.";
        let is_known = bytes(&again, "/volume/capacityBytes") >= bytes(&grown, "/capacityBytes");
        cx.keeps("DRV-095", "ControllerExpandVolume", !grown.is_ok() || !again.is_ok() || is_known, cause)?;
    }
    cx.delete_created(&made).await?;
    cx.driver().restart().await?;
    if !cx.controller_can("LIST_VOLUMES") {
        return Ok(());
    }
    // Only ListVolumes counts: ControllerGetVolume of some drivers answers any id.
    let entries = cx.entries_of_id(id.as_str().unwrap_or_default().to_owned()).await;
    let is_listed = entries.is_ok_and(|entries| entries.iter().any(|(method, _)| *method == "ListVolumes"));
    let cause = "A volume that was deleted is there again after a restart.";
    cx.keeps("DRV-095", "DeleteVolume", !is_listed, cause)
}

const CREATE: &str = "CreateVolume";

/// After a driver got SIGTERM in the middle of a call, the repeated call succeeds.
///
/// Kubernetes: a node plugin is ended by SIGTERM and started again with each update.
#[case(needs = [Filesystem, Root, OwnProcess, Persistent])]
async fn terminated_driver_finishes_on_retry(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    tokio::join!(node.stage(), cx.driver_is_terminated()).0.ok();
    cx.driver().start().await?;
    let staged = cx.until_free(|| Box::pin(node.stage())).await?;
    let staged = staged.asked("after the driver was ended in the middle of it");
    staged.is("DRV-095", &["OK"])?;
    tokio::join!(node.publish("web"), cx.driver_is_terminated()).0.ok();
    cx.driver().start().await?;
    let published = cx.until_free(|| Box::pin(node.publish("web"))).await?;
    let published = published.asked("after the driver was ended in the middle of it");
    published.is("DRV-095", &["OK"])?;
    if !staged.is_ok() || !published.is_ok() {
        return Ok(());
    }
    let stacked = node.mounts_at(&node.target("web"))?.len() > 1;
    let cause = "NodePublishVolume after one in whose middle the driver was ended mounted the volume on top of itself.";
    cx.keeps("DRV-053", "NodePublishVolume", !stacked, cause)?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await
}

/// A driver that was killed in the middle of NodePublishVolume, and publishes again, removes its mounts with
/// NodeUnpublishVolume.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(needs = [Filesystem, Root, OwnProcess], judges = ["DRV-060"])]
async fn publish_repeated_after_a_death_is_undone(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    for _ in 0..3 {
        node.stage().await?.succeeds()?;
        cx.driver_dies_at_mount(Box::pin(node.publish("web")), &node.target("web")).await?;
        // What died with the driver may have left a lock, which goes with time.
        let again = cx.until_ok(|| Box::pin(node.publish("web"))).await?;
        again.asked("again, after a death in the middle of it").succeeds()?;
        let unpublished = cx.until_free(|| Box::pin(node.unpublish("web"))).await?;
        unpublished.succeeds()?;
        let cause = "NodePublishVolume was repeated after a death in the middle of it, NodeUnpublishVolume answered OK, and the target is still mounted.";
        let is_gone = node.mounts_at(&node.target("web"))?.is_empty();
        cx.keeps("DRV-060", "NodeUnpublishVolume", is_gone, cause)?;
        node.undo_stage().await?;
    }
    Ok(())
}

/// A driver that was killed in the middle of NodePublishVolume removes its mounts with NodeUnpublishVolume.
///
/// CSI, NodeUnpublishVolume: the CO calls it also when it does not know how NodePublishVolume ended.
#[case(needs = [Filesystem, Root, OwnProcess])]
async fn publish_cut_by_death_is_undone(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let moments = [Some(1), None, Some(4), None, Some(16), None, None];
    for after in moments.map(|after| after.map(Duration::from_millis)) {
        node.stage().await?.succeeds()?;
        match after {
            Some(after) => cx.driver_dies_during(Box::pin(node.publish("web")), after).await?,
            None => cx.driver_dies_at_mount(Box::pin(node.publish("web")), &node.target("web")).await?,
        }
        let unpublished = cx.until_free(|| Box::pin(node.unpublish("web"))).await?;
        let cause = "NodeUnpublishVolume answered OK after a death in the middle of NodePublishVolume, and the target is still mounted.";
        let is_gone = node.mounts_at(&node.target("web"))?.is_empty();
        cx.keeps("DRV-060", "NodeUnpublishVolume", is_gone || !unpublished.is_ok(), cause)?;
        unpublished.succeeds()?;
        node.undo_stage().await?;
    }
    Ok(())
}
