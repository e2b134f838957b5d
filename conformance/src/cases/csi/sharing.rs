//! One volume, more than one pod.

use crate::prelude::*;

/// Two pods on a node share one staging of a volume, and it is unstaged only after the last has left.
///
/// CSI, NodeUnstageVolume: called after every NodeUnpublishVolume on the node succeeded.
#[case(needs = [Filesystem, Shared, StageUnstage, Root])]
async fn two_pods_share_one_staging(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;

    let first = cx.pod("first").volume(&data, "/data").start().await?;
    let second = cx.pod("second").volume(&data, "/data").start().await?;
    first.writes("/data/greeting", "hello").await?;
    second.reads("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data first
        mount  <publish:data/first>
        csi    Publish data second
        mount  <publish:data/second>
    "#]])
        .await?;

    first.stop().await?;
    second.reads("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Unpublish data first
        umount <publish:data/first>
    "#]])
        .await?;

    second.stop().await?;
    cx.sees(expect![[r#"
        csi    Unpublish data second
        umount <publish:data/second>
        csi    Unstage data
    "#]])
        .await
}
