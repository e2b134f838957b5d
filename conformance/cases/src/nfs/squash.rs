//! An export with root_squash: the server treats a client's root as the user `nobody`.

use crate::prelude::*;

/// The owner of the export.
const OWNER: u32 = 1000;

/// A pod gets an export that the node's root may not read: it is mounted without a change of owner, the pod's user
/// reads and writes, and a restarted node recognises the mount and unmounts it.
///
/// Kubernetes, Persistent Volumes, NFS; exports(5): `root_squash`.
#[case(needs = [Nfs], each = [V3, V4])]
async fn squashed_root_mounts_for_the_pod(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.puts("news", "from the server").await?;
    server.squash_root(OWNER).await?;
    let data = server.volume("data", version, &[]).await?;

    let web = cx.pod("web").volume(&data, "/data").fs_group(2000).run_as(OWNER).start().await?;
    web.cannot_read("/data/news", ReadError::Denied).await?;
    let inside = web.container().await?;
    inside.reads("/data/news", "from the server").await?;
    inside.writes("/data/greeting", "hello").await?;
    server.has("greeting", "hello").await?;
    cx.sees(expect![[r#"
        mkdir  <web>/data
        mount  <web>/data          nfs
    "#]])
        .await?;

    cx.node().kill().await?;
    inside.reads("/data/greeting", "hello").await?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await
}

/// A sub-path in an export that the node's root may not read cannot be bound: the container does not start, the event
/// names no path of the node, and the deleted pod leaves no mount.
///
/// Kubernetes, Volumes, Using subPath; exports(5): `root_squash`.
#[case(needs = [Nfs], each = [V3, V4])]
async fn sub_path_of_a_squashed_export_is_refused(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.squash_root(OWNER).await?;
    let data = server.volume("data", version, &[]).await?;

    let web = cx.pod("web").volume(&data, "/data").sub_path("part").run_as(OWNER).start().await?;
    web.container_is_refused(expect![[r#"
        Failed to prepare subPath for volumeMount "data" of container "main".
    "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        mkdir  <web>/data
        mount  <web>/data          nfs
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await
}
