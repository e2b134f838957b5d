//! The daemon of a FUSE volume dies or hangs: a process of the driver's own that serves the volume's files, such as those of
//! an object store. A volume shows when it is mounted whether it is such a one; a case tries nothing on another. So does a
//! program that the driver runs, such as mkfs.

use std::time::Duration;

use super::is_used_beside;
use crate::prelude::*;

/// The time for a driver to answer that another call is under way.
const A_WHILE: Duration = Duration::from_secs(1);

/// The number of volumes that are staged to meet a program: one may end before it is stopped.
const ATTEMPTS: usize = 8;

/// The reason why a case has tried nothing.
const NONE: &str = "no daemon beside the driver's own process serves the volume through FUSE";

/// A FUSE volume whose daemon has died is unpublished and unstaged, nothing stays mounted, and the next pod finds what was
/// synced.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(
    needs = [Filesystem, Root, Fuse, OwnProcess, Persistent],
    judges = ["DRV-060", "DRV-070", "DRV-160", "DRV-184"])]
async fn volume_of_a_dead_daemon_is_torn_down(cx: &mut Cx) -> Result {
    let Some((node, daemon)) = served(cx, &["DRV-060", "DRV-070", "DRV-160", "DRV-184"]).await? else {
        return Ok(());
    };
    daemon.dies()?;
    if cx.reports_statistics() {
        // Any answer will do.
        cx.answer_to(Box::pin(node.stats(&node.target("web")))).await?;
    }
    node.tear_down("web").await?;
    is_used_again(cx, &node).await
}

/// The statistics of a FUSE volume are answered while its daemon hangs, and so are the calls that tear it down.
///
/// CSI, 'Error Scheme': all CSI API calls MUST return a standard gRPC status.
#[case(
    needs = [Filesystem, Root, Fuse, OwnProcess, Persistent],
    judges = ["DRV-060", "DRV-070", "DRV-093", "DRV-160", "DRV-184"])]
async fn volume_of_a_hung_daemon_is_torn_down(cx: &mut Cx) -> Result {
    let Some((node, daemon)) = served(cx, &["DRV-060", "DRV-070", "DRV-093", "DRV-160", "DRV-184"]).await?
    else {
        return Ok(());
    };
    daemon.hangs()?;
    if cx.reports_statistics() {
        // Any answer will do, as long as there is one.
        cx.answer_to(Box::pin(node.stats(&node.target("web")))).await?;
    }
    if cx.answer_to(Box::pin(node.unpublish("web"))).await?.is_some_and(|answer| answer.is_ok()) {
        is_unpublished(cx, &node)?;
    }
    if cx.answer_to(Box::pin(node.unstage())).await?.is_some_and(|answer| answer.is_ok()) {
        is_unstaged(cx, &node)?;
    }
    daemon.dies()?;
    node.tear_down("web").await?;
    is_used_again(cx, &node).await
}

/// While the daemon of one volume hangs, another volume is staged, published, unpublished and unstaged.
///
/// CSI, 'Error Scheme': all CSI API calls MUST return a standard gRPC status.
#[case(needs = [Filesystem, Root, Fuse, OwnProcess, Persistent, TwoVolumes], judges = ["DRV-093"])]
async fn volume_beside_a_hung_daemon_is_used(cx: &mut Cx) -> Result {
    let Some((node, daemon)) = served(cx, &["DRV-093"]).await? else { return Ok(()) };
    let of_first = cx.daemons();
    let other = cx.volume("other").fuse().create().await?;
    let beside = cx.node_calls(&other).await?;
    beside.set_up("web").await?;
    let has_its_own = cx.daemons().has_more_than(&of_first);
    beside.tear_down("web").await?;
    if !has_its_own {
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
    let (waited, worked) = tokio::join!(waits, is_used_beside(cx, &beside, || daemon.dies()));
    worked?;
    drop(waited?);
    node.tear_down("web").await
}

/// A staged FUSE volume whose daemon has died is not published as it is: publishing mends it or fails, also after it was
/// staged once more, and after an unstage it works again.
///
/// CSI, NodePublishVolume: SP MUST ensure the CO can use the published volume as described.
#[case(
    needs = [Filesystem, StageUnstage, Root, Fuse, OwnProcess, Persistent],
    judges = ["DRV-160", "DRV-165", "DRV-184"])]
