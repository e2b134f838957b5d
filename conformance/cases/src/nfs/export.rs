//! An export that is withdrawn while a pod has it mounted.

use crate::prelude::*;

/// An export that is withdrawn under a pod becomes stale, and the pod can still be deleted.
#[case(needs = [Nfs], each = [V3, V4])]
async fn withdrawn_export_is_stale_and_unmounted(cx: &mut Cx, version: Nfs) -> Result {
    let server = cx.nfs_server().await?;
    server.puts("news", "from the server").await?;
    let data = server.volume("data", version, &["hard", "actimeo=0"]).await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    cx.forget().await?;

    server.unexport().await?;
    web.cannot_read("/data/news", ReadError::Stale).await?;
    server.export().await?;
    web.reads("/data/news", "from the server").await?;
    server.unexport().await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await
}
