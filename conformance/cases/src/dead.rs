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

/// A file system that answers each look with an error is taken away as any other: what it says of itself does not
/// matter, since nobody asks it.
///
/// Kubernetes, Node Shutdown: volumes whose server is gone answer ESTALE, EIO, EACCES, EHOSTDOWN, ENODEV.
#[case(needs = [Owners, Fuse])]
async fn what_fails_is_taken_away(cx: &mut Cx) -> Result {
    use nix::errno::Errno::{EACCES, EHOSTDOWN, EIO, ENODEV, EPERM, ESTALE};
    let served = cx.fuse()?;
    let data = cx.local("data", &served)?;
    let fails = |errno| FileRule::on(FileCall::Look, FileFault::Errno(errno as i32));
    for errno in [ESTALE, EIO, EACCES, EHOSTDOWN, ENODEV, EPERM] {
        let web = cx.pod(&format!("web-{errno:?}").to_lowercase()).volume(&data, "/data").start().await?;
        cx.spoil_fuse(fails(errno))?;
        web.stop().await?;
        cx.mend_fuse()?;
    }
    cx.sees(expect![[r#"
        mkdir  <web-estale>/data
        bind   <web-estale>/data       =  <machine>/served
        umount <web-estale>/data
        rmdir  <web-estale>/data
        mkdir  <web-eio>/data
        bind   <web-eio>/data          =  <machine>/served
        umount <web-eio>/data
        rmdir  <web-eio>/data
        mkdir  <web-eacces>/data
        bind   <web-eacces>/data       =  <machine>/served
        umount <web-eacces>/data
        rmdir  <web-eacces>/data
        mkdir  <web-ehostdown>/data
        bind   <web-ehostdown>/data    =  <machine>/served
        umount <web-ehostdown>/data
        rmdir  <web-ehostdown>/data
        mkdir  <web-enodev>/data
        bind   <web-enodev>/data       =  <machine>/served
        umount <web-enodev>/data
        rmdir  <web-enodev>/data
        mkdir  <web-eperm>/data
        bind   <web-eperm>/data        =  <machine>/served
        umount <web-eperm>/data
        rmdir  <web-eperm>/data
    "#]])
        .await
}
