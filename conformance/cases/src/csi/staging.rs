//! Staging that fails, is interrupted, or has special options.

use crate::prelude::*;

/// A failed NodeStageVolume is tried again. Nothing is published before it succeeded.
///
/// CSI, NodePublishVolume: called after NodeStageVolume succeeded, where the driver stages.
#[case(
    needs = [Filesystem, StageUnstage, Root, Persistent],
    waits = "for the node's back-off after each failure")]
async fn failed_stage_is_tried_again(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    cx.fail(Method::Stage, Code::Internal).times(2);

    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Stage data          INTERNAL "injected", 2 times
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// A pod that is deleted while its volume is being staged never gets it, and the volume is unstaged: the next pod can
/// use it.
///
/// CSI, NodeUnstageVolume: the reverse operation of NodeStageVolume.
#[case(needs = [Filesystem, StageUnstage, Root, Persistent])]
async fn pod_deleted_during_stage(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let stage = cx.hold(Method::Stage);

    let web = cx.pod("web").volume(&data, "/data").add().await?;
    stage.reached().await?;
    web.remove().await?;
    stage.release();

    cx.sees(expect![[r#"
        csi    Stage data
        csi    Unstage data
    "#]])
        .await?;

    // A driver without NodeStageVolume does not reach this.
    let next = cx.pod("next").volume(&data, "/data").start().await?;
    next.writes("/data/greeting", "hello").await?;
    next.stop().await
}

/// A volume has the file system type and the mount flags that were asked for.
///
/// CSI, MountVolume: `fs_type` and `mount_flags`.
#[case(needs = [Filesystem, Root, FsTypes, Persistent], judges = ["DRV-043", "DRV-044"])]
async fn file_system_and_mount_flags_are_applied(cx: &mut Cx) -> Result {
    for fs_type in cx.fs_types() {
        let volume = cx.volume(&fs_type).fs_type(&fs_type).mount_option("noatime").create().await?;
        let pod = cx.pod(&format!("on-{fs_type}")).volume(&volume, "/data").start().await?;
        pod.writes("/data/greeting", "hello").await?;
        pod.stop().await?;
    }
    Ok(())
}

/// NodeUnstageVolume at a path where the volume is not staged leaves it where it is.
///
/// CSI, NodeUnstageVolumeRequest.staging_target_path: the path at which the volume was staged.
#[case(needs = [Filesystem, StageUnstage, Root], driver = Shared)]
async fn unstage_of_another_path_leaves_the_volume(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    let elsewhere = node.staging().with_file_name("elsewhere");
    std::fs::create_dir_all(&elsewhere)?;
    // The driver may refuse it, or say that there is nothing to do.
    let undo = json!({ "volumeId": node.handle(), "stagingTargetPath": elsewhere });
    drop(cx.call("NodeUnstageVolume", undo).await?);
    let published = node.publish("web").await?;
    let cause = format!(
        "After NodeUnstageVolume at a path where the volume is not staged, NodePublishVolume answered {}.",
        published.code()
    );
    cx.keeps("DRV-040", "NodeUnstageVolume", published.is_ok(), &cause)?;
    node.tear_down("web").await
}

/// A volume is staged after NodeStageVolume has failed for another request: with a mount flag, or a context, that is wrong.
///
/// CSI, 'Error Scheme': ABORTED while an operation is pending for the volume, and not after it has failed.
#[case(needs = [Filesystem, StageUnstage, Root], judges = ["DRV-094", "DRV-003"], driver = Shared)]
async fn stage_that_failed_is_good_the_next_time(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    // The text of the error must not show a secret.
    cx.adds_a_secret_to_each_call();
    let node = cx.node_calls(&data).await?;
    let good = node.stage_request();
    let mut flagged = good.clone();
    flagged["volumeCapability"]["mount"]["mountFlags"] = json!(["volproof-no-such-flag"]);
    let mut led_astray = good.clone();
    let context = good["volumeContext"].as_object().into_iter().flatten();
    led_astray["volumeContext"] = context
        .map(|(key, _)| (key.clone(), json!("/volproof/no-such")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let reported = cx.call("NodeGetCapabilities", json!({})).await?.part("/capabilities");
    let mut tried = false;
    for wrong in [flagged, led_astray] {
        if node.stage_as(wrong).await?.is_ok() {
            node.undo_stage().await?;
            continue;
        }
        tried = true;
        let afterwards = cx.call("NodeGetCapabilities", json!({})).await?.part("/capabilities");
        let cause = "NodeGetCapabilities answers other capabilities after NodeStageVolume has failed.";
        cx.keeps("DRV-003", "NodeGetCapabilities", afterwards == reported, cause)?;
        let staged = node.stage().await?;
        let cause = "NodeStageVolume is ABORTED after another NodeStageVolume for the volume has failed.";
        cx.keeps("DRV-130", "NodeStageVolume", staged.code() != "Aborted", cause)?;
        staged.succeeds()?;
        node.undo_stage().await?;
    }
    if !tried {
        cx.not_tried("DRV-130", "the driver stages a volume whatever its mount flags and its context");
    }
    Ok(())
}
