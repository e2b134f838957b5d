//! The life of an export on a node: mounted, used, unmounted.

use crate::prelude::*;

/// A pod gets an export, what it writes is on the server, and nothing of the export is left on the node when the pod is
/// gone.
#[case(needs = [Nfs], each = [V3, V4])]
async fn export_is_mounted_and_unmounted(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.puts("news", "from the server").await?;
    let data = server.volume("data", version, &[]).await?;

    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.reads("/data/news", "from the server").await?;
    web.writes("/data/greeting", "hello").await?;
    server.has("greeting", "hello").await?;
    cx.sees(expect![[r#"
        mkdir  <web>/data
        mount  <web>/data          nfs
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await
}

/// Each pod has its own mount of the same export, and a pod that is deleted does not disturb the other.
#[case(needs = [Nfs], each = [V3, V4])]
async fn each_pod_has_its_own_mount(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    let data = server.volume("data", version, &[]).await?;

    let first = cx.pod("first").volume(&data, "/data").start().await?;
    let second = cx.pod("second").volume(&data, "/data").start().await?;
    first.writes("/data/greeting", "hello").await?;
    second.reads("/data/greeting", "hello").await?;
    cx.forget().await?;

    first.stop().await?;
    second.writes("/data/greeting", "still here").await?;
    cx.sees(expect![[r#"
        umount <first>/data
        rmdir  <first>/data
    "#]])
        .await?;
    second.stop().await
}

/// The node is killed while an export is mounted, and the pod is deleted meanwhile: the restarted node finds the mount
/// and unmounts it.
#[case(needs = [Nfs])]
async fn pod_deleted_while_the_node_is_down(cx: &mut Cx) -> Result {
    let server = cx.nfs_server().await?;
    let data = server.volume("data", Nfs::V4, &[]).await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    cx.node().kill().await?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await?;
    server.has("greeting", "hello").await
}
