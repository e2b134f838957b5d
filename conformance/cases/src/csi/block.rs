//! Raw block volumes: a device node instead of a directory.

use crate::prelude::*;

/// A block volume is bound below its global map path, linked into the pod and held open. Teardown undoes this from the
/// pod outwards, and unstages the volume after its last pod.
///
/// CSI, NodeUnstageVolume: called after every NodeUnpublishVolume on the node succeeded.
#[case(needs = [Block, Root, Loop], judges = ["DRV-052"])]
async fn teardown_is_the_reverse_of_setup(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;

    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    cx.sees(expect![[r#"
        csi    Stage disk
        csi    Publish disk web
        bind   <publish:disk/web>  =  <device:disk>
        bind   <map:disk/web>      =  <device:disk>
        link   <web>/disk          ->  <publish:disk/web>
        lock   <map:disk/web>
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
