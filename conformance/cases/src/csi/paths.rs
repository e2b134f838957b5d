//! Names and ids that lead out of a driver's directories if the driver uses them as paths.

use super::mounts::owned;
use crate::prelude::*;

/// A name that is a path into another directory of the node creates no file there.
///
/// CVE-2026-3864 and others: a caller chooses names, and drivers make paths of them.
#[case(needs = [Creates, Filesystem, Root], driver = Shared)]
async fn name_leads_to_no_other_directory(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let other = cx.node_calls(&data).await?.makes_other_directory("names")?;
    let mut request = cx.last_request("CreateVolume")?;
    for name in other.paths_to("escaped") {
        request["name"] = json!(name);
        // The driver may refuse the name.
        let made = cx.call("CreateVolume", request.clone()).await?;
        let cause =
            "CreateVolume created a file at the path in its name, in a directory that is not the driver's.";
        let was_untouched = other.is_untouched();
        cx.keeps("DRV-018", "CreateVolume", was_untouched, cause)?;
        cx.delete_created(&made).await?;
        if !was_untouched {
            return Ok(());
        }
        let cause = "DeleteVolume removed what is at the path in its volume's name, in a directory that is not the driver's.";
        cx.keeps("DRV-018", "DeleteVolume", other.is_untouched(), cause)?;
    }
    Ok(())
}

/// A volume id that is a path into another directory of the node removes and mounts nothing there.
///
/// CVE-2026-3864 and others: the caller of DeleteVolume may have chosen the id.
#[case(needs = [Creates, Filesystem, Root], driver = Shared)]
async fn id_leads_to_no_other_directory(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let other = node.makes_other_directory("ids")?;
    for id in other.paths_to("kept") {
        drop(cx.call("DeleteVolume", json!({ "volumeId": id })).await?);
        let cause =
            "DeleteVolume removed what is at the path in its id, in a directory that is not the driver's.";
        let was_untouched = other.is_untouched();
        cx.keeps("DRV-018", "DeleteVolume", was_untouched, cause)?;
        if !was_untouched {
            return Ok(());
        }
        let mut publish = node.publish_request("web");
        publish["volumeId"] = json!(id);
        let unpublish = json!({ "volumeId": id, "targetPath": publish["targetPath"] });
        drop(cx.call("NodePublishVolume", publish).await?);
        drop(cx.call("NodeUnpublishVolume", unpublish).await?);
        let cause = "Node calls changed what is at the path in their volume's id, in a directory that is not the driver's.";
        cx.keeps("DRV-018", "NodePublishVolume", other.is_untouched(), cause)?;
    }
    Ok(())
}

/// Calls do not follow a symbolic link in the root of a volume: its target stays as it was.
///
/// CSI, NodePublishVolume: the path at which to publish, and no other. A workload makes links that lead anywhere.
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn link_in_a_volume_leads_to_no_other_directory(cx: &mut Cx) -> Result {
    let cause = "Node calls changed what symbolic links in the root of a volume lead to.";
    let [by_node_calls, by_deletion] = use_volume_with_links(cx, &[""], None).await?;
    cx.keeps("DRV-076", "NodePublishVolume", by_node_calls, cause)?;
    let cause = "DeleteVolume changed what symbolic links in the root of a volume lead to.";
    cx.keeps("DRV-076", "DeleteVolume", by_deletion, cause)
}

/// Giving a volume to a group does not follow a symbolic link in the volume: its target keeps its owner and mode.
///
/// CSI, VolumeCapability.MountVolume.volume_mount_group: the group is that of the volume. A workload makes links that lead
/// anywhere.
#[case(needs = [Filesystem, GivesGroups, Root, Owners, Persistent], driver = Shared)]
async fn link_in_a_volume_leads_to_no_other_group(cx: &mut Cx) -> Result {
    let cause = "With `volume_mount_group`, node calls changed what symbolic links in the volume lead to.";
    let [by_node_calls, _] = use_volume_with_links(cx, &["", "below"], Some("4711")).await?;
    cx.keeps("DRV-076", "NodePublishVolume", by_node_calls, cause)
}

/// Makes symbolic links in these directories of a volume, publishes and unpublishes it once more, with `group` as its mount
/// group, and deletes it. Returns whether the links' targets were unchanged after the node calls, and after DeleteVolume.
async fn use_volume_with_links(cx: &Cx, directories: &[&str], group: Option<&str>) -> Result<[bool; 2]> {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let other = node.makes_other_directory("linked")?;
    let [.., absolute] = other.paths_to("kept");
    let kept = std::path::PathBuf::from(absolute);
    let owners = || -> Result<_> { Ok((owned(&kept)?, owned(&kept.join("file"))?)) };
    let before = owners()?;
    node.set_up("web").await?;
    for directory in directories {
        let place = node.target("web").join(directory);
        std::fs::create_dir_all(&place)?;
        std::os::unix::fs::symlink(kept.join("file"), place.join("file"))?;
        std::os::unix::fs::symlink(&kept, place.join("directory"))?;
    }
    node.tear_down("web").await?;
    if let Some(group) = group {
        node.ask_with(|asked| asked["mount"]["volumeMountGroup"] = json!(group));
    }
    node.set_up("web").await?;
    node.tear_down("web").await?;
    let by_node_calls = other.is_untouched() && owners()? == before;
    node.detach().await?;
    // The manifest may name an existing volume, which is not deleted.
    drop(cx.delete_volume(&data).await?);
    Ok([by_node_calls, other.is_untouched() && owners()? == before])
}
