//! Concurrent and cancelled node calls. The mounts are checked when no call is under way.

use std::time::Duration;

use super::{STAGE_TO_UNSTAGE, publish, stage, unpublish, unstage};
use crate::prelude::*;

/// Concurrent NodeStageVolume calls for one volume stage it once: each call is OK or ABORTED, and there is one mount.
///
/// CSI, 'Concurrency': the plugin SHOULD handle concurrent calls for one volume as gracefully as possible.
#[case(needs = [Filesystem, StageUnstage, Root], judges = ["DRV-130"], driver = Shared)]
async fn stages_at_once_are_one_stage(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    for _ in 0..4 {
        let answers = cx.at_once((0..8).map(|_| stage(&node)).collect()).await?;
        let odd = answers.iter().find(|answer| !matches!(answer.code(), "OK" | "Aborted"));
        let again = cx.until_free(|| stage(&node)).await?;
        let stacked = node.mounts_at(&node.staging())?.len() > 1;
        let cause = match odd {
            Some(odd) => {
                format!("Of 8 concurrent NodeStageVolume calls for one volume, one answered {}.", odd.code())
            }
            None if stacked => {
                "8 concurrent NodeStageVolume calls mounted the volume on top of itself.".to_owned()
            }
            None => format!("After 8 concurrent NodeStageVolume calls, one more answered {}.", again.code()),
        };
        let is_good = odd.is_none() && !stacked && again.is_ok();
        cx.keeps("DRV-091", "NodeStageVolume", is_good, &cause)?;
        if !is_good {
            return Ok(());
        }
        node.undo_stage().await?;
    }
    Ok(())
}

/// Concurrent calls for different volumes succeed: none is ABORTED because of the other volume.
///
/// CSI, 'Error Scheme': ABORTED means that an operation is pending for the same volume.
#[case(needs = [Filesystem, Root, TwoVolumes], judges = ["DRV-093"], driver = Shared)]
async fn volumes_come_and_go_at_once(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let nodes = [cx.node_calls(&one).await?, cx.node_calls(&two).await?];
    for _ in 0..3 {
        for step in STAGE_TO_UNSTAGE {
            for answer in cx.at_once(nodes.iter().map(step).collect()).await? {
                let cause = "A call was ABORTED while only calls for another volume were under way.";
                cx.keeps("DRV-092", answer.method(), answer.code() != "Aborted", cause)?;
                answer.succeeds()?;
            }
        }
    }
    Ok(())
}

/// The statistics of a volume are answered while another volume is staged.
///
/// CSI, 'Error Scheme': ABORTED means that an operation is pending for the same volume.
#[case(needs = [Stats, Filesystem, StageUnstage, Root, TwoVolumes], driver = Shared)]
async fn statistics_are_answered_beside_another_volume(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let (one, two) = (cx.node_calls(&one).await?, cx.node_calls(&two).await?);
    let target = one.target("web");
    one.set_up("web").await?;
    for _ in 0..4 {
        let mut calls = vec![stage(&two)];
        calls.extend((0..6).map(|_| -> Call { Box::pin(one.stats(&target)) }));
        for answer in cx.at_once(calls).await? {
            let cause = "A call was ABORTED while only calls for another volume, or those that change nothing, were under way.";
            cx.keeps("DRV-092", answer.method(), answer.code() != "Aborted", cause)?;
            answer.succeeds()?;
        }
        two.undo_stage().await?;
    }
    one.tear_down("web").await
}

/// Concurrent calls publish a shared volume at several targets, and unpublish it from all of them.
///
/// CSI, NodePublishVolume: the volume may be published at several targets of a node.
#[case(needs = [Filesystem, Shared, Root, Persistent], driver = Shared)]
async fn targets_of_a_volume_come_and_go_at_once(cx: &mut Cx) -> Result {
    const TARGETS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    let all = |make: fn(&NodeCalls, &str) -> Call| TARGETS.iter().map(|target| make(&node, target)).collect();
    let publish_at: fn(&NodeCalls, &str) -> Call = |node, target| Box::pin(node.publish(target));
    cx.at_once(all(publish_at)).await?;
    for target in TARGETS {
        // A call that was ABORTED is repeated.
        cx.until_free(|| publish_at(&node, target)).await?.succeeds()?;
    }
    node.writes(&node.target("a"), "shared").await?;
    for target in TARGETS {
        let cause = "After concurrent NodePublishVolume calls, one of the targets does not show the volume.";
        let is_there = node.has(&node.target(target), "shared").await?;
        cx.keeps("DRV-092", "NodePublishVolume", is_there, cause)?;
    }
    let unpublish_at: fn(&NodeCalls, &str) -> Call = |node, target| Box::pin(node.unpublish(target));
    cx.at_once(all(unpublish_at)).await?;
    for target in TARGETS {
        cx.until_free(|| unpublish_at(&node, target)).await?.succeeds()?;
        let cause = "NodeUnpublishVolume answered OK, but its target is still mounted.";
        cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&node.target(target))?.is_empty(), cause)?;
    }
    node.undo_stage().await
}

