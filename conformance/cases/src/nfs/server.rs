//! A server that dies while its export is mounted, and one that is not there yet.

use std::time::Duration;

use crate::prelude::*;

/// While the server is dead a file of a hard mount does not answer; when the server is back, it does, with what
/// it held.
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

/// With a soft mount reads fail while the server is dead, and succeed once it is back.
#[case(needs = [Nfs], each = [V3, V4])]
async fn soft_mount_gives_its_server_up(cx: &mut Cx, version: Nfs) -> Result {
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

/// A pod that has written leaves a dead server: its hard mount is taken down without waiting for anybody.
///
/// Not so with version 4, whose client says goodbye to its server before the kernel's umount returns.
#[case(needs = [Nfs])]
async fn writer_leaves_a_dead_server(cx: &mut Cx) -> Result {
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

/// A pod leaves a dead server in a bounded time where its mount is soft, whatever the version.
#[case(needs = [Nfs], each = [V3, V4])]
async fn pod_leaves_a_dead_server_softly(cx: &mut Cx, version: Nfs) -> Result {
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

/// A pod leaves a dead server in a bounded time where its mount is hard, too, whatever the version, and meanwhile
/// the node goes on with others. What was written is on the server when it is back.
///
/// Kubernetes, NFS: a server that no longer answers is forced after a minute.
#[case(needs = [Nfs], each = [V3, V4])]
async fn pod_leaves_a_dead_server_by_force(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    // Whoever asks for an attribute asks the server.
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

/// A pod that was deleted while its server was dead is gone when the server is back, and with it all that was
/// on the node.
#[case(needs = [Nfs], each = [V3, V4])]
async fn pod_is_gone_when_the_server_is_back(cx: &mut Cx, version: Nfs) -> Result {
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

/// A pod whose server is not there is tried again until it is.
#[case(needs = [Nfs], each = [V3, V4])]
async fn pod_waits_for_a_server_to_come(cx: &mut Cx, version: Nfs) -> Result {
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
