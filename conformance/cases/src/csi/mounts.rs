//! A mount as its workload sees it: options, owner and mode of its root, and several targets.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use super::{can_write, set_read_only};
use crate::prelude::*;

/// Options that change what a workload can do with its volume.
const RESTRICTIONS: [&str; 7] = ["ro", "noexec", "nosuid", "nodev", "sync", "dirsync", "mand"];

/// A volume that is published without mount flags has no options that restrict its use.
///
/// CSI, VolumeCapability.MountVolume.mount_flags: the mount options of the volume.
#[case(needs = [Filesystem, Root], driver = Shared)]
async fn no_other_mount_flag_is_in_force(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.ask_with(|asked| asked["mount"]["mountFlags"] = json!([]));
    node.set_up("web").await?;
    let mounts = node.mounts_at(&node.target("web"))?;
    let options = mounts.last().cloned().unwrap_or_default();
    let added: Vec<&str> = options.split(',').filter(|option| RESTRICTIONS.contains(option)).collect();
    let cause = format!("Published without mount flags, the target is mounted with `{}`.", added.join(","));
    cx.keeps("DRV-120", "NodePublishVolume", added.is_empty(), &cause)?;
    node.tear_down("web").await
}

/// The directory that the driver creates at a target is not writable for everyone below the mount.
///
/// CSI, NodePublishVolume.target_path: creation of the target is the responsibility of the SP.
#[case(needs = [Filesystem, Root])]
async fn target_below_the_mount_is_not_open(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let Some(mode) = node.mode_below(&node.target("web"))? else {
        cx.not_tried("DRV-123", "the driver makes neither a directory nor a file at the target");
        return node.tear_down("web").await;
    };
    let cause = "What NodePublishVolume made at the target can be written by everybody when nothing is mounted there.";
    cx.keeps("DRV-123", "NodePublishVolume", mode & 0o002 == 0, cause)?;
    node.tear_down("web").await
}

/// A new volume is empty after its statistics and its condition were asked for.
///
/// Not in CSI: a workload that finds files takes its volume for one that is set up already.
#[case(needs = [Stats, Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn measured_volume_is_empty(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    let found = || -> Result<usize> {
        let entries = std::fs::read_dir(&target)?.flatten().map(|entry| entry.file_name());
        Ok(entries.filter(|name| name != "lost+found").count())
    };
    let before = found()?;
    for _ in 0..2 {
        node.stats(&target).await?.succeeds()?;
    }
    let cause = "NodeGetVolumeStats leaves a file in the volume.";
    cx.keeps("DRV-122", "NodeGetVolumeStats", found()? == before, cause)?;
    node.tear_down("web").await
}

/// A new volume is empty, except for directories of its file system.
///
/// Not in CSI: a workload that finds files takes its volume for one that is set up already.
#[case(needs = [Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn new_volume_is_empty(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let entries = std::fs::read_dir(node.target("web"))?.flatten().map(|entry| entry.file_name());
    let found = entries.filter(|name| name != "lost+found").count();
    let cause = "A new volume has files in it.";
    cx.keeps("DRV-122", "CreateVolume", found == 0, cause)?;
    node.tear_down("web").await
}

/// The owner and the mode that a workload gave to the root of its volume, and to a file in it, stay over publishing
/// and staging.
///
/// Kubernetes: with the policy OnRootMismatch, owner and mode of the root decide whether all files are changed.
#[case(needs = [Filesystem, Root, Owners, Persistent], judges = ["DRV-184"], driver = Shared)]
async fn owner_and_mode_stay(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "owned").await?;
    let given = || -> std::io::Result<()> {
        chown(&target, Some(1234), Some(2345))?;
        chown(target.join("owned"), Some(2345), Some(1234))?;
        std::fs::set_permissions(target.join("owned"), PermissionsExt::from_mode(0o640))?;
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o2770))
    };
    given()?;
    let before = (owned(&target)?, owned(&target.join("owned"))?);
    node.tear_down("web").await?;
    node.set_up("web").await?;
    let cause = "Unpublished, unstaged, staged and published again, the volume has another owner or mode.";
    let after = (owned(&target)?, owned(&target.join("owned"))?);
    cx.keeps("DRV-121", "NodePublishVolume", after == before, cause)?;
    node.publish("web").await?.succeeds()?;
    let after = (owned(&target)?, owned(&target.join("owned"))?);
    let cause = "Published again, the volume has another owner or mode.";
    cx.keeps("DRV-121", "NodePublishVolume", after == before, cause)?;
    node.tear_down("web").await
}

