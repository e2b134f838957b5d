//! An export that is closed to the node: root of a client is nobody on the server.

use crate::prelude::*;

/// The user that the export belongs to.
const OWNER: u32 = 1000;

/// Root of the node may not look into the export, and its pod has it all the same: it is mounted, nobody tries to give
/// it to the pod's group, the pod's own user reads and writes. The node that comes back after its end knows the mount
/// as well, and takes it down.
///
/// Kubernetes, Persistent Volumes, NFS; exports(5): `root_squash`.
#[case(needs = [Nfs], each = [V3, V4])]
async fn is_for_the_pod_and_not_for_the_node(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.puts("news", "from the server").await?;
    server.close_to_root(OWNER).await?;
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

/// A part of it cannot be bound by a node that may not walk to it: then the container does not start, its user is told
/// nothing of the machine, nothing is left mounted, and the pod leaves as ever.
///
/// Kubernetes, Volumes, Using subPath; exports(5): `root_squash`.
#[case(needs = [Nfs], each = [V3, V4])]
async fn a_part_of_it_cannot_be_had(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.close_to_root(OWNER).await?;
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
