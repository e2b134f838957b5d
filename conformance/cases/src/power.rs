//! The machine loses power or its kernel panics, and it boots again with the same disk.

use crate::prelude::*;

/// When power is lost after the driver published a volume and before the node got the answer, the booted node publishes
/// the volume to its pod again, and the pod finds everything that an earlier pod wrote.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent; the CO may repeat it after it lost its state.
#[case(needs = [Filesystem, OwnProcess, PowerCut, Root, Persistent])]
async fn power_loss_during_publish(cx: &mut Cx) -> Result {
    // CreateVolume with the same name answers the same volume: after the power loss this is the volume from before.
    let data = cx.volume("data").create().await?;
    if cx.cuts() == 0 {
        let first = cx.pod("first").volume(&data, "/data").start().await?;
        first.writes("/data/greeting", "hello").await?;
        first.stop().await?;

        let publish = cx.hold(Method::Publish);
        cx.pod("web").volume(&data, "/data").add().await?;
        publish.reached().await?;
        cx.cut_power().await?;
    }
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.reads("/data/greeting", "hello").await?;
    web.writes("/data/farewell", "adieu").await?;
    cx.forget().await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// When the kernel panics while a pod writes, the booted node publishes the volume to its pod, and the pod finds
/// everything that was synced.
///
/// CSI, NodeStageVolume: this operation MUST be idempotent; POSIX, fsync: the data is on the disk when it returns.
#[case(needs = [Filesystem, OwnProcess, PowerCut, Root, Persistent])]
async fn kernel_panic_during_a_write(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    if cx.cuts() == 0 {
        let web = cx.pod("web").volume(&data, "/data").start().await?;
        web.writes("/data/greeting", "hello").await?;
        web.keeps_writing("/data/growing")?;
        cx.panic_kernel().await?;
    }
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.reads("/data/greeting", "hello").await?;
    web.writes("/data/farewell", "adieu").await?;
    web.stop().await
}
