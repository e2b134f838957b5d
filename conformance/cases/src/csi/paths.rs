//! Names and ids that lead out of a driver's directories if the driver uses them as paths.

use super::mounts::owned;
use crate::prelude::*;

/// A name that leads to another directory of the node makes no file there.
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
            "CreateVolume made a file where its name leads to, in a directory that is not the driver's.";
        let was_untouched = other.is_untouched();
        cx.keeps("DRV-018", "CreateVolume", was_untouched, cause)?;
        cx.unmake(&made).await?;
        if !was_untouched {
            return Ok(());
        }
        let cause =
            "DeleteVolume removed what its volume's name leads to, in a directory that is not the driver's.";
        cx.keeps("DRV-018", "DeleteVolume", other.is_untouched(), cause)?;
    }
    Ok(())
}

/// An id that leads to another directory of the node removes and mounts nothing there.
///
/// CVE-2026-3864 and others: the caller of DeleteVolume may have chosen the id.
#[case(needs = [Creates, Filesystem, Root], driver = Shared)]
async fn id_leads_to_no_other_directory(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let other = node.makes_other_directory("ids")?;
    for id in other.paths_to("kept") {
        drop(cx.call("DeleteVolume", json!({ "volumeId": id })).await?);
        let cause = "DeleteVolume removed what its id leads to, in a directory that is not the driver's.";
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
        let cause =
            "Node calls changed what their volume's id leads to, in a directory that is not the driver's.";
        cx.keeps("DRV-018", "NodePublishVolume", other.is_untouched(), cause)?;
    }
    Ok(())
}

/// A symbolic link in the root of a volume leads no call out of the volume: what it leads to stays as it was.
///
/// CSI, NodePublishVolume: the path at which to publish, and no other. A workload makes links that lead anywhere.
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn link_in_a_volume_leads_to_no_other_directory(cx: &mut Cx) -> Result {
    let cause = "Node calls changed what symbolic links in the root of a volume lead to.";
    let [by_node_calls, by_deletion] = links_are_not_followed(cx, &[""], None).await?;
    cx.keeps("DRV-076", "NodePublishVolume", by_node_calls, cause)?;
    let cause = "DeleteVolume changed what symbolic links in the root of a volume lead to.";
    cx.keeps("DRV-076", "DeleteVolume", by_deletion, cause)
}

/// A symbolic link in a volume is not followed when the volume is given to a group: what it leads to keeps its owner and
/// mode.
///
/// CSI, VolumeCapability.MountVolume.volume_mount_group: the group is that of the volume. A workload makes links that lead
/// anywhere.
#[case(needs = [Filesystem, GivesGroups, Root, Owners, Persistent], driver = Shared)]
async fn link_in_a_volume_leads_to_no_other_group(cx: &mut Cx) -> Result {
    let cause = "With `volume_mount_group`, node calls changed what symbolic links in the volume lead to.";
    let [by_node_calls, _] = links_are_not_followed(cx, &["", "below"], Some("4711")).await?;
    cx.keeps("DRV-076", "NodePublishVolume", by_node_calls, cause)
}

/// Whether node calls, and the deletion of the volume, leave alone what links in these directories of a volume lead to.
/// `group` is given to the volume when the links are there.
async fn links_are_not_followed(cx: &Cx, directories: &[&str], group: Option<&str>) -> Result<[bool; 2]> {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let other = node.makes_other_directory("linked")?;
    let kept = std::path::PathBuf::from(&other.paths_to("kept")[2]);
    let seen = || -> Result<_> { Ok((owned(&kept)?, owned(&kept.join("file"))?)) };
    let before = seen()?;
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
    let by_node_calls = other.is_untouched() && seen()? == before;
    node.detach().await?;
    // A volume that the manifest names stays.
    drop(cx.delete_volume(&data).await?);
    Ok([by_node_calls, other.is_untouched() && seen()? == before])
}
