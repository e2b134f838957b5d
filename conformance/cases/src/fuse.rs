//! File systems that have died under a volume.

use crate::prelude::*;

/// When the process that serves a FUSE file system has died, a pod's volume and its sub-path are still unmounted.
///
/// Kubernetes, Pod Lifecycle: a pod whose volume is broken can be deleted.
#[case(needs = [Owners, Fuse])]
async fn dead_server_is_unmounted(cx: &mut Cx) -> Result {
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

/// A restarted node unmounts the volume of a deleted pod whose FUSE server died meanwhile, without waiting for that
/// server.
///
/// Kubernetes, Node Shutdown: volumes are cleaned up when the kubelet is back.
#[case(needs = [Owners, Fuse])]
async fn dead_server_is_unmounted_after_a_restart(cx: &mut Cx) -> Result {
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

/// A file system that answers each access with an error is unmounted like any other.
///
/// Kubernetes, Node Shutdown: volumes whose server is gone answer ESTALE, EIO, EACCES, EHOSTDOWN, ENODEV.
#[case(needs = [Owners, Fuse])]
async fn file_system_with_errors_is_unmounted(cx: &mut Cx) -> Result {
    use nix::errno::Errno::{EACCES, EHOSTDOWN, EIO, ENODEV, EPERM, ESTALE};
    let served = cx.fuse()?;
    let data = cx.local("data", &served)?;
    let fails = |errno| FileRule::on(FileCall::Look, FileFault::Errno(errno as i32));
    for errno in [ESTALE, EIO, EACCES, EHOSTDOWN, ENODEV, EPERM] {
        let web = cx.pod(&format!("web-{errno:?}").to_lowercase()).volume(&data, "/data").start().await?;
        let at = cx.place("data", &web)?;
        cx.spoil_fuse(fails(errno))?;
        cx.answers(&at, errno)?;
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
