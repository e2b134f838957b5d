//! The driver's own process: what it gathers while it runs, and how it ends and comes back.

use std::time::Duration;

use crate::prelude::*;

/// A volume that comes and goes twenty times leaves no descriptor, thread or process in the driver.
///
/// Kubernetes: a node plugin runs as long as the node, and serves each pod that comes.
#[case(needs = [Filesystem, Root, OwnProcess])]
async fn cycles_leave_the_driver_as_it_was(cx: &mut Cx) -> Result {
    const WARM_UP: usize = 4;
    const CYCLES: usize = 20;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let mut before = cx.driver_size()?;
    for cycle in 0..WARM_UP + CYCLES {
        if cycle == WARM_UP {
            before = cx.driver_size()?;
        }
        node.set_up("web").await?;
        node.tear_down("web").await?;
    }
    let after = cx.driver_size()?;
    for (what, before, after) in [
        ("descriptors", before.descriptors, after.descriptors),
        ("threads", before.threads, after.threads),
        ("processes", before.processes, after.processes),
    ] {
        // One that stays of each cycle; a few come and go with the runtime of the driver's language.
        let told = format!("With each cycle of publishing and unpublishing the driver has more {what}.");
        cx.keeps("DRV-131", "NodePublishVolume", after < before + CYCLES, &told)?;
    }
    Ok(())
}

/// A volume that was used and deleted leaves no file in the driver's directory.
///
/// CSI, DeleteVolume: what stays of a volume that nobody knows any more nobody can delete.
#[case(needs = [Creates, Filesystem, Root, OwnProcess])]
async fn deleted_volume_leaves_no_file(cx: &mut Cx) -> Result {
    const CYCLES: usize = 4;
    let mut before = 0;
    for cycle in 0..=CYCLES {
        let data = cx.volume(&format!("data-{cycle}")).create().await?;
        let node = cx.node_calls(&data).await?;
        node.set_up("web").await?;
        node.tear_down("web").await?;
        node.detach().await?;
        cx.delete_volume(&data).await?.succeeds()?;
        // The first makes what a driver has once.
        if cycle == 0 {
            before = cx.driver_files()?;
        }
    }
    let told = "With each volume that is created and deleted the driver has more files in its directory.";
    cx.keeps("DRV-022", "DeleteVolume", cx.driver_files()? < before + CYCLES, told)
}

/// A driver that is asked to end in the middle of a call comes back, and the call is made again with success.
///
/// Kubernetes: a node plugin is ended by SIGTERM and started again with each update.
#[case(needs = [Filesystem, Root, OwnProcess, Persistent])]
async fn terminated_driver_finishes_on_retry(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    tokio::join!(node.stage(), cx.driver_is_terminated()).0.ok();
    cx.driver().start().await?;
    let staged = cx.until_free(|| Box::pin(node.stage())).await?;
    let staged = staged.asked("after the driver was ended in the middle of it");
    staged.is("DRV-095", &["OK"])?;
    tokio::join!(node.publish("web"), cx.driver_is_terminated()).0.ok();
    cx.driver().start().await?;
    let published = cx.until_free(|| Box::pin(node.publish("web"))).await?;
    let published = published.asked("after the driver was ended in the middle of it");
    published.is("DRV-095", &["OK"])?;
    if !staged.is_ok() || !published.is_ok() {
        return Ok(());
    }
    let stacked = node.mounts_at(&node.target("web"))?.len() > 1;
    let told = "NodePublishVolume after one in whose middle the driver was ended mounted the volume on top of itself.";
    cx.keeps("DRV-053", "NodePublishVolume", !stacked, told)?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await
}

/// A driver that is killed in the middle of NodePublishVolume takes down afterwards what it had mounted.
///
/// CSI, NodeUnpublishVolume: the CO calls it also when it does not know how NodePublishVolume ended.
#[case(needs = [Filesystem, Root, OwnProcess])]
async fn publish_cut_by_death_is_undone(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    for after in [1, 2, 4, 8, 16, 24].map(Duration::from_millis) {
        node.stage().await?.succeeds()?;
        cx.driver_dies_during(Box::pin(node.publish("web")), after).await?;
        let unpublished = cx.until_free(|| Box::pin(node.unpublish("web"))).await?;
        let told = "NodeUnpublishVolume answered OK after a death in the middle of NodePublishVolume, and the target is still mounted.";
        let is_gone = node.mounts_at(&node.target("web"))?.is_empty();
        cx.keeps("DRV-060", "NodeUnpublishVolume", is_gone || !unpublished.is_ok(), told)?;
        unpublished.succeeds()?;
        node.unstage().await?.succeeds()?;
    }
    Ok(())
}
