//! Inline volumes of a CSI driver: they live as long as their pods.

use super::{can_write, set_read_only};
use crate::prelude::*;

/// An inline volume has no claim and is neither attached nor staged. Its handle is made from the pod and the volume's
/// name, its secret is one of the pod's namespace, and it is removed with the pod.
///
/// CSI, NodePublishVolume; Kubernetes, CSI ephemeral volumes: `csi.storage.k8s.io/ephemeral` is "true".
#[case(needs = [Inline, Root, Owners, Persistent])]
async fn volume_lives_as_long_as_its_pod(cx: &mut Cx) -> Result {
    cx.secret("keys", &[("password", "open-sesame")])?;
    let scratch = cx.inline_csi("web", "scratch", Some("keys"))?;
    let web = cx.pod("web").inline("scratch", scratch.clone(), "/scratch").start().await?;
    cx.was_asked(Method::Publish, "/volumeId", "<volume:scratch>")?;
    cx.was_asked(Method::Publish, "/stagingTargetPath", "")?;
    cx.was_asked(Method::Publish, "/volumeContext/csi.storage.k8s.io~1ephemeral", "true")?;
    cx.was_asked(Method::Publish, "/volumeContext/csi.storage.k8s.io~1pod.name", "web")?;
    cx.was_asked(Method::Publish, "/secrets/password", "***")?;
    cx.sees(expect![[r#"
        csi    Publish scratch web
        mount  <publish:scratch/web>
    "#]])
        .await?;
    web.container().await?.writes("/scratch/greeting", "hello").await?;

    // A volume of the same name in another pod is another volume.
    let twin = cx.pod("twin").inline("scratch", scratch, "/scratch").start().await?;
    let other = twin.container().await?;
    other
        .sees(expect![[r#"
            /scratch                 dir  rw
        "#]])
        .await?;
    twin.stop().await?;
    cx.forget().await?;

    web.container().await?.reads("/scratch/greeting", "hello").await?;
    web.stop().await?;
    cx.was_asked(Method::Unpublish, "/volumeId", "<volume:scratch>")?;
    cx.sees(expect![[r#"
        csi    Unpublish scratch web
        umount <publish:scratch/web>
    "#]])
        .await
}

/// A repeated publish or unpublish of an inline volume has the result of the first.
///
/// CSI, NodePublishVolume, NodeUnpublishVolume: "This operation MUST be idempotent."
#[case(needs = [Inline, Root], judges = ["DRV-068"])]
async fn each_repeated_call_succeeds(cx: &mut Cx) -> Result {
    cx.repeat_every_call();
    let scratch = cx.inline_csi("web", "scratch", None)?;
    let web = cx.pod("web").inline("scratch", scratch, "/scratch").start().await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        csi    Publish scratch web
        mount  <publish:scratch/web>
        csi    Unpublish scratch web
        umount <publish:scratch/web>
    "#]])
        .await
}

/// A restarted node recognises the inline volume of a deleted pod by its record, and unpublishes it.
///
/// Kubernetes, CSI ephemeral volumes: unpublished with the same handle.
#[case(needs = [Inline, Root])]
async fn pod_deleted_while_the_node_is_down(cx: &mut Cx) -> Result {
    let scratch = cx.inline_csi("web", "scratch", None)?;
    let web = cx.pod("web").inline("scratch", scratch, "/scratch").start().await?;
    cx.forget().await?;

    cx.node().kill().await?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        csi    Unpublish scratch web
        umount <publish:scratch/web>
    "#]])
        .await?;
    cx.was_asked(Method::Unpublish, "/volumeId", "<volume:scratch>")
}

/// NodeUnpublishVolume deletes an inline volume with its data, and repeating it is OK.
///
/// CSI, NodeUnpublishVolume: this operation MUST be idempotent, and undoes the work of NodePublishVolume.
#[case(needs = [Inline, Root, Persistent], judges = ["DRV-068"])]
async fn volume_is_gone_with_its_target(cx: &mut Cx) -> Result {
    let node = cx.inline_calls("scratch")?;
    let target = node.target("web");
    node.publish("web").await?.succeeds()?;
    if node.takes_writes() {
        node.writes(&target, "secret").await?;
    }
    node.undo_publish("web").await?;
    let cause = "NodeUnpublishVolume of an inline volume answered OK, and its target is still mounted.";
    cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&target)?.is_empty(), cause)?;
    is_unpublished_again(cx, &node).await?;

    node.publish("web").await?.succeeds()?;
    let cause = "An inline volume that was unpublished and is published anew has what was written before.";
    cx.keeps("DRV-067", "NodeUnpublishVolume", !node.has(&target, "secret").await?, cause)?;
    node.undo_publish("web").await
}

/// A repeated NodeUnpublishVolume of an inline volume is OK, also if the volume keeps no data.
///
/// CSI, NodeUnpublishVolume: "This operation MUST be idempotent."
#[case(needs = [Inline, Root], judges = ["DRV-068"])]
async fn repeated_unpublish_is_ok(cx: &mut Cx) -> Result {
    let node = cx.inline_calls("scratch")?;
    node.publish("web").await?.succeeds()?;
    node.undo_publish("web").await?;
    is_unpublished_again(cx, &node).await
}

/// Finds that a volume that is gone can be unpublished. In the words of the rule: the node repeats calls as well.
async fn is_unpublished_again(cx: &Cx, node: &NodeCalls) -> Result {
    let answer = node.unpublish("web").await?;
    let cause = format!("{REFUSED_AGAIN} ({})", answer.words());
    cx.keeps("DRV-068", "NodeUnpublishVolume", answer.is_ok(), &cause)
}

/// NodeGetVolumeStats of an inline volume is OK at its target, and NOT_FOUND at another path and for an unknown volume.
///
/// CSI, NodeGetVolumeStats: NOT_FOUND if a volume of this id does not exist on the path.
#[case(needs = [Inline, Stats, Root], judges = ["DRV-097"], driver = Shared)]
async fn statistics_need_the_volume_at_the_path(cx: &mut Cx) -> Result {
    let node = cx.inline_calls("scratch")?;
    let target = node.target("web");
    node.publish("web").await?.succeeds()?;
    node.stats(&target).await?.succeeds()?;
    let above = node.stats(target.parent().unwrap_or(&target)).await?;
    above
        .asked("of the directory above the target, where the volume is not,")
        .is("DRV-085", &["NotFound"])?;
    let (unknown, codes) = cx.unknown_volume();
    let request = json!({ "volumeId": unknown, "volumePath": target });
    let answer = cx.call("NodeGetVolumeStats", request).await?;
    answer.asked("of a volume that does not exist").is("DRV-099", codes)?;
    // The driver has answered both calls and did not end.
    cx.keeps("DRV-097", "NodeGetVolumeStats", true, "")?;
    node.undo_publish("web").await
}

/// An inline volume has its data after a restart of the driver, and NodeUnpublishVolume still deletes it.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(needs = [Inline, Root, OwnProcess, Persistent])]
async fn volume_outlives_a_restart(cx: &mut Cx) -> Result {
    let node = cx.inline_calls("scratch")?;
    let target = node.target("web");
    node.publish("web").await?.succeeds()?;
    node.writes(&target, "kept").await?;
    cx.driver().restart().await?;
    let cause = "What was written to an inline volume is gone after the driver was restarted.";
    cx.keeps("DRV-160", "NodePublishVolume", node.has(&target, "kept").await?, cause)?;
    let unpublished = node.unpublish("web").await?.asked("of an inline volume that is older than a restart");
    unpublished.is("DRV-095", &["OK"])?;
    let cause = "NodeUnpublishVolume answered OK after a restart, and the target is still mounted.";
    cx.keeps("DRV-060", "NodeUnpublishVolume", node.mounts_at(&target)?.is_empty(), cause)?;

    node.publish("web").await?.succeeds()?;
    let cause = "An inline volume that was unpublished after a restart and is published anew has what was written before.";
    cx.keeps("DRV-067", "NodeUnpublishVolume", !node.has(&target, "kept").await?, cause)?;
    node.undo_publish("web").await
}

/// An inline volume that is published read-only cannot be written through its target.
///
/// CSI, NodePublishVolumeRequest.readonly: "SP MUST publish the volume in readonly mode".
#[case(needs = [Inline, Root, Persistent], driver = Shared)]
async fn read_only_volume_cannot_be_written(cx: &mut Cx) -> Result {
    let node = cx.inline_calls("scratch")?;
    let target = node.target("web");
    let published = node.publish_as("web", set_read_only).await?;
    if !published.is_ok() {
        cx.not_tried("DRV-050", "the driver publishes no inline volume read-only");
        return Ok(());
    }
    let cause = "An inline volume that is published read-only can be written.";
    cx.keeps("DRV-050", "NodePublishVolume", !can_write(&target), cause)?;
    node.undo_publish("web").await
}

/// Two inline volumes on one node show what was written to each of them.
///
/// CSI, NodePublishVolume: the volume of this id is at the target.
#[case(needs = [Inline, Root, Persistent], driver = Shared)]
async fn volumes_are_not_mixed_up(cx: &mut Cx) -> Result {
    let (one, two) = (cx.inline_calls("one")?, cx.inline_calls("two")?);
    one.publish("web").await?.succeeds()?;
    two.publish("web").await?.succeeds()?;
    if !one.takes_writes() {
        cx.not_tried("DRV-051", "the inline volumes cannot be written");
    } else {
        one.writes(&one.target("web"), "of-one").await?;
        let cause = "An inline volume shows what was written to another one.";
        let is_apart = !two.has_copied(&two.target("web"), &one, "of-one").await?;
        cx.keeps("DRV-051", "NodePublishVolume", is_apart, cause)?;
    }
    one.undo_publish("web").await?;
    two.undo_publish("web").await
}

/// An inline volume whose first NodePublishVolume failed is published when the cause is gone.
///
/// Kubernetes: a call that fails is made again, with the same id, for as long as its pod is there.
#[case(needs = [Inline, Root], driver = Shared)]
async fn publish_that_failed_is_good_the_next_time(cx: &mut Cx) -> Result {
    let node = cx.inline_calls("scratch")?;
    let target = node.target("web");
    // Makes the parent directory of the target.
    drop(node.publish_request("web"));
    std::fs::write(&target, "in the way of a directory")?;
    let failed = node.publish("web").await?;
    if failed.is_ok() {
        cx.not_tried("DRV-045", "the driver publishes where there is a file");
        return node.undo_publish("web").await;
    }
    node.unlink_if_there(&target);
    let again = node.publish("web").await?;
    let cause = format!(
        "NodePublishVolume of an inline volume failed while a file was at the target, and answered {} when it was gone.",
        again.code()
    );
    cx.keeps("DRV-045", "NodePublishVolume", again.is_ok(), &cause)?;
    if again.is_ok() {
        return node.undo_publish("web").await;
    }
    // Its answer does not count: CSI requires an undo only of what was "successfully setup".
    drop(node.unpublish("web").await?);
    Ok(())
}
