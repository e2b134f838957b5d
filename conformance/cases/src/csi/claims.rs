//! Claims and snapshots as a user writes them: the controllers of a cluster call the driver for them.

use crate::prelude::*;

/// A deleted claim takes its volume with it, and until then the volume keeps what pods wrote.
///
/// Kubernetes, persistent volumes: a claim that is deleted takes its volume with it where its class says `Delete`.
#[case(needs = [Creates, Filesystem, Root, Persistent])]
async fn claim_gets_a_volume_that_goes_with_it(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let data = cluster.claim("data").bound().await?;
    for (pod, text) in [("first", "hello"), ("second", "adieu")] {
        let pod = cx.pod(pod).volume(&data, "/data").start().await?;
        if text == "adieu" {
            pod.reads("/data/greeting", "hello").await?;
        }
        pod.writes("/data/greeting", text).await?;
        pod.stop().await?;
    }
    cluster.delete_claim(&data).await
}

/// A claim for a device gets one, and the device goes with it.
///
/// Kubernetes, raw block volumes: volumeMode `Block`.
#[case(needs = [Creates, Block, Root, Loop])]
async fn claim_for_a_device_gets_one(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let disk = cluster.claim("disk").block().bound().await?;
    let pod = cx.pod("web").device(&disk, "/dev/disk").start().await?;
    pod.stop().await?;
    cluster.delete_claim(&disk).await
}

/// The claim of a generic ephemeral volume gets a volume of its own, stays as long as its pod, and goes with it.
///
/// Kubernetes, ephemeral volumes: the pod owns the claim, and both are deleted together.
#[case(needs = [Creates, Filesystem, Root])]
async fn claim_of_an_ephemeral_volume_is_deleted_with_its_pod(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let pod =
        cx.pod("web").inline("scratch", cluster.own_claim("web", "scratch"), "/scratch").start().await?;
    let inside = pod.container().await?;
    inside.writes("/scratch/greeting", "hello").await?;
    inside.reads("/scratch/greeting", "hello").await?;
    pod.stop().await?;
    cluster.own_claim_is_gone("web", "scratch").await
}

/// A claim that is made from a snapshot begins with what the volume held at that moment, also when the volume is gone.
///
/// CSI, CreateSnapshot: the snapshot is of the moment at which it was cut. Kubernetes, volume snapshots: dataSource.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent, TwoVolumes])]
async fn snapshot_of_a_claim_is_restored(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let data = cluster.claim("data").bound().await?;
    let pod = cx.pod("before").volume(&data, "/data").start().await?;
    pod.writes("/data/greeting", "hello").await?;
    pod.stop().await?;

    let snapshot = cluster.snapshot("monday", &data).await?;
    let pod = cx.pod("after").volume(&data, "/data").start().await?;
    pod.writes("/data/greeting", "adieu").await?;
    pod.stop().await?;

    let restored = cluster.claim("restored").restored_from(&snapshot).bound().await?;
    let pod = cx.pod("reader").volume(&restored, "/data").start().await?;
    let is_restored = pod.holds("/data/greeting", "hello").await?;
    let cause =
        "A volume restored from a snapshot lacks data that its source had when the snapshot was taken.";
    cx.keeps("DRV-036", "CreateSnapshot", is_restored, cause)?;
    pod.stop().await?;
    cluster.delete_claim(&restored).await?;
    cluster.delete_snapshot(&snapshot).await?;
    cluster.delete_claim(&data).await
}

/// Claims that are made from the snapshots of a group begin with what their volumes held at that moment, and the snapshots
/// go with the group.
///
/// CSI, CreateVolumeGroupSnapshot: the snapshots of a group are sources of new volumes; DeleteSnapshot: a snapshot of a
/// group is deleted with its group only. Kubernetes, volume group snapshots.
#[case(needs = [GroupSnapshots, Snapshots, Creates, Filesystem, Root, Persistent, TwoVolumes])]
async fn group_snapshot_of_claims_is_restored(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let (data, log) = (cluster.claim("data").bound().await?, cluster.claim("log").bound().await?);
    let pod = cx.pod("before").volume(&data, "/data").volume(&log, "/log").start().await?;
    pod.writes("/data/greeting", "hello").await?;
    pod.writes("/log/greeting", "hello, log").await?;
    pod.stop().await?;

    let group = cluster.group_snapshot("monday", &[&data, &log]).await?;
    let pod = cx.pod("after").volume(&data, "/data").volume(&log, "/log").start().await?;
    pod.writes("/data/greeting", "adieu").await?;
    pod.writes("/log/greeting", "adieu").await?;
    pod.stop().await?;

    for (member, expected) in group.members.iter().zip(["hello", "hello, log"]) {
        let restored = cluster.claim("restored").restored_from(member).bound().await?;
        let pod = cx.pod("reader").volume(&restored, "/data").start().await?;
        let is_restored = pod.holds("/data/greeting", expected).await?;
        let cause = "A volume that was made from a snapshot of a group does not hold what its source held.";
        cx.keeps("DRV-038", "CreateVolumeGroupSnapshot", is_restored, cause)?;
        pod.stop().await?;
        cluster.delete_claim(&restored).await?;
    }
    cluster.delete_group(&group).await?;
    cluster.delete_claim(&log).await?;
    cluster.delete_claim(&data).await
}

