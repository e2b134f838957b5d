//! Two nodes: a volume moves from one to the other, both have it at once, and one of them is lost.

use std::time::Duration;

use super::detach_of;
use crate::prelude::*;

/// The time after which the attach/detach controller detaches by force from a node that is not ready.
const SIX_MINUTES: Duration = Duration::from_secs(360);

/// A pod's successor on another node finds what the pod has written.
///
/// CSI, NodeUnstageVolume: all changes are to be on the volume when it is answered.
#[case(needs = [Filesystem, Root, Persistent, TwoNodes], judges = ["DRV-005"])]
async fn data_move_to_another_node(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").create().await?;
    let first = cx.pod("first").volume(&data, "/data").start().await?;
    first.writes("/data/greeting", "hello").await?;
    first.stop().await?;

    let second = other.pod("second").volume(&data, "/data").start().await?;
    second.reads("/data/greeting", "hello").await?;
    second.writes("/data/greeting", "adieu").await?;
    other
        .sees(expect![[r#"
            csi    Stage data
            csi    Publish data second
            mount  <publish:data/second>
        "#]])
        .await?;
    second.stop().await?;

    let third = cx.pod("third").volume(&data, "/data").start().await?;
    third.reads("/data/greeting", "adieu").await?;
    third.stop().await?;
    cx.sees(expect![[r#"
        csi    Stage data
        csi    Publish data first
        mount  <publish:data/first>
        csi    Unpublish data first
        umount <publish:data/first>
        csi    Unstage data
        csi    Stage data
        csi    Publish data third
        mount  <publish:data/third>
        csi    Unpublish data third
        umount <publish:data/third>
        csi    Unstage data
    "#]])
        .await
}

/// A pod that moves keeps its name, its claim and its data, block volumes as well as file systems.
///
/// Kubernetes, StatefulSet: a pod that is rescheduled keeps its identity and its volumes.
#[case(needs = [Filesystem, Block, Root, Persistent, TwoVolumes, TwoNodes])]
async fn pod_moves_with_its_volumes(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").create().await?;
    let disk = cx.volume("disk").block().create().await?;
    let db = cx.pod("db").volume(&data, "/data").device(&disk, "/dev/disk").start().await?;
    db.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    let moved = db.moves_to(&other).await?;
    moved.reads("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        csi    Unpublish data db
        umount <publish:data/db>
        csi    Unstage data
        unlock <map:disk/db>
        unlink <db>/disk
        umount <map:disk/db>
        csi    Unpublish disk db
        umount <publish:disk/db>
        csi    Unstage disk
        rmdir  <map:disk>
    "#]])
        .await?;
    other
        .sees(expect![[r#"
        csi    Stage data
        csi    Publish data db
        mount  <publish:data/db>
        csi    Stage disk
        csi    Publish disk db
        bind   <publish:disk/db>   =  <device:disk>
        bind   <map:disk/db>       =  <device:disk>
        link   <db>/disk           ->  <publish:disk/db>
        lock   <map:disk/db>
    "#]])
        .await?;
    moved.stop().await
}

/// Where each node has a driver with a state of its own, a volume lives on each of them from its creation to its deletion.
///
/// CSI, Architecture, Figure 4: a headless plugin on each node serves the node's own volumes.
#[case(needs = [Creates, Filesystem, Root, Persistent, NodesApart])]
async fn volume_lives_on_each_of_two_nodes_apart(cx: &mut Cx) -> Result {
    let here = cx.volume("here").create().await?;
    outlives_a_pod(&here, cx.pod("first"), cx.pod("next"), "hello").await?;
    let other = cx.other_node().await?;
    let there = other.volume("there").create().await?;
    outlives_a_pod(&there, other.pod("first-there"), other.pod("next-there"), "adieu").await
}

/// Checks that the next pod sees what the first pod wrote to a volume.
async fn outlives_a_pod(volume: &Volume, first: PodBuilder, next: PodBuilder, text: &str) -> Result {
    let first = first.volume(volume, "/data").start().await?;
    first.writes("/data/greeting", text).await?;
    first.stop().await?;
    let next = next.volume(volume, "/data").start().await?;
    next.reads("/data/greeting", text).await?;
    next.stop().await
}

/// Pods on two nodes see what each of them writes.
///
/// CSI, VolumeCapability: MULTI_NODE_MULTI_WRITER can be published as read/write at multiple nodes simultaneously.
#[case(needs = [Filesystem, Root, Persistent, TwoNodes, SharedByNodes])]
async fn volume_is_written_on_both_nodes(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").on_all_nodes().create().await?;
    let first = cx.pod("first").volume(&data, "/data").start().await?;
    let second = other.pod("second").volume(&data, "/data").start().await?;
    first.writes("/data/from-first", "hello").await?;
    second.reads("/data/from-first", "hello").await?;
    second.writes("/data/from-second", "adieu").await?;
    first.reads("/data/from-second", "adieu").await?;

    first.stop().await?;
    second.reads("/data/from-first", "hello").await?;
    second.stop().await
}

/// A volume for one node is not attached while another node has it, and an event at the pod names the pod that uses it.
///
/// Kubernetes, attach/detach controller: Multi-Attach error.
#[case(needs = [Filesystem, Root, Persistent, TwoNodes, Attaches])]
async fn volume_in_use_elsewhere_is_not_attached(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").create().await?;
    waits_for_the_other_node(cx, &other, &data).await
}

/// A volume for a single pod goes to a pod on another node only when the first pod is gone.
///
/// CSI, VolumeCapability: SINGLE_NODE_SINGLE_WRITER can be published once as read/write on a single node. Kubernetes,
/// persistent volumes: ReadWriteOncePod; attach/detach controller: Multi-Attach error.
#[case(needs = [Filesystem, Root, Persistent, TwoNodes, Attaches])]
async fn volume_of_a_single_pod_goes_to_the_next_on_another_node(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").single_pod().create().await?;
    waits_for_the_other_node(cx, &other, &data).await
}

/// A pod on the other node has a volume only when the pod on this node is gone, and an event says so until then.
async fn waits_for_the_other_node(cx: &Cx, other: &OtherNode, data: &Volume) -> Result {
    let first = cx.pod("first").volume(data, "/data").start().await?;
    let second = other.pod("second").volume(data, "/data").add().await?;
    second
        .has_event(expect![[r#"
            FailedAttachVolume: Multi-Attach error for volume "pv-data" Volume is already used by pod(s) first
        "#]])
        .await?;
    first.writes("/data/greeting", "hello").await?;
    first.stop().await?;
    second.runs().await?;
    second.reads("/data/greeting", "hello").await?;
    second.stop().await
}

/// A volume is taken from a node that is lost after six minutes, and the node tidies up when it is back.
///
/// CSI, ControllerUnpublishVolume: the plugin should undo ControllerPublishVolume also where the node is gone.
/// Kubernetes, attach/detach controller: a volume is detached by force from a node that is not ready for six minutes.
#[case(needs = [Filesystem, Root, Persistent, TwoNodes, Attaches])]
async fn volume_of_a_lost_node_is_detached_after_six_minutes(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").create().await?;
    let old = other.pod("old").volume(&data, "/data").start().await?;
    old.writes("/data/greeting", "hello").await?;
    other.is_lost().await?;
    old.is_taken_away().await?;

    let new = cx.pod("new").volume(&data, "/data").add().await?;
    new.has_event(expect![[r#"
        FailedAttachVolume: Multi-Attach error for volume "pv-data" Volume is already exclusively attached to one node and can't be attached to another
    "#]])
        .await?;
    cx.time_passes(SIX_MINUTES).await?;
    // The pod's wait of two minutes has ended meanwhile: without a sync its node would pause before it waits again.
    new.sync().await?;
    new.runs().await?;
    new.reads("/data/greeting", "hello").await?;

    other.comes_back().await?;
    other
        .sees(expect![[r#"
            csi    Stage data
            csi    Publish data old
            mount  <publish:data/old>
            umount <publish:data/old>
            csi    Unpublish data old
            csi    Unstage data
        "#]])
        .await?;
    new.writes("/data/greeting", "adieu").await?;
    new.stop().await
}

/// A volume is taken at once from a node that is declared gone.
///
/// Kubernetes, non-graceful node shutdown: the taint `node.kubernetes.io/out-of-service`.
#[case(needs = [Filesystem, Root, Persistent, TwoNodes, Attaches])]
async fn volume_of_a_node_out_of_service_is_detached_at_once(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").create().await?;
    let old = other.pod("old").volume(&data, "/data").start().await?;
    old.writes("/data/greeting", "hello").await?;
    other.is_lost().await?;
    other.is_declared_gone()?;
    old.is_taken_away().await?;

    let new = cx.pod("new").volume(&data, "/data").start().await?;
    new.reads("/data/greeting", "hello").await?;
    new.stop().await
}

/// A volume for one node is not attached to a second one, and is when the first has it no more.
///
/// CSI, ControllerPublishVolume: FAILED_PRECONDITION if the volume is published to another node and is not for several.
#[case(needs = [Attaches, Filesystem, Root, Persistent, TwoNodes])]
async fn volume_for_one_node_is_not_attached_to_a_second(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let data = cx.volume("data").create().await?;
    let here = cx.attach_request(&data).await?;
    let there = other.attach_request(&data).await?;
    cx.call("ControllerPublishVolume", here.clone()).await?.succeeds()?;
    let second = cx.call("ControllerPublishVolume", there.clone()).await?;
    // Detached before the answer is judged: a failed case must leave no attachment.
    if second.is_ok() {
        cx.call("ControllerUnpublishVolume", detach_of(&there)).await?.succeeds()?;
    }
    cx.call("ControllerUnpublishVolume", detach_of(&here)).await?.succeeds()?;
    let after = cx.call("ControllerPublishVolume", there.clone()).await?;
    cx.call("ControllerUnpublishVolume", detach_of(&there)).await?.succeeds()?;
    second.asked("of a volume that another node has").is("DRV-032", &["FailedPrecondition"])?;
    after.asked("of a volume that no node has any more").succeeds()
}
