//! Processes of the driver's own die or hang: the daemon that serves the files of a FUSE volume, such as those of an object
//! store, and a program that it runs, such as mkfs. Only a mounted volume shows whether it has a daemon; if not, a case notes
//! its promises as not tried.

use std::time::Duration;

use super::check_use_beside_a_hang;
use crate::prelude::*;

/// The time for a driver to answer that another call is under way.
const BUSY_ANSWER: Duration = Duration::from_secs(1);

/// The number of volumes that are staged until a program is caught while it runs: it may end too soon.
const ATTEMPTS: usize = 8;

/// The reason why promises about a daemon are not tried.
const NO_DAEMON: &str = "no daemon beside the driver's own process serves the volume through FUSE";

/// A FUSE volume whose daemon has died is unpublished and unstaged, nothing stays mounted, and the next pod finds what was
/// synced.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(
    needs = [Filesystem, Root, Fuse, OwnProcess, Persistent],
    judges = ["DRV-060", "DRV-070", "DRV-160", "DRV-184"])]
async fn volume_of_a_dead_daemon_is_torn_down(cx: &mut Cx) -> Result {
    let Some((node, daemon)) = publish_fuse_volume(cx, &["DRV-060", "DRV-070", "DRV-160", "DRV-184"]).await?
    else {
        return Ok(());
    };
    daemon.dies()?;
    if cx.reports_statistics() {
        // Any code is allowed.
        cx.answer_to(Box::pin(node.stats(&node.target("web")))).await?;
    }
    node.tear_down("web").await?;
    check_used_again(cx, &node).await
}

/// The statistics of a FUSE volume are answered while its daemon hangs, and so are the calls that tear it down.
///
/// CSI, 'Error Scheme': all CSI API calls MUST return a standard gRPC status.
#[case(
    needs = [Filesystem, Root, Fuse, OwnProcess, Persistent],
    judges = ["DRV-060", "DRV-070", "DRV-093", "DRV-160", "DRV-184"],
    waits = "for the answers about a file system that hangs")]
async fn volume_of_a_hung_daemon_is_torn_down(cx: &mut Cx) -> Result {
    let Some((node, daemon)) =
        publish_fuse_volume(cx, &["DRV-060", "DRV-070", "DRV-093", "DRV-160", "DRV-184"]).await?
    else {
        return Ok(());
    };
    daemon.hangs()?;
    if cx.reports_statistics() {
        // Any code is allowed, but no answer is not.
        cx.answer_to(Box::pin(node.stats(&node.target("web")))).await?;
    }
    if cx.answer_to(Box::pin(node.unpublish("web"))).await?.is_some_and(|answer| answer.is_ok()) {
        check_unpublished(cx, &node)?;
    }
    if cx.answer_to(Box::pin(node.unstage())).await?.is_some_and(|answer| answer.is_ok()) {
        check_unstaged(cx, &node)?;
    }
    daemon.dies()?;
    node.tear_down("web").await?;
    check_used_again(cx, &node).await
}

/// While the daemon of one volume hangs, another volume is staged, published, unpublished and unstaged.
///
/// CSI, 'Error Scheme': all CSI API calls MUST return a standard gRPC status.
#[case(needs = [Filesystem, Root, Fuse, OwnProcess, Persistent, TwoVolumes], judges = ["DRV-093"])]
async fn volume_beside_a_hung_daemon_is_used(cx: &mut Cx) -> Result {
    let Some((node, daemon)) = publish_fuse_volume(cx, &["DRV-093"]).await? else { return Ok(()) };
    let first_daemons = cx.daemons();
    let other = cx.volume("other").fuse().create().await?;
    let beside = cx.node_calls(&other).await?;
    beside.set_up("web").await?;
    let has_own_daemon = cx.daemons().has_more_than(&first_daemons);
    beside.tear_down("web").await?;
    if !has_own_daemon {
        cx.not_tried("DRV-093", "one daemon serves all volumes");
        return node.tear_down("web").await;
    }
    daemon.hangs()?;
    let waits = async {
        if cx.reports_statistics() {
            node.stats(&node.target("web")).await?;
        }
        node.unpublish("web").await
    };
    let (waited, worked) = tokio::join!(waits, check_use_beside_a_hang(cx, &beside, || daemon.dies()));
    worked?;
    drop(waited?);
    node.tear_down("web").await
}

/// NodePublishVolume of a staged FUSE volume whose daemon has died repairs the volume or fails, also after a repeated
/// NodeStageVolume. After NodeUnstageVolume the volume can be used again.
///
/// CSI, NodePublishVolume: SP MUST ensure the CO can use the published volume as described.
#[case(
    needs = [Filesystem, StageUnstage, Root, Fuse, OwnProcess, Persistent],
    judges = ["DRV-160", "DRV-165", "DRV-184"])]
async fn dead_stage_is_not_published(cx: &mut Cx) -> Result {
    let Some((node, daemon)) = publish_fuse_volume(cx, &["DRV-160", "DRV-165", "DRV-184"]).await? else {
        return Ok(());
    };
    node.undo_publish("web").await?;
    if cx.daemon_of(&node.staging(), &cx.daemons())?.is_none() {
        cx.not_tried("DRV-165", "the volume is not mounted where it is staged");
        return node.undo_stage().await;
    }
    daemon.dies()?;
    check_works_if_published(cx, &node, "NodePublishVolume").await?;
    drop(node.stage().await?);
    check_works_if_published(cx, &node, "NodeStageVolume").await?;
    node.undo_stage().await?;
    check_used_again(cx, &node).await
}

