//! Statistics and condition of volumes, compared with the kernel's.

use std::time::Duration;

use serde_json::Value;

use crate::prelude::*;

/// The bytes that the kernel may account for between two measurements.
const SLACK: u64 = 2 << 20;

/// The statistics of a file system are those that the kernel has of it.
///
/// CSI, VolumeUsage: total is REQUIRED, in the specified unit; no value MUST be negative.
#[case(needs = [Stats, Filesystem, Root, Persistent], driver = Shared)]
async fn statistics_are_of_the_file_system(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    node.writes(&target, "some").await?;
    let answer = node.stats(&target).await?;
    answer.succeeds()?;
    let kernel = node.file_system(&target).await?;
    is_positive(cx, &answer)?;
    let in_bytes = answer.list("/usage").iter().filter(|usage| usage["unit"] == json!("BYTES"));
    let cause = "NodeGetVolumeStats answered the usage in bytes of one volume more than once.";
    cx.keeps("DRV-084", STATS, in_bytes.count() < 2, cause)?;
    let Some(bytes) = usage(&answer, "BYTES") else {
        cx.not_tried("DRV-084", "the driver reports no bytes");
        return node.tear_down("web").await;
    };
    let (total, size) = (number(&bytes, "total"), cx.size(&data));
    // A driver with quotas answers less than the file system that they are on.
    let is_quota = total <= size && total >= size / 2;
    let cause = "NodeGetVolumeStats answered another total than the file system and the volume have.";
    let is_total = total.abs_diff(kernel.bytes) <= kernel.bytes / 64;
    cx.keeps("DRV-084", STATS, is_total || is_quota, cause)?;
    if is_total && bytes["used"].is_string() {
        let (least, most) = (kernel.bytes - kernel.free, kernel.bytes - kernel.available);
        let cause = "NodeGetVolumeStats answered that more or less is used than the file system says.";
        let used = number(&bytes, "used");
        cx.keeps("DRV-084", STATS, used + SLACK >= least && used <= most + SLACK, cause)?;
    }
    if is_total && bytes["available"].is_string() {
        let cause = "NodeGetVolumeStats answered that more or less is available than the file system says.";
        let available = number(&bytes, "available");
        let fits = available + SLACK >= kernel.available && available <= kernel.free + SLACK;
        cx.keeps("DRV-084", STATS, fits, cause)?;
    }
    let inodes = usage(&answer, "INODES").filter(|_| is_total && kernel.inodes > 0);
    if let Some(inodes) = inodes {
        let cause = "NodeGetVolumeStats answered another number of inodes than the file system has.";
        let total = number(&inodes, "total");
        // Some file systems add inodes as they need them.
        cx.keeps("DRV-084", STATS, total.abs_diff(kernel.inodes) <= kernel.inodes / 16, cause)?;
        let cause = "NodeGetVolumeStats answered another number of free inodes than the file system has.";
        let is_close = number(&inodes, "available").abs_diff(kernel.free_inodes) <= kernel.inodes / 16;
        cx.keeps("DRV-084", STATS, !inodes["available"].is_string() || is_close, cause)?;
    }
    node.tear_down("web").await
}

