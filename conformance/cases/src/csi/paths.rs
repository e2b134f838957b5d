//! Names and ids that lead out of a driver's directories if the driver uses them as paths.

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
        cx.keeps("DRV-018", "CreateVolume", other.is_untouched(), cause)?;
        cx.unmake(&made).await?;
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
        cx.keeps("DRV-018", "DeleteVolume", other.is_untouched(), cause)?;
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