/// A claim that is a copy of another begins with its data, and what is written to one is not in the other.
///
/// CSI, CreateVolume: the new volume is pre-populated with the source's data. Kubernetes, volume cloning.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent, TwoVolumes])]
async fn copy_of_a_claim_has_its_data(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let data = cluster.claim("data").bound().await?;
    let pod = cx.pod("before").volume(&data, "/data").start().await?;
    pod.writes("/data/greeting", "hello").await?;
    pod.stop().await?;

    let copy = cluster.claim("copy").copy_of(&data).bound().await?;
    // Both are mounted at once, which fails if the copy still has the UUID of its source.
    let pod = cx.pod("both").volume(&data, "/data").volume(&copy, "/copy").start().await?;
    pod.reads("/copy/greeting", "hello").await?;
    pod.writes("/copy/greeting", "adieu").await?;
    pod.reads("/data/greeting", "hello").await?;
    pod.stop().await
}

/// A claim that is changed to a larger size gets it, and keeps its data.
///
/// CSI, ControllerExpandVolume: capacity_range. Kubernetes, expanding persistent volumes claims.
#[case(needs = [Expands, Creates, Filesystem, Root, Persistent])]
async fn claim_that_asks_for_more_gets_it(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let data = cluster.claim("data").bound().await?;
    pod_writes(cx, &data).await?;
    let cause = "The claim does not have the size that it asked for once a pod uses its volume.";
    grows_with_its_data(cx, &cluster, &data, cause).await
}

/// A claim that asked for more than there is can ask for less, and gets that.
///
/// CSI, ControllerExpandVolume: OUT_OF_RANGE if the plugin does not allow the capacity range; the volume stays as it is.
/// Kubernetes, expanding persistent volumes claims: recovering from a failed expansion.
#[case(needs = [Expands, Creates, Filesystem, Root, Persistent])]
async fn claim_that_asked_for_too_much_gets_less(cx: &mut Cx) -> Result {
    /// 4 EiB: more than any machine has.
    const TOO_LARGE: u64 = 1 << 62;
    let cluster = cx.cluster().await?;
    let data = cluster.claim("data").bound().await?;
    pod_writes(cx, &data).await?;
    if !cluster.grow_is_refused(&data, TOO_LARGE).await? {
        // A driver that accepts the size breaks another promise: see `csi::growth::impossible_growth_is_refused`.
        return Ok(());
    }
    let cause = "The claim does not have the size that it asked for after a size that was refused.";
    grows_with_its_data(cx, &cluster, &data, cause).await
}

/// Writes to the volume of a claim in a pod that ends.
async fn pod_writes(cx: &Cx, data: &Volume) -> Result {
    let pod = cx.pod("before").volume(data, "/data").start().await?;
    pod.writes("/data/greeting", "hello").await?;
    pod.stop().await
}

/// A claim gets twice its size, and the next pod finds what was written.
async fn grows_with_its_data(cx: &Cx, cluster: &Cluster, data: &Volume, otherwise: &str) -> Result {
    let size = 2 * cx.size(data);
    cluster.grow(data, size).await?;
    let pod = cx.pod("after").volume(data, "/data").start().await?;
    pod.reads("/data/greeting", "hello").await?;
    cx.finds(cx.size(data) >= size, otherwise)?;
    pod.stop().await
}

