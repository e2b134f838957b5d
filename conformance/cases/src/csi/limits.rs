//! The limit of volumes on a node.

use crate::prelude::*;

/// If the limit is higher than this, the case is not tried.
const MOST: usize = 40;

/// A node that carries as many volumes as it can is given no more.
///
/// CSI, ControllerPublishVolume: RESOURCE_EXHAUSTED if the node has its maximum of volumes.
#[case(needs = [Creates, Attaches, Filesystem, AttachLimit], driver = Shared)]
async fn node_gets_no_more_volumes_than_it_carries(cx: &mut Cx) -> Result {
    let most = cx.most_volumes();
    if most > MOST {
        cx.not_tried("DRV-035", "the node carries more volumes than are made here");
        return Ok(());
    }
    let mut attached = Vec::new();
    for number in 0..most {
        let volume = cx.volume(&format!("data-{number}")).create().await?;
        attached.push(cx.node_calls(&volume).await?);
    }
    let one_more = cx.volume("one-more").create().await?;
    let request = cx.attach_request(&one_more).await?;
    let answer = cx.call("ControllerPublishVolume", request.clone()).await?;
    // Detached before the answer is judged: a failed case must leave no attachment.
    let detach = json!({ "volumeId": request["volumeId"], "nodeId": request["nodeId"] });
    cx.call("ControllerUnpublishVolume", detach.clone()).await?.succeeds()?;
    answer.asked("of one volume more than the node carries").is("DRV-035", &["ResourceExhausted"])?;
    let Some(first) = attached.first() else { return Ok(()) };
    first.detach().await?;
    let after = cx.call("ControllerPublishVolume", request).await?;
    cx.call("ControllerUnpublishVolume", detach).await?.succeeds()?;
    let cause =
        "ControllerUnpublishVolume answered OK, and the node still carries no other volume in its place.";
    cx.keeps("DRV-113", "ControllerUnpublishVolume", after.is_ok(), cause)
}
