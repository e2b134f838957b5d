//! A server that goes down while its export is mounted, and a server that is not up yet.

use std::time::Duration;

use crate::prelude::*;

/// A file of a hard mount does not answer while the server is down, and holds its data when the server is back.
#[case(needs = [Nfs], each = [V3, V4])]
async fn hard_mount_waits_for_its_server(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.puts("news", "from the server").await?;
    let data = server.volume("data", version, &["hard"]).await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;

    server.stop().await?;
    let reading = web.waits_for("/data/news").await?;
    server.start().await?;
    reading.ends_with("from the server").await?;
    server.has("greeting", "hello").await?;
    web.stop().await
}

/// Reads of a soft mount fail while the server is down, and succeed once it is back.
#[case(needs = [Nfs], each = [V3, V4])]
async fn soft_mount_fails_without_its_server(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.puts("news", "from the server").await?;
    let data = server.volume("data", version, &["soft", "timeo=5", "retrans=1"]).await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;

    server.stop().await?;
    web.cannot_read("/data/news", ReadError::GivenUp).await?;
    server.start().await?;
    web.reads("/data/news", "from the server").await?;
    web.stop().await
}

/// A pod that has written can be deleted while the server is down: its hard mount is unmounted without waiting.
///
/// Not so with version 4, whose client says goodbye to its server before the kernel's umount returns.
#[case(needs = [Nfs])]
async fn hard_mount_with_writes_is_unmounted(cx: &mut Cx) -> Result {
    let server = cx.nfs_server().await?;
    let data = server.volume("data", Nfs::V3, &["hard"]).await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    server.stop().await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await?;
    server.has("greeting", "hello").await
}

/// A pod with a soft mount is deleted in bounded time while the server is down, with every version of NFS.
#[case(needs = [Nfs], each = [V3, V4])]
async fn soft_mount_is_unmounted_in_bounded_time(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    let data = server.volume("data", version, &["soft", "timeo=5", "retrans=1"]).await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    cx.forget().await?;

    server.stop().await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await
}

/// A pod with a hard mount is deleted in bounded time while the server is down, with every version of NFS, and
/// meanwhile other pods come and go. What was written is on the server when it is back.
///
/// Kubernetes, NFS: a server that no longer answers is forced after a minute.
#[case(needs = [Nfs], each = [V3, V4])]
async fn hard_mount_is_unmounted_by_force(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    // `actimeo=0`: the client asks the server for attributes each time, so that a look at a file needs the server.
    let data = server.volume("data", version, &["hard", "actimeo=0"]).await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    server.stop().await?;
    web.remove().await?;
    let other = cx.pod("other").inline("cache", empty_dir(), "/cache").start().await?;
    other.stop().await?;
    web.is_gone_within(Duration::from_secs(60)).await?;
    cx.forget().await?;

    server.start().await?;
    server.has("greeting", "hello").await
}

/// A pod that was deleted while its server was down is gone when the server is back, with everything it had on the
/// node.
#[case(needs = [Nfs], each = [V3, V4])]
async fn deleted_pod_is_gone_when_the_server_is_back(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    let data = server.volume("data", version, &["hard"]).await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    server.stop().await?;
    web.remove().await?;
    server.start().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await?;
    server.has("greeting", "hello").await
}

/// A pod whose server is down is tried again until the server is up.
#[case(needs = [Nfs], each = [V3, V4])]
async fn mount_is_retried_until_the_server_is_up(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.puts("news", "from the server").await?;
    let data = server.volume("data", version, &["hard"]).await?;

    server.stop().await?;
    let web = cx.pod("web").volume(&data, "/data").add().await?;
    web.is_refused().await?;
    server.start().await?;
    web.runs().await?;
    web.reads("/data/news", "from the server").await?;
    web.stop().await
}
