//! One volume, more than one pod.

use crate::prelude::*;

/// Two pods on a node share one staging of a volume, and it is unstaged only after the last pod.
///
/// CSI, NodeUnstageVolume: called after every NodeUnpublishVolume on the node succeeded.
#[case(needs = [Filesystem, Shared, StageUnstage, Root, Persistent], judges = ["DRV-063"])]
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

/// A volume whose pod is deleted while another pod waits for it is unpublished from the first before it is published to
/// the second, and stays staged in between.
///
/// CSI, NodePublishVolume: one target for each workload; what is staged for the node serves the next.
#[case(needs = [Filesystem, Shared, StageUnstage, Root])]
async fn volume_moves_to_the_next_pod(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let publish = cx.hold(Method::Publish);

    let first = cx.pod("first").volume(&data, "/data").add().await?;
    publish.reached().await?;
    // While the first NodePublishVolume is held, the manager learns of both changes and then decides their order itself.
    first.remove().await?;
    let second = cx.pod("second").volume(&data, "/data").add().await?;
    second.is_noticed().await?;
    publish.release();
    second.runs().await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data first
        mount  <publish:data/first>
        csi    Unpublish data first
        umount <publish:data/first>
        csi    Publish data second
        mount  <publish:data/second>
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