/// A volume that is retained outlives its claim, and another claim finds what was written.
///
/// CSI, DeleteVolume is the only call that deletes a volume. Kubernetes, persistent volumes: reclaim policy `Retain`.
#[case(needs = [Creates, Filesystem, Root, Persistent])]
async fn retained_volume_can_be_claimed_again(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let data = cluster.claim("data").retained().bound().await?;
    let pod = cx.pod("before").volume(&data, "/data").start().await?;
    pod.writes("/data/greeting", "hello").await?;
    pod.stop().await?;
    cluster.release(&data).await?;

    cluster.claim_again(&data).await?;
    let pod = cx.pod("after").volume(&data, "/data").start().await?;
    pod.reads("/data/greeting", "hello").await?;
    pod.stop().await?;
    cluster.retain_no_more(&data)?;
    cluster.delete_claim(&data).await
}

/// A claim for several nodes gets a volume that pods on two nodes write at once.
///
/// CSI, VolumeCapability: MULTI_NODE_MULTI_WRITER can be published as read/write at multiple nodes simultaneously.
/// Kubernetes, persistent volumes: ReadWriteMany.
#[case(needs = [Creates, Filesystem, Root, Persistent, TwoNodes, SharedByNodes])]
async fn claim_for_several_nodes_is_written_on_both(cx: &mut Cx) -> Result {
    let (cluster, other) = (cx.cluster().await?, cx.other_node().await?);
    let data = cluster.claim("data").on_all_nodes().bound().await?;
    let here = cx.pod("here").volume(&data, "/data").start().await?;
    let there = other.pod("there").volume(&data, "/data").start().await?;
    here.writes("/data/from-here", "hello").await?;
    there.reads("/data/from-here", "hello").await?;
    there.writes("/data/from-there", "adieu").await?;
    here.reads("/data/from-there", "adieu").await?;
    here.stop().await?;
    there.stop().await?;
    cluster.delete_claim(&data).await
}

/// A volume has the attributes of its claim's class, also after the claim changes to another class.
///
/// CSI, ControllerModifyVolume: mutable_parameters. Kubernetes, volume attributes classes.
#[case(needs = [Modifies, Creates, Filesystem])]
async fn attributes_follow_the_class_of_the_claim(cx: &mut Cx) -> Result {
    let cluster = cx.cluster().await?;
    let data = cluster.claim("data").bound().await?;
    if cx.modify_request(&data).is_none() {
        cx.not_tried("DRV-156", "the manifest names no `mutable_parameters`");
        return Ok(());
    }
    cluster.attributes_class("gold").await?;
    cluster.modify(&data, "gold").await?;
    let other = cluster.claim("other").attributes("gold").bound().await?;
    // The volume was created with these attributes, so nothing is to be modified yet.
    let request = cx.modify_request(&other).unwrap_or_default();
    cx.call("ControllerModifyVolume", request).await?.asked("that it was made with").is("DRV-156", &["OK"])
}

/// A volume lives from its claim to its deletion: it is written, copied, grown, moved to another node and restored there.
///
/// Kubernetes, StatefulSet: a pod that moves keeps its claims, whatever has become of them.
#[case(needs = [Snapshots, Expands, Creates, Filesystem, Root, Persistent, TwoVolumes, TwoNodes])]
async fn volume_lives_from_claim_to_deletion_on_two_nodes(cx: &mut Cx) -> Result {
    let (cluster, other) = (cx.cluster().await?, cx.other_node().await?);
    let data = cluster.claim("data-db-0").bound().await?;
    let db = cx.pod("db-0").volume(&data, "/data").start().await?;
    db.writes("/data/greeting", "hello").await?;
    db.stop().await?;
    let snapshot = cluster.snapshot("nightly", &data).await?;
    let size = 2 * cx.size(&data);
    cluster.grow(&data, size).await?;

    let db = cx.pod("db-0").volume(&data, "/data").start().await?;
    db.writes("/data/greeting", "adieu").await?;
    let moved = db.moves_to(&other).await?;
    moved.reads("/data/greeting", "adieu").await?;
    let cause = "The claim does not have the size that it asked for once a pod uses its volume.";
    cx.finds(cx.size(&data) >= size, cause)?;
    moved.stop().await?;

    let restored = cluster.claim("data-db-1").restored_from(&snapshot).size(size).bound().await?;
    let reader = other.pod("db-1").volume(&restored, "/data").start().await?;
    reader.reads("/data/greeting", "hello").await?;
    reader.stop().await?;
    cluster.delete_claim(&data).await?;
    cluster.delete_snapshot(&snapshot).await?;
    cluster.delete_claim(&restored).await
}