/// After any two concurrent node calls for one volume, it can be unpublished, unstaged and used again.
///
/// CSI, 'Concurrency': the CO may lose its state and make several calls for one volume concurrently.
#[case(needs = [Filesystem, Root, Persistent], judges = ["DRV-093"], driver = Shared)]
async fn any_two_calls_at_once_come_to_rest(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let mut seed = cx.seed();
    for (number, first) in STAGE_TO_UNSTAGE.iter().enumerate() {
        for second in &STAGE_TO_UNSTAGE[number..] {
            // The seed decides whether the volume is published before the pair of calls, and which call is the first.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if seed >> 62 & 1 == 1 {
                node.set_up("web").await?;
            }
            let mut pair = vec![first(&node), second(&node)];
            if seed >> 63 == 1 {
                pair.reverse();
            }
            cx.at_once(pair).await?;
            if !can_be_torn_down(cx, &node).await? {
                return Ok(());
            }
        }
    }
    node.set_up("web").await?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await
}

/// Unpublishes and unstages a volume from any state. Returns whether both calls succeed and no mount is left.
async fn can_be_torn_down(cx: &Cx, node: &NodeCalls) -> Result<bool> {
    let mut unpublished = cx.until_free(|| unpublish(node)).await?;
    let mut unstaged = cx.until_free(|| unstage(node)).await?;
    if !unpublished.is_ok() || !unstaged.is_ok() {
        // A cancelled call may still have been under way.
        unpublished = cx.until_ok(|| unpublish(node)).await?;
        unstaged = cx.until_ok(|| unstage(node)).await?;
    }
    let is_mounted =
        !node.mounts_at(&node.target("web"))?.is_empty() || !node.mounts_at(&node.staging())?.is_empty();
    let cause = match is_mounted {
        true => {
            "Concurrent node calls left a mount that NodeUnpublishVolume and NodeUnstageVolume do not remove."
        }
        false => "After concurrent node calls, the volume cannot be unpublished and unstaged.",
    };
    let is_good = unpublished.is_ok() && unstaged.is_ok() && !is_mounted;
    cx.keeps("DRV-091", "NodeUnstageVolume", is_good, cause)?;
    Ok(is_good)
}

/// A cancelled call succeeds when it is repeated, and there is one mount of the volume.
///
/// CSI, 'Timeouts': the CO may retry a call that it cancelled.
#[case(needs = [Filesystem, Root, Persistent], driver = Shared)]
async fn cancelled_call_is_good_the_next_time(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    for after in [1, 4, 16, 64].map(Duration::from_millis) {
        cx.cancels(stage(&node), after).await;
        repeat_cancelled(cx, "DRV-100", || stage(&node)).await?;
        cx.cancels(publish(&node), after / 4).await;
        repeat_cancelled(cx, "DRV-101", || publish(&node)).await?;
        let stacked = node.mounts_at(&node.target("web"))?.len() > 1;
        // The cancelled call may still be under way, so this is one of two concurrent calls: CSI says SHOULD for those.
        let cause = "NodePublishVolume, repeated while a cancelled one was under way, mounted the volume on top of itself.";
        cx.keeps("DRV-091", "NodePublishVolume", !stacked, cause)?;
        if stacked {
            return can_be_torn_down(cx, &node).await.map(drop);
        }
        node.writes(&node.target("web"), "after").await?;
        cx.cancels(unpublish(&node), after / 4).await;
        cx.cancels(unstage(&node), after / 4).await;
        if !can_be_torn_down(cx, &node).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Repeats a cancelled call. It should wait or be ABORTED while the cancelled one is still under way, and must be OK
/// afterwards.
async fn repeat_cancelled(cx: &Cx, promise: &'static str, call: impl Fn() -> Call) -> Result {
    let answer = cx.until_free(&call).await?;
    let cause =
        format!("{} that was repeated after its cancellation answered {}.", answer.method(), answer.code());
    cx.keeps("DRV-091", answer.method(), answer.is_ok(), &cause)?;
    if answer.is_ok() {
        return cx.keeps(promise, answer.method(), true, "");
    }
    cx.until_ok(&call).await?.asked("after a cancelled one").is(promise, &["OK"])
}