async fn dead_stage_is_not_published(cx: &mut Cx) -> Result {
    let Some((node, daemon)) = served(cx, &["DRV-160", "DRV-165", "DRV-184"]).await? else {
        return Ok(());
    };
    node.undo_publish("web").await?;
    if cx.daemon_of(&node.staging(), &cx.daemons())?.is_none() {
        cx.not_tried("DRV-165", "the volume is not mounted where it is staged");
        return node.undo_stage().await;
    }
    daemon.dies()?;
    works_if_published(cx, &node, "NodePublishVolume").await?;
    drop(node.stage().await?);
    works_if_published(cx, &node, "NodeStageVolume").await?;
    node.undo_stage().await?;
    is_used_again(cx, &node).await
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
        ["DRV-060", "DRV-070", "DRV-098"].into_iter().for_each(|promise| cx.not_tried(promise, NONE));
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

/// While a program that the driver has started to stage a volume hangs, and the call was made again, another volume is used.
/// After the program was killed the volume is staged.
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
            return is_staged_after(cx, &node, &beside, (staging, program)).await;
        }
        node.undo_stage().await?;
    }
    let none = "the driver starts no program to stage a volume, or none that runs long enough";
    ["DRV-093", "DRV-130"].into_iter().for_each(|promise| cx.not_tried(promise, none));
    Ok(())
}

/// Finds that another volume is used while the program of a volume hangs, and that this volume is staged after its end.
async fn is_staged_after(
    cx: &Cx,
    node: &NodeCalls,
    beside: &NodeCalls,
    (staging, program): (Call, Daemon),
) -> Result {
    let work = async {
        // A driver may answer that the first call is under way, or let this one wait for it.
        cx.cancels(Box::pin(node.stage()), A_WHILE).await;
        is_used_beside(cx, beside, || program.dies()).await
    };
    let (hung, worked) = tokio::join!(staging, work);
    drop(hung);
    worked?;
    let staged = cx.until_free(|| Box::pin(node.stage())).await?;
    if !staged.is_ok() {
        // A driver may first have to see that the program has failed.
        cx.until_ok(|| Box::pin(node.stage())).await?.succeeds()?;
    }
    node.publish("web").await?.succeeds()?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await
}

/// A FUSE volume that is published for `web` with something synced in it, and its daemon. None if it has no daemon; then it
/// is torn down, and the promises are noted as not tried.
async fn served(cx: &Cx, promises: &[&str]) -> Result<Option<(NodeCalls, Daemon)>> {
    let before = cx.daemons();
    let data = cx.volume("data").fuse().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let Some(daemon) = cx.daemon_of(&node.target("web"), &before)? else {
        promises.iter().for_each(|promise| cx.not_tried(promise, NONE));
        node.tear_down("web").await?;
        return Ok(None);
    };
    node.writes(&node.target("web"), "kept").await?;
    Ok(Some((node, daemon)))
}

fn is_unpublished(cx: &Cx, node: &NodeCalls) -> Result {
    let cause =
        "NodeUnpublishVolume of a volume without its daemon answered OK, and its target is still mounted.";
    cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&node.target("web"))?.is_empty(), cause)
}

fn is_unstaged(cx: &Cx, node: &NodeCalls) -> Result {
    let cause = "NodeUnstageVolume of a volume without its daemon answered OK, and its staging path is still mounted.";
    cx.keeps("DRV-070", "NodeUnstageVolume", node.mounts_at(&node.staging())?.is_empty(), cause)
}

/// Finds that the volume works if it can be published for `web`, and unpublishes it.
async fn works_if_published(cx: &Cx, node: &NodeCalls, method: &str) -> Result {
    let published = node.publish("web").await?;
    let works = published.is_ok() && node.can_write("web", "after").await?;
    let cause = "NodePublishVolume answered OK, and the daemon that serves the volume has died.";
    cx.keeps("DRV-165", method, !published.is_ok() || works, cause)?;
    node.undo_publish("web").await
}

/// Finds that the volume, which is staged nowhere, can be used again with what was synced, and tears it down.
async fn is_used_again(cx: &Cx, node: &NodeCalls) -> Result {
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