/// A pod that replaces one whose FUSE volume lost its daemon can use the volume.
///
/// Kubernetes, Pod Lifecycle: a pod whose volume is broken can be deleted, and another takes its place.
#[case(needs = [Filesystem, Root, Fuse, OwnProcess, Persistent], judges = ["DRV-060", "DRV-070", "DRV-098"])]
async fn pod_is_replaced_after_its_daemon_died(cx: &mut Cx) -> Result {
    let before = cx.daemons();
    let data = cx.volume("data").fuse().create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    let Some(daemon) = cx.daemon_of(&cx.place("data", &web)?, &before)? else {
        ["DRV-060", "DRV-070", "DRV-098"].into_iter().for_each(|promise| cx.not_tried(promise, NO_DAEMON));
        return web.stop().await;
    };
    let inside = web.container().await?;
    inside.writes("/data/before", "hello").await?;
    daemon.dies()?;
    web.stop().await?;
    let next = cx.pod("next").volume(&data, "/data").start().await?;
    let inside = next.container().await?;
    inside.writes("/data/after", "hello").await?;
    inside.reads("/data/after", "hello").await?;
    next.stop().await
}

/// While a program hangs that the driver has started to stage a volume, and NodeStageVolume is repeated, another volume can be
/// used. After the program was killed the volume can be staged.
///
/// CSI, 'Error Scheme': all CSI API calls MUST return a standard gRPC status.
#[case(needs = [Filesystem, StageUnstage, Root, OwnProcess, Persistent, TwoVolumes], judges = ["DRV-093", "DRV-130"])]
async fn volume_beside_a_hung_program_is_used(cx: &mut Cx) -> Result {
    let other = cx.volume("other").create().await?;
    let beside = cx.node_calls(&other).await?;
    beside.set_up("web").await?;
    beside.tear_down("web").await?;
    for attempt in 0..ATTEMPTS {
        let data = cx.volume(&format!("data-{attempt}")).create().await?;
        let node = cx.node_calls(&data).await?;
        let mut staging: Call = Box::pin(node.stage());
        if let Some(program) = cx.program_hangs(&mut staging).await {
            return check_staged_after_hang(cx, &node, &beside, (staging, program)).await;
        }
        node.undo_stage().await?;
        // The node may carry no more than two.
        node.detach().await?;
    }
    let none = "the driver starts no program to stage a volume, or none that runs long enough";
    ["DRV-093", "DRV-130"].into_iter().for_each(|promise| cx.not_tried(promise, none));
    Ok(())
}

/// Checks that another volume can be used while the program of a volume hangs, and that this volume can be staged after it.
async fn check_staged_after_hang(
    cx: &Cx,
    node: &NodeCalls,
    beside: &NodeCalls,
    (staging, program): (Call, Daemon),
) -> Result {
    let work = async {
        // A driver may answer that the first call is under way, or let this one wait for it.
        cx.cancels(Box::pin(node.stage()), BUSY_ANSWER).await;
        check_use_beside_a_hang(cx, beside, || program.dies()).await
    };
    let (hung, worked) = tokio::join!(staging, work);
    drop(hung);
    worked?;
    let staged = cx.until_free(|| Box::pin(node.stage())).await?;
    if !staged.is_ok() {
        // The first call may only report that the program failed.
        cx.until_ok(|| Box::pin(node.stage())).await?.succeeds()?;
    }
    node.publish("web").await?.succeeds()?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await
}

/// Publishes a FUSE volume for `web`, and syncs a file to it. Returns its daemon, too. Without a daemon it tears the volume
/// down, and notes the promises as not tried.
async fn publish_fuse_volume(cx: &Cx, promises: &[&str]) -> Result<Option<(NodeCalls, Daemon)>> {
    let before = cx.daemons();
    let data = cx.volume("data").fuse().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let Some(daemon) = cx.daemon_of(&node.target("web"), &before)? else {
        promises.iter().for_each(|promise| cx.not_tried(promise, NO_DAEMON));
        node.tear_down("web").await?;
        return Ok(None);
    };
    node.writes(&node.target("web"), "kept").await?;
    Ok(Some((node, daemon)))
}

fn check_unpublished(cx: &Cx, node: &NodeCalls) -> Result {
    let cause =
        "NodeUnpublishVolume of a volume whose daemon hangs answered OK, and its target is still mounted.";
    cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&node.target("web"))?.is_empty(), cause)
}

fn check_unstaged(cx: &Cx, node: &NodeCalls) -> Result {
    let cause = "NodeUnstageVolume of a volume whose daemon hangs answered OK, and its staging path is still mounted.";
    cx.keeps("DRV-070", "NodeUnstageVolume", node.mounts_at(&node.staging())?.is_empty(), cause)
}

/// Checks that the volume works if it can be published for `web`, and unpublishes it.
async fn check_works_if_published(cx: &Cx, node: &NodeCalls, method: &str) -> Result {
    let published = node.publish("web").await?;
    let works = published.is_ok() && node.can_write("web", "after").await?;
    let cause = "NodePublishVolume answered OK, and the volume cannot be written: the daemon that serves it has died.";
    cx.keeps("DRV-165", method, !published.is_ok() || works, cause)?;
    node.undo_publish("web").await
}

/// Checks that the unstaged volume can be used again and has the synced file, and tears it down.
async fn check_used_again(cx: &Cx, node: &NodeCalls) -> Result {
    let refusal = node.refusal("next").await?;
    let method = refusal.as_ref().map_or("NodeStageVolume", Answer::method);
    let code = refusal.as_ref().map_or("OK", Answer::code);
    let is_kept = refusal.is_none() && node.has(&node.target("next"), "kept").await?;
    let cause = format!(
        "After the daemon of a volume died {method} answers {code}, and what was synced is not there."
    );
    cx.keeps("DRV-160", method, is_kept, &cause)?;
    node.tear_down("next").await
}
