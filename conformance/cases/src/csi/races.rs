//! Node calls at once, and calls that their caller gives up. The kernel is looked at when all is at rest.

use std::time::Duration;

use crate::prelude::*;

/// Staging a volume many times at once is staging it once: each call works or is ABORTED, and there is one mount.
///
/// CSI, 'Concurrency': the plugin SHOULD handle calls for one volume at once as gracefully as possible.
#[case(needs = [Filesystem, StageUnstage, Root])]
async fn stages_at_once_are_one_stage(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    for _ in 0..4 {
        let answers = cx.at_once((0..8).map(|_| stage(&node)).collect()).await?;
        let odd = answers.iter().find(|answer| !matches!(answer.code(), "OK" | "Aborted"));
        let again = cx.until_free(|| stage(&node)).await?;
        let stacked = node.mounts_at(&node.staging())?.len() > 1;
        let told = match odd {
            Some(odd) => {
                format!("NodeStageVolume was called 8 times at once, and one call answered {}.", odd.code())
            }
            None => "NodeStageVolume was called 8 times at once, and mounted the volume on top of itself."
                .to_owned(),
        };
        let is_good = odd.is_none() && !stacked && again.is_ok();
        cx.keeps("DRV-091", "NodeStageVolume", is_good, &told)?;
        if !is_good {
            return Ok(());
        }
        node.unstage().await?.succeeds()?;
    }
    Ok(())
}

/// Calls for different volumes do not stand in each other's way, however they meet.
///
/// CSI, 'Error Scheme': ABORTED is for a volume of which an operation is pending.
#[case(needs = [Filesystem, Root, TwoVolumes])]
async fn volumes_come_and_go_at_once(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    let nodes = [cx.node_calls(&one).await?, cx.node_calls(&two).await?];
    type Make = fn(&NodeCalls) -> Call;
    let steps: [Make; 4] = [stage, publish, unpublish, unstage];
    for _ in 0..3 {
        for step in steps {
            for answer in cx.at_once(nodes.iter().map(step).collect()).await? {
                let told = "A call was ABORTED while only calls for another volume were under way.";
                cx.keeps("DRV-092", answer.method(), answer.code() != "Aborted", told)?;
                answer.succeeds()?;
            }
        }
    }
    Ok(())
}

/// Pods that share a volume get it at once, and give it back at once.
///
/// CSI, NodePublishVolume: the volume may be published at several targets of a node.
#[case(needs = [Filesystem, Shared, Root, Persistent])]
async fn targets_of_a_volume_come_and_go_at_once(cx: &mut Cx) -> Result {
    const TARGETS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.stage().await?.succeeds()?;
    let all = |make: fn(&NodeCalls, &str) -> Call| TARGETS.iter().map(|target| make(&node, target)).collect();
    let at: fn(&NodeCalls, &str) -> Call = |node, target| Box::pin(node.publish(target));
    cx.at_once(all(at)).await?;
    for target in TARGETS {
        // Whichever call was told to wait is made again.
        cx.until_free(|| at(&node, target)).await?.succeeds()?;
    }
    node.writes(&node.target("a"), "shared").await?;
    for target in TARGETS {
        let told = "Published at several targets at once, the volume is not at one of them.";
        let is_there = node.has(&node.target(target), "shared").await?;
        cx.keeps("DRV-092", "NodePublishVolume", is_there, told)?;
    }
    let off: fn(&NodeCalls, &str) -> Call = |node, target| Box::pin(node.unpublish(target));
    cx.at_once(all(off)).await?;
    for target in TARGETS {
        cx.until_free(|| off(&node, target)).await?.succeeds()?;
        let told = "NodeUnpublishVolume answered OK, and its target is still mounted.";
        cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&node.target(target))?.is_empty(), told)?;
    }
    node.unstage().await?.succeeds()
}