/// The statistics of a file system follow what is written to it.
///
/// CSI, VolumeUsage: used and available are those of the volume. Kubernetes shows them as those of this minute.
#[case(needs = [Stats, Filesystem, Root, Persistent], driver = Shared)]
async fn statistics_follow_what_is_written(cx: &mut Cx) -> Result {
    const WRITTEN: u64 = 4 * SLACK;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    let before = (node.stats(&target).await?, node.file_system(&target).await?);
    if before.1.available < 2 * WRITTEN {
        cx.not_tried("DRV-187", "the volume has too little space for a file of 8 MiB");
        return node.tear_down("web").await;
    }
    let file = std::fs::File::create(target.join("filled"))?;
    std::io::Write::write_all(&mut &file, &vec![1; usize::try_from(WRITTEN)?])?;
    file.sync_all()?;
    let after = (node.stats(&target).await?, node.file_system(&target).await?);
    drop(file);
    let change = |(answer, _): &(Answer, FileSystem), field: &str| {
        usage(answer, "BYTES").filter(|bytes| bytes[field].is_string()).map(|bytes| number(&bytes, field))
    };
    // What others do with the same file system is in both.
    if before.1.free.saturating_sub(after.1.free) + SLACK < WRITTEN {
        cx.not_tried("DRV-187", "the kernel does not count what was written");
        return node.tear_down("web").await;
    }
    if let (Some(was), Some(is)) = (change(&before, "used"), change(&after, "used")) {
        let cause = "NodeGetVolumeStats answered as much used as before 8 MiB were written.";
        cx.keeps("DRV-187", STATS, is > was + SLACK, cause)?;
    }
    if let (Some(was), Some(is)) = (change(&before, "available"), change(&after, "available")) {
        let cause = "NodeGetVolumeStats answered as much available as before 8 MiB were written.";
        cx.keeps("DRV-187", STATS, is + SLACK < was, cause)?;
    }
    if let (Some(was), Some(is)) = (change(&before, "total"), change(&after, "total")) {
        let cause = "NodeGetVolumeStats answered a smaller total after 8 MiB were written.";
        let has_shrunk = after.1.bytes + SLACK < before.1.bytes;
        cx.keeps("DRV-084", STATS, is + SLACK >= was || has_shrunk, cause)?;
    }
    node.tear_down("web").await
}

/// A node asks for the statistics of each volume of a pod once a minute, and a volume that a pod has is measured.
///
/// Kubernetes, volume metrics: the kubelet calls NodeGetVolumeStats for each volume of a pod each minute.
/// CSI, NodeGetVolumeStats: with the path at which the volume was published.
#[case(needs = [Stats, Filesystem, Root, Persistent])]
async fn statistics_are_asked_for_each_minute(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.writes("/data/greeting", "hello").await?;
    cx.time_passes(Duration::from_secs(61)).await?;
    cx.is_answered(STATS).await?;
    let asked = cx.last_request(STATS)?;
    let published = cx.last_request("NodePublishVolume")?;
    let cause =
        "The node asked for the statistics of another path than the one at which the volume is published.";
    cx.finds(asked["volumePath"] == published["targetPath"], cause)?;
    web.stop().await
}

/// The size in the statistics of a device is that of the device.
///
/// CSI, VolumeUsage: total is REQUIRED; used and available MAY be omitted of a block volume.
#[case(needs = [Stats, Block, Root, Loop], driver = Shared)]
async fn statistics_are_of_the_device(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let node = cx.node_calls(&disk).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    let answer = node.stats(&target).await?;
    answer.succeeds()?;
    is_positive(cx, &answer)?;
    match usage(&answer, "BYTES") {
        Some(bytes) => {
            let cause = "NodeGetVolumeStats answered another size than the device has.";
            let is_size = number(&bytes, "total") == node.device_size(&target).await?;
            cx.keeps("DRV-084", STATS, is_size, cause)?;
        }
        None => cx.not_tried("DRV-084", "the driver reports no bytes of a device"),
    }
    node.tear_down("web").await
}

