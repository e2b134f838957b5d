//! The limit of volumes on a node.

use std::time::Duration;

use super::detach_of;
use crate::prelude::*;

/// The highest limit that the cases try: they create as many volumes as the node carries.
const HIGHEST_LIMIT: usize = 40;

/// A node that carries as many volumes as it can is given no more.
///
/// CSI, ControllerPublishVolume: RESOURCE_EXHAUSTED if the node has its maximum of volumes.
#[case(needs = [Creates, Attaches, Filesystem, AttachLimit], driver = Shared)]
async fn node_gets_no_more_volumes_than_it_carries(cx: &mut Cx) -> Result {
    let limit = cx.most_volumes();
    if limit > HIGHEST_LIMIT {
        cx.not_tried("DRV-035", "the node carries more volumes than are made here");
        return Ok(());
    }
    let mut attached = Vec::new();
    for number in 0..limit {
        let volume = cx.volume(&format!("data-{number}")).create().await?;
        attached.push(cx.node_calls(&volume).await?);
    }
    let one_more = cx.volume("one-more").create().await?;
    let request = cx.attach_request(&one_more).await?;
    let answer = cx.call("ControllerPublishVolume", request.clone()).await?;
    // Detached before the answer is judged: a failed case must leave no attachment.
    let detach = detach_of(&request);
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

/// A volume of a node that carries as many volumes as it can is published to it again, and frees its place when it is
/// unpublished from all nodes.
///
/// CSI, ControllerPublishVolume: this operation MUST be idempotent.
/// CSI, ControllerUnpublishVolumeRequest.node_id is OPTIONAL: without it the volume is unpublished from all nodes.
#[case(needs = [Creates, Attaches, Filesystem, AttachLimit, TwoVolumes], judges = ["DRV-034"], driver = Shared)]
async fn full_node_keeps_and_frees_its_volumes(cx: &mut Cx) -> Result {
    let limit = cx.most_volumes();
    if limit > HIGHEST_LIMIT {
        cx.not_tried("DRV-030", "the node carries more volumes than are made here");
        return Ok(());
    }
    let mut attached = Vec::new();
    for number in 0..limit {
        let volume = cx.volume(&format!("data-{number}")).create().await?;
        let request = cx.attach_request(&volume).await?;
        attached.push((request, cx.node_calls(&volume).await?));
    }
    let Some((request, first)) = attached.first() else { return Ok(()) };
    let again = cx.call("ControllerPublishVolume", request.clone()).await?;
    again.asked("that was made already, on a node that carries no more volumes,").is("DRV-030", &["OK"])?;

    let one_more = cx.volume("one-more").create().await?;
    let more = cx.attach_request(&one_more).await?;
    let detached = cx.call("ControllerUnpublishVolume", json!({ "volumeId": first.handle() })).await?;
    detached.asked("without a node").is("DRV-034", &["OK"])?;
    let after = cx.call("ControllerPublishVolume", more.clone()).await?;
    let detach = detach_of(&more);
    cx.call("ControllerUnpublishVolume", detach).await?.succeeds()?;
    let cause = "ControllerUnpublishVolume without a node answered OK, and the volume still takes its place on the node.";
    cx.keeps("DRV-034", "ControllerUnpublishVolume", after.is_ok(), cause)
}

/// The limit of a node is the same while it has a volume: it counts all volumes, and not those that may still come.
///
/// CSI, NodeGetInfoResponse.max_volumes_per_node: the maximum number of volumes that can be published to the node.
#[case(needs = [Creates, Attaches, Filesystem, AttachLimit], driver = Shared)]
async fn limit_includes_the_volumes_of_the_node(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let limit = async || -> Result<i64> {
        let info = cx.call("NodeGetInfo", json!({})).await?;
        Ok(info.text("/maxVolumesPerNode").parse().unwrap_or(0))
    };
    let node = cx.node_calls(&data).await?;
    let with = limit().await?;
    node.detach().await?;
    let without = limit().await?;
    node.attach_again().await?;
    let with_again = limit().await?;
    node.detach().await?;
    // Other disks may be attached to the node meanwhile: the driver is at fault only if both limits with the volume are
    // the same, and lower than the limit without it.
    let cause = format!(
        "NodeGetInfo answered a limit of {without} volumes for a node without the volume, and of {with} for one with it."
    );
    cx.keeps("DRV-035", "NodeGetInfo", with != with_again || with >= without, &cause)
}

/// The limit of a node stays the same when it is refreshed while a pod has a volume: from time to time, and at once when an
/// attachment fails because the node is full.
///
/// CSI, NodeGetInfoResponse.max_volumes_per_node: the maximum number of volumes that can be published to the node.
/// Kubernetes, CSIDriver: nodeAllocatableUpdatePeriodSeconds.
#[case(needs = [Creates, Attaches, Filesystem, AttachLimit, TwoVolumes, Root])]
async fn refreshed_limit_includes_the_volumes_of_the_node(cx: &mut Cx) -> Result {
    const PERIOD: Duration = Duration::from_secs(60);
    let before = cx.volume_limit().await?;
    let (data, more) = (cx.volume("data").create().await?, cx.volume("more").create().await?);
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    cx.refreshes_volume_limit(PERIOD)?;
    let is_kept = |after: i32| {
        let cause = format!(
            "NodeGetInfo answered a limit of {before} volumes before the node had one, and of {after} when the limit was refreshed."
        );
        cx.keeps("DRV-035", "NodeGetInfo", after >= before, &cause)
    };

    cx.removes_volume_limit()?;
    cx.time_passes(PERIOD).await?;
    is_kept(cx.volume_limit().await?)?;

    cx.removes_volume_limit()?;
    cx.fail(Method::Attach, Code::ResourceExhausted).times(1);
    let next = cx.pod("next").volume(&more, "/data").add().await?;
    is_kept(cx.volume_limit().await?)?;
    next.stop().await?;
    web.stop().await
}

/// A volume that is attached to its node again and again takes one place there.
///
/// CSI, ControllerPublishVolume: this operation MUST be idempotent.
#[case(needs = [Creates, Attaches, Filesystem, AttachLimit, TwoVolumes], driver = Shared)]
async fn repeated_attachment_takes_one_place(cx: &mut Cx) -> Result {
    let limit = cx.most_volumes();
    if limit > HIGHEST_LIMIT {
        cx.not_tried("DRV-030", "the node carries more volumes than are made here");
        return Ok(());
    }
    let data = cx.volume("data").create().await?;
    let request = cx.attach_request(&data).await?;
    // Attaches the volume.
    drop(cx.node_calls(&data).await?);
    for _ in 0..limit {
        let again = cx.call("ControllerPublishVolume", request.clone()).await?;
        again.asked("that was made already").is("DRV-030", &["OK"])?;
    }
    let mut others = Vec::new();
    for number in 1..limit {
        others.push(cx.volume(&format!("other-{number}")).create().await?);
    }
    let (mut refused, mut attached) = (0, Vec::new());
    for other in &others {
        let attach = cx.attach_request(other).await?;
        let answer = cx.call("ControllerPublishVolume", attach.clone()).await?;
        refused += usize::from(!answer.is_ok());
        attached.push(attach);
    }
    // Detached before the answers are judged: a failed case must leave no attachment.
    for attach in attached {
        let detach = detach_of(&attach);
        cx.call("ControllerUnpublishVolume", detach).await?.succeeds()?;
    }
    let cause = format!(
        "After a volume was published to its node {limit} times more, {refused} volumes of those that the node carries beside it were refused."
    );
    cx.keeps("DRV-030", "ControllerPublishVolume", refused == 0, &cause)
}
