//! A volume's way in and out, when nothing goes wrong.

use crate::prelude::*;

/// A pod gets a file system that keeps what is written to it, and when the pod is gone nothing of it is left
/// on the node.
///
/// CSI, NodePublishVolume: called when a workload that uses the volume is placed on a node.
/// CSI, NodeUnpublishVolume: the reverse operation of NodePublishVolume.
#[case(needs = [Filesystem, Root])]
async fn file_system_in_and_out(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;

    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
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
        .await?;

    let next = cx.pod("next").volume(&data, "/data").start().await?;
    next.reads("/data/greeting", "hello").await?;
    next.stop().await
}
