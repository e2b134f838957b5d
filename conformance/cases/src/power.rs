//! The power of the whole machine fails, or its kernel does, and it boots again with the disk it had.

use crate::prelude::*;

/// When power is lost after the driver published a volume and before the node knew it, the booted node unmounts what it
/// finds, gives the volume to its pod, and everything that an earlier pod had written is there.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent; the CO may call it again whatever it forgot.
#[case(needs = [Filesystem, OwnProcess, PowerCut, Root, Persistent])]
async fn power_loss_during_publish(cx: &mut Cx) -> Result {
    // A driver makes a volume of a name once: after the cut this is the one it made before.
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

/// When the kernel panics while a pod writes, the booted node gives the volume to its pod, and everything that was
/// synced is there.
///
/// CSI, NodeStageVolume: this operation MUST be idempotent; POSIX, fsync: what it returned for is on the disk.
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
