//! The life of a volume on a node without faults: stage, publish, unpublish, unstage.

use crate::prelude::*;

/// A pod reads from each of its two volumes what it wrote there, nothing of them is left on the node when the pod is
/// gone, and the next pod finds the data.
///
/// CSI, NodePublishVolume: called when a workload that uses the volume is placed on a node.
/// CSI, NodeUnpublishVolume: the reverse operation of NodePublishVolume.
#[case(
    needs = [Filesystem, Root, Persistent, TwoVolumes],
    judges = [
        "DRV-001", "DRV-005", "DRV-009", "DRV-055", "DRV-060", "DRV-061", "DRV-065", "DRV-070", "DRV-073",
        "DRV-074", "DRV-076", "DRV-098",
    ],
)]
async fn file_system_is_set_up_and_torn_down(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let logs = cx.volume("logs").create().await?;

    let web = cx.pod("web").volume(&data, "/data").volume(&logs, "/logs").start().await?;
    web.writes("/data/greeting", "hello").await?;
    web.writes("/logs/greeting", "adieu").await?;
    let mixed_up = web.holds("/data/greeting", "adieu").await?;
    let cause = "The target of one volume shows data that was written to another.";
    cx.keeps("DRV-051", "NodePublishVolume", !mixed_up, cause)?;
    web.reads("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
        csi    Stage logs
        csi    Publish logs web
        mount  <publish:logs/web>
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
        csi    Unpublish logs web
        umount <publish:logs/web>
        csi    Unstage logs
    "#]])
        .await?;

    let next = cx.pod("next").volume(&data, "/data").start().await?;
    next.reads("/data/greeting", "hello").await?;
    next.stop().await
}

/// A repeated call has the result of the first: a caller that lost the answer repeats the call.
///
/// CSI, 'Idempotency': requests with the same arguments have the same result, however often they are made.
#[case(
    needs = [Filesystem, Root, Persistent],
    judges = ["DRV-010", "DRV-020", "DRV-030", "DRV-034", "DRV-041", "DRV-053", "DRV-062", "DRV-071"],
)]
async fn each_repeated_call_succeeds(cx: &mut Cx) -> Result {
    cx.repeat_every_call();
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    web.stop().await?;

    let next = cx.pod("next").volume(&data, "/data").start().await?;
    next.reads("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
        csi    Stage data
        csi    Publish data next
        mount  <publish:data/next>
    "#]])
        .await?;
    next.stop().await
}

/// What is undone already can be undone however often: each further call is OK.
///
/// CSI, 'Idempotency': requests with the same arguments have the same result, however often they are made.
#[case(needs = [Creates, Filesystem, Root], judges = ["DRV-020", "DRV-062", "DRV-071"], driver = Shared)]
async fn call_that_undoes_is_ok_however_often(cx: &mut Cx) -> Result {
    const TIMES: [&str; 5] =
        ["the first time", "the second time", "the third time", "the fourth time", "the fifth time"];
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    for time in TIMES {
        node.unpublish("web").await?.asked(time).is("DRV-062", &["OK"])?;
    }
    if cx.driver_stages() {
        for time in TIMES {
            node.unstage().await?.asked(time).is("DRV-071", &["OK"])?;
        }
    }
    node.detach().await?;
    for time in TIMES {
        cx.delete_volume(&data).await?.asked(time).is("DRV-020", &["OK"])?;
    }
    Ok(())
}
