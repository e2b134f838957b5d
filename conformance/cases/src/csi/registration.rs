//! Registration of the driver with its node.

use crate::prelude::*;

/// A pod that is there before its driver waits with an event that names the driver, and gets its volume when the driver
/// registers, under the id that the node had before.
///
/// CSI, NodeGetInfo: the CO MAY call this RPC more than once for a given node, and node_id identifies this specific node.
/// Kubernetes, node-driver-registrar: a node plugin that is replaced registers again, and pods are scheduled meanwhile.
#[case(needs = [Filesystem, OwnProcess, Root])]
async fn pod_waits_until_its_driver_registers(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let before = cx.call("NodeGetInfo", json!({})).await?;
    cx.driver().unregister().await?;
    let web = cx.pod("web").volume(&data, "/data").add().await?;
    web.misses_its_driver().await?;
    cx.driver().restart().await?;

    let after = cx.call("NodeGetInfo", json!({})).await?;
    let cause = "NodeGetInfo answered another id of the node after a restart of the driver.";
    cx.keeps("DRV-005", "NodeGetInfo", before.part("/nodeId") == after.part("/nodeId"), cause)?;
    web.runs().await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
    "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}
