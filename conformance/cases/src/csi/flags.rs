//! Access modes and mount flags.

use crate::prelude::*;

/// A volume for a single writer is published at one target only.
///
/// CSI, NodePublishVolume: FAILED_PRECONDITION for a second target of a volume with SINGLE_NODE_SINGLE_WRITER.
#[case(needs = [Filesystem, Creates, Root], judges = ["DRV-045", "DRV-060"], driver = Shared)]
async fn single_writer_has_one_target(cx: &mut Cx) -> Result {
    if !cx.distinguishes_writers() {
        cx.not_tried("DRV-059", "the driver does not report SINGLE_NODE_MULTI_WRITER");
        return Ok(());
    }
    let data = cx.volume("data").single_pod().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let again = node.publish("web").await?.asked("of a volume for a single writer at its target again");
    again.is("DRV-101", &["OK"])?;
    let answer = node.publish("other").await?.asked("of a volume for a single writer at a second target");
    answer.is("DRV-059", &["FailedPrecondition"])?;
    if answer.is_ok() {
        node.undo_publish("other").await?;
    } else {
        let cause = "NodePublishVolume refused a second target of a volume for a single writer, and mounted the volume there.";
        let is_free = node.mounts_at(&node.target("other"))?.is_empty();
        cx.keeps("DRV-045", "NodePublishVolume", is_free, cause)?;
        // A caller that does not know how it ended undoes it.
        drop(node.unpublish("other").await?);
        let cause = "NodeUnpublishVolume, after a NodePublishVolume that was refused, answered OK, and the target is still mounted.";
        let is_free = node.mounts_at(&node.target("other"))?.is_empty();
        cx.keeps("DRV-060", "NodeUnpublishVolume", is_free, cause)?;
    }
    node.tear_down("web").await
}

/// A volume for several writers of a node is published at several targets, and each shows the same files.
///
/// CSI, AccessMode: SINGLE_NODE_MULTI_WRITER can be published as read/write at multiple targets of a single node.
#[case(needs = [Filesystem, Shared, Creates, Root, Persistent], driver = Shared)]
async fn several_writers_have_their_targets(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let answer = node.publish("other").await?.asked("of a volume for several writers at a second target");
    answer.is("DRV-092", &["OK"])?;
    node.writes(&node.target("web"), "shared").await?;
    let cause = "What is written at one target of a volume is not at its other target.";
    cx.keeps("DRV-092", "NodePublishVolume", node.has(&node.target("other"), "shared").await?, cause)?;
    node.undo_publish("other").await?;
    node.tear_down("web").await
}

/// A plugin with SINGLE_NODE_MULTI_WRITER still accepts SINGLE_NODE_WRITER.
///
/// CSI, NodePublishVolume: plugins MUST accept SINGLE_NODE_WRITER, in order to permit older COs to continue working.
#[case(needs = [Filesystem, Creates], driver = Shared)]
async fn single_node_writer_is_accepted(cx: &mut Cx) -> Result {
    if !cx.distinguishes_writers() {
        cx.not_tried("DRV-114", "the driver does not report SINGLE_NODE_MULTI_WRITER");
        return Ok(());
    }
    cx.volume("data").create().await?;
    let mut request = cx.create_request("for-older-callers")?;
    request["volumeCapabilities"][0]["accessMode"] = json!({ "mode": "SINGLE_NODE_WRITER" });
    let made = cx.call("CreateVolume", request.clone()).await?.asked("for SINGLE_NODE_WRITER");
    made.is("DRV-114", &["OK"])?;
    let volume = made.text("/volume/volumeId");
    let asked = json!({ "volumeId": volume, "volumeCapabilities": request["volumeCapabilities"] });
    let confirmed = cx.call("ValidateVolumeCapabilities", asked).await?;
    cx.delete_created(&made).await?;
    let cause = "ValidateVolumeCapabilities does not confirm SINGLE_NODE_WRITER of a volume that was created with it.";
    cx.keeps("DRV-114", "ValidateVolumeCapabilities", confirmed.has("/confirmed"), cause)
}

/// The mount flags of a request are in force at the target.
///
/// CSI, VolumeCapability.MountVolume.mount_flags: the mount options of the volume.
#[case(needs = [Filesystem, Root], driver = Shared)]
async fn requested_mount_flags_are_in_force(cx: &mut Cx) -> Result {
    let data = cx.volume("data").mount_option("noexec").mount_option("nosuid").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let mounts = node.mounts_at(&node.target("web"))?;
    let options = mounts.last().cloned().unwrap_or_default();
    for flag in ["noexec", "nosuid"] {
        let is_there = options.split(',').any(|option| option == flag);
        let cause = format!(
            "{FLAG_NOT_IN_FORCE} (asked for `{flag}`, mounted with `{}`)",
            options.split(',').take_while(|option| !option.contains('=')).collect::<Vec<_>>().join(",")
        );
        cx.keeps("DRV-057", "NodePublishVolume", is_there || mounts.is_empty(), &cause)?;
    }
    node.tear_down("web").await
}

/// The mount flags of one volume are not in force for another one, which is staged and published after it.
///
/// CSI, VolumeCapability.MountVolume.mount_flags: they are those of the volume in the request.
#[case(needs = [Filesystem, Root, TwoVolumes], driver = Shared)]
async fn mount_flags_are_those_of_one_volume(cx: &mut Cx) -> Result {
    let first = cx.volume("first").mount_option("noexec").mount_option("nosuid").create().await?;
    let second = cx.volume("second").create().await?;
    let (flagged, plain) = (cx.node_calls(&first).await?, cx.node_calls(&second).await?);
    plain.ask_with(|asked| asked["mount"]["mountFlags"] = json!([]));
    flagged.set_up("web").await?;
    plain.set_up("web").await?;
    for (method, path) in [("NodePublishVolume", plain.target("web")), ("NodeStageVolume", plain.staging())] {
        let options = plain.mounts_at(&path)?.last().cloned().unwrap_or_default();
        let taken: Vec<&str> =
            options.split(',').filter(|flag| ["noexec", "nosuid"].contains(flag)).collect();
        let cause = format!(
            "{method} without mount flags, after another volume with `noexec` and `nosuid`, mounted with `{}`.",
            taken.join(",")
        );
        cx.keeps("DRV-120", method, taken.is_empty(), &cause)?;
    }
    plain.tear_down("web").await?;
    flagged.tear_down("web").await
}
