//! The node or the driver dies, and comes back with nothing but what is on disk.

use crate::prelude::*;

/// The node is killed while a volume is published, and the pod is deleted meanwhile: the restarted node finds the
/// volume on disk and tears it down.
///
/// CSI: the CO is responsible for calling NodeUnpublishVolume and NodeUnstageVolume, whatever it forgot.
#[case(needs = [Filesystem, Root, Persistent])]
async fn pod_deleted_while_the_node_is_down(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    cx.node().kill().await?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// The driver is killed after it published a volume and before it answered: publishing again succeeds, and the volume
/// is torn down in the end.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent.
#[case(needs = [Filesystem, OwnProcess, Root, Persistent])]
async fn driver_killed_during_publish(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let publish = cx.hold_and_lose(Method::Publish);

    let web = cx.pod("web").volume(&data, "/data").add().await?;
    publish.reached().await?;
    cx.driver().kill().await?;
    publish.release();
    cx.driver().start().await?;
    web.runs().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web    UNAVAILABLE "injected"
        mount  <publish:data/web>
        csi    Publish data web
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