/// The owner and the mode that a workload gave to the root of its volume stay when the volume is asked for again.
///
/// CSI, CreateVolume: this operation MUST be idempotent. A caller that lost the answer repeats the call at any time.
#[case(needs = [Filesystem, Creates, Root, Owners, Persistent], driver = Shared)]
async fn owner_and_mode_stay_when_the_volume_is_asked_for_again(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let request = cx.last_request("CreateVolume")?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    chown(&target, Some(1234), Some(2345))?;
    std::fs::set_permissions(&target, PermissionsExt::from_mode(0o2750))?;
    let before = owned(&target)?;
    node.tear_down("web").await?;
    drop(cx.call("CreateVolume", request).await?);
    node.set_up("web").await?;
    let cause = "After a repeated CreateVolume the root of the volume has another owner or mode.";
    cx.keeps("DRV-121", "CreateVolume", owned(&target)? == before, cause)?;
    node.tear_down("web").await
}

/// The owner and the mode that a workload gave to the root of its volume stay when the driver is restarted.
///
/// Kubernetes: with the policy OnRootMismatch, owner and mode of the root decide whether all files are changed.
#[case(needs = [Filesystem, Root, Owners, OwnProcess, Persistent])]
async fn owner_and_mode_stay_over_a_restart(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    chown(&target, Some(1234), Some(2345))?;
    std::fs::set_permissions(&target, PermissionsExt::from_mode(0o2775))?;
    let before = owned(&target)?;
    cx.driver().restart().await?;
    let cause = "While a restarted driver starts, the root of a published volume gets another owner or mode.";
    cx.keeps("DRV-121", "NodePublishVolume", owned(&target)? == before, cause)?;
    node.tear_down("web").await
}

/// Owner, group and mode of a file.
pub(super) fn owned(path: &Path) -> Result<(u32, u32, u32)> {
    let found = path.metadata()?;
    Ok((found.uid(), found.gid(), found.mode() & 0o7777))
}

/// Of two targets of a volume, the one that is read-only cannot be written and the other can, whichever was first.
///
/// CSI, NodePublishVolumeRequest.readonly: "SP MUST publish the volume in readonly mode" to that target.
#[case(needs = [Filesystem, Shared, Root, Persistent], judges = ["DRV-050", "DRV-184"], driver = Shared)]
async fn read_only_target_is_beside_a_writable_one(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    for first_is_read_only in [false, true] {
        if !first_is_read_only {
            node.publish("writer").await?.succeeds()?;
        }
        node.publish_as("reader", set_read_only).await?.succeeds()?;
        if first_is_read_only {
            node.publish("writer").await?.succeeds()?;
        }
        node.is_published("reader")?;
        let cause = "A target is read-only after another target of the volume was published read-only.";
        cx.keeps("DRV-092", "NodePublishVolume", can_write(&node.target("writer")), cause)?;
        let cause = format!("{FOR_WRITING} (beside a target for writing)");
        cx.keeps("DRV-050", "NodePublishVolume", !can_write(&node.target("reader")), &cause)?;
        node.undo_publish("reader").await?;
        let cause = "A target is read-only after another, read-only one was unpublished.";
        cx.keeps("DRV-092", "NodeUnpublishVolume", can_write(&node.target("writer")), cause)?;
        node.undo_publish("writer").await?;
    }
    node.undo_stage().await
}
