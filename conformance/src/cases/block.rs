//! A driver's block volumes as their containers have them.

use crate::prelude::*;

/// The container has a device node of its own for the driver's device; what it writes there is on the volume,
/// where the next pod finds it, and a pod that only reads it finds it, too.
///
/// Kubernetes, Persistent Volumes, Raw Block Volume Support: a block device without any filesystem on it.
#[case(needs = [Block, Root, Owners, Loop])]
async fn container_has_the_device(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;

    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    let inside = web.container().await?;
    inside.writes("/dev/xvda", "hello").await?;
    inside.reads("/dev/xvda", "hello").await?;
    cx.forget().await?;
    inside
        .sees(expect![[r#"
        /dev/xvda                block  <device:disk>
    "#]])
        .await?;
    web.stop().await?;

    let reader = cx.pod("reader").device(&disk, "/dev/xvda").read_only().start().await?;
    reader.container().await?.reads("/dev/xvda", "hello").await?;
    reader.stop().await
}

/// When the node dies while a container uses a device, the container goes on; the node that comes back finds
/// the device, gives it to the next start of the container, and takes it down.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent.
#[case(needs = [Block, Root, Owners, Loop])]
async fn container_outlives_the_node(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    let inside = web.container().await?;
    inside.writes("/dev/xvda", "hello").await?;

    cx.node().restart().await?;
    inside.reads("/dev/xvda", "hello").await?;
    web.runs().await?;
    let again = web.container().await?;
    again.reads("/dev/xvda", "hello").await?;
    cx.forget().await?;
    again
        .sees(expect![[r#"
        /dev/xvda                block  <device:disk>
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        unlock <map:disk/web>
        unlink <web>/disk
        umount <map:disk/web>
        csi    Unpublish disk web
        umount <publish:disk/web>
        csi    Unstage disk
        rmdir  <map:disk>
    "#]])
        .await
}
