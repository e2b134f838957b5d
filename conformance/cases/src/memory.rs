//! The machine runs out of memory, and the kernel kills a process.
//!
//! They need a kernel of their own: guests have one.

use crate::prelude::*;

/// When the kernel kills the driver for its memory after it published a volume and before it answered, the pod gets its
/// volume once the driver is back, and the volume is torn down in the end.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent.
#[case(needs = [Filesystem, OwnProcess, OwnKernel, Root, Persistent])]
async fn driver_killed_for_memory_during_publish(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let publish = cx.hold_and_lose(Method::Publish);
    let web = cx.pod("web").volume(&data, "/data").add().await?;
    publish.reached().await?;
    cx.memory_runs_out().await?;
    publish.release();

    cx.driver().start().await?;
    web.runs().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web    UNAVAILABLE "injected"
        mount  <publish:data/web>
        csi    Publish data web
        exit   driver              signal 9
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