/// Any two node calls for one volume at once leave it so that it can be taken down and used again.
///
/// CSI, 'Concurrency': the CO may lose its state, and call for one volume several times at once.
#[case(needs = [Filesystem, Root, Persistent])]
async fn any_two_calls_at_once_come_to_rest(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    type Make = fn(&NodeCalls) -> Call;
    let calls: [Make; 4] = [stage, publish, unpublish, unstage];
    let mut seed = cx.seed();
    for (number, first) in calls.iter().enumerate() {
        for second in &calls[number..] {
            // Half of the pairs meet a volume that is not there yet, and the order of the two is the seed's.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if seed >> 62 & 1 == 1 {
                node.set_up("web").await?;
            }
            let mut pair = vec![first(&node), second(&node)];
            if seed >> 63 == 1 {
                pair.reverse();
            }
            cx.at_once(pair).await?;
            if !comes_to_rest(cx, &node).await? {
                return Ok(());
            }
        }
    }
    node.set_up("web").await?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await
}

/// Takes a volume down whatever state it is in, and looks at the kernel. Returns whether all is gone.
async fn comes_to_rest(cx: &Cx, node: &NodeCalls) -> Result<bool> {
    let mut unpublished = cx.until_free(|| unpublish(node)).await?;
    let mut unstaged = cx.until_free(|| unstage(node)).await?;
    if !unpublished.is_ok() || !unstaged.is_ok() {
        // What was cancelled may have been in the way.
        unpublished = cx.until_ok(|| unpublish(node)).await?;
        unstaged = cx.until_ok(|| unstage(node)).await?;
    }
    let is_mounted =
        !node.mounts_at(&node.target("web"))?.is_empty() || !node.mounts_at(&node.staging())?.is_empty();
    let told = match is_mounted {
        true => {
            "Node calls for one volume at once left a mount that NodeUnpublishVolume and NodeUnstageVolume do not undo."
        }
        false => "After node calls for one volume at once it cannot be unpublished and unstaged.",
    };
    let is_good = unpublished.is_ok() && unstaged.is_ok() && !is_mounted;
    cx.keeps("DRV-091", "NodeUnstageVolume", is_good, told)?;
    Ok(is_good)
}

/// A call that its caller gives up is made again with success, and there is one mount of the volume.
///
/// CSI, 'Timeouts': the CO may retry a call that it gave up.
#[case(needs = [Filesystem, Root, Persistent])]
async fn cancelled_call_is_good_the_next_time(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    for after in [1, 4, 16, 64].map(Duration::from_millis) {
        cx.cancels(stage(&node), after).await;
        again(cx, "DRV-100", || stage(&node)).await?;
        cx.cancels(publish(&node), after / 4).await;
        again(cx, "DRV-101", || publish(&node)).await?;
        let stacked = node.mounts_at(&node.target("web"))?.len() > 1;
        let told = "NodePublishVolume after one that was cancelled mounted the volume on top of itself.";
        cx.keeps("DRV-053", "NodePublishVolume", !stacked, told)?;
        node.writes(&node.target("web"), "after").await?;
        cx.cancels(unpublish(&node), after / 4).await;
        cx.cancels(unstage(&node), after / 4).await;
        if !comes_to_rest(cx, &node).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Makes a call that was cancelled again. While the first is still under way it should wait or be ABORTED; at rest it
/// must be OK.
async fn again(cx: &Cx, promise: &'static str, call: impl Fn() -> Call) -> Result {
    let answer = cx.until_free(&call).await?;
    let told = format!("A call that followed one that was cancelled answered {}.", answer.code());
    cx.keeps("DRV-091", answer.method(), answer.is_ok(), &told)?;
    if answer.is_ok() {
        return Ok(());
    }
    cx.until_ok(&call).await?.asked("after one that was cancelled").is(promise, &["OK"])
}

fn stage(node: &NodeCalls) -> Call {
    Box::pin(node.stage())
}

fn publish(node: &NodeCalls) -> Call {
    Box::pin(node.publish("web"))
}

fn unpublish(node: &NodeCalls) -> Call {
    Box::pin(node.unpublish("web"))
}

fn unstage(node: &NodeCalls) -> Call {
    Box::pin(node.unstage())
}
