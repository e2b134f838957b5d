//! File systems that have died under a volume.

use crate::prelude::*;

/// When the process that serves a file system dies, every look at it fails; what was bound of it into a pod, the
/// volume and a part of it, is taken away all the same.
///
/// Kubernetes, Pod Lifecycle: a pod whose volume is broken can be deleted.
#[case(needs = [Owners, Fuse])]
async fn what_is_bound_of_it_goes(cx: &mut Cx) -> Result {
    let served = cx.fuse()?;
    let data = cx.local("data", &served)?;
    let web = cx.pod("web").volume(&data, "/data").volume(&data, "/part").sub_path("part").start().await?;
    let inside = web.container().await?;
    inside.writes("/part/greeting", "hello").await?;
    inside.reads("/data/part/greeting", "hello").await?;
    cx.forget().await?;

    cx.kill_fuse()?;
    inside.cannot_write("/data/other", "ENOTCONN").await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        umount <sub-path:data/web/main/1>
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await
}

/// The same with the node down meanwhile: the one that comes back is not held up by what is dead, and takes it
/// away.
///
/// Kubernetes, Node Shutdown: volumes are cleaned up when the kubelet is back.
#[case(needs = [Owners, Fuse])]
async fn a_node_that_comes_back_takes_it_away(cx: &mut Cx) -> Result {
    let served = cx.fuse()?;
    let data = cx.local("data", &served)?;
    let web = cx.pod("web").volume(&data, "/data").volume(&data, "/part").sub_path("part").start().await?;
    web.container().await?.writes("/part/greeting", "hello").await?;
    let other = cx.pod("other").inline("cache", empty_dir(), "/cache").start().await?;
    cx.forget().await?;

    cx.node().kill().await?;
    cx.kill_fuse()?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        umount <sub-path:data/web/main/1>
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await?;
    other.container().await?.writes("/cache/greeting", "hello").await
}