/// NodeGetVolumeStats answers the condition of a volume, which is abnormal when its mount is gone.
///
/// CSI, NodeGetVolumeStatsResponse: volume_condition MUST be specified if VOLUME_CONDITION is reported.
#[case(needs = [Stats, Filesystem, Root], judges = ["DRV-088", "DRV-170"], driver = Shared)]
async fn volume_without_its_mount_is_not_well(cx: &mut Cx) -> Result {
    if !cx.reports_condition() {
        cx.not_tried("DRV-086", "the node service does not report VOLUME_CONDITION");
        return Ok(());
    }
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    let well = node.stats(&target).await?;
    well.succeeds()?;
    let cause = "NodeGetVolumeStats answered no volume_condition, and VOLUME_CONDITION is reported.";
    cx.keeps("DRV-086", STATS, well.part("/volumeCondition").is_object(), cause)?;
    if node.mounts_at(&target)?.is_empty() {
        cx.not_tried("DRV-086", "the driver mounts nothing at its targets");
        return node.tear_down("web").await;
    }
    node.loses_mount(&target)?;
    let gone = node.stats(&target).await?;
    let cause = "NodeGetVolumeStats answered a normal condition of a volume whose mount is gone.";
    let is_abnormal = gone.part("/volumeCondition/abnormal") == json!(true);
    cx.keeps("DRV-086", STATS, !gone.is_ok() || is_abnormal, cause)?;
    node.tear_down("web").await
}

/// Statistics are refused without each of the required fields, and of a volume that does not exist.
///
/// CSI, NodeGetVolumeStats: volume_id and volume_path are REQUIRED; NOT_FOUND if the volume does not exist.
#[case(needs = [Stats, Filesystem, Root], judges = ["DRV-090"], driver = Shared)]
async fn statistics_need_a_volume_and_its_path(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let mut request = json!({ "volumeId": node.handle(), "volumePath": node.target("web") });
    cx.requires(STATS, &request, &["volumeId", "volumePath"]).await?;
    let (unknown, codes) = cx.unknown_volume();
    request["volumeId"] = json!(unknown);
    let answer = cx.call(STATS, request).await?;
    answer.asked("of a volume that does not exist").is("DRV-099", codes)?;
    node.tear_down("web").await
}

/// Statistics at a path where the volume is not are refused.
///
/// CSI, NodeGetVolumeStats: NOT_FOUND if the volume does not exist on the specified path.
#[case(needs = [Stats, Filesystem, Root], driver = Shared)]
async fn statistics_of_another_path_are_not_found(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let target = node.target("web");
    let nowhere = target.with_file_name("nowhere");
    let above = target.parent().unwrap_or(&target);
    for (path, asked) in [
        (nowhere.as_path(), "at a path where nothing is"),
        (above, "of the directory above the target, where the volume is not,"),
    ] {
        node.stats(path).await?.asked(asked).is("DRV-085", &["NotFound"])?;
    }
    node.tear_down("web").await
}

/// Statistics are answered at each target of a volume.
///
/// CSI, NodeGetVolumeStatsRequest.volume_path: any valid path where the volume was previously staged or published.
#[case(needs = [Stats, Filesystem, Shared, Creates, Root], driver = Shared)]
async fn statistics_are_answered_at_each_target(cx: &mut Cx) -> Result {
    let data = cx.volume("data").shared().create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    node.publish("other").await?.asked("at a second target").succeeds()?;
    for target in ["web", "other"] {
        let answer = node.stats(&node.target(target)).await?;
        answer.asked("at one of two targets of the volume").is("DRV-084", &["OK"])?;
    }
    node.undo_publish("other").await?;
    node.tear_down("web").await
}

const STATS: &str = "NodeGetVolumeStats";

fn usage(answer: &Answer, unit: &str) -> Option<Value> {
    answer.list("/usage").iter().find(|usage| usage["unit"] == json!(unit)).cloned()
}

fn number(usage: &Value, field: &str) -> u64 {
    usage[field].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn is_positive(cx: &Cx, answer: &Answer) -> Result {
    let is_negative = |usage: &Value| {
        let fields = ["total", "used", "available"].map(|field| usage[field].as_str().unwrap_or_default());
        fields.iter().any(|value| value.starts_with('-'))
    };
    let cause = "NodeGetVolumeStats answered a negative number.";
    cx.keeps("DRV-084", STATS, !answer.list("/usage").iter().any(is_negative), cause)
}
