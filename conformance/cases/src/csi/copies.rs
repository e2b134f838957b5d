//! Copies of volumes, from a volume or from a snapshot: their data, their size, and their use beside the source.

use std::time::Duration;

use super::write_and_detach;
use crate::prelude::*;

/// A clone of a file system has what its source held, keeps it when the source changes, and outlives it.
///
/// CSI, CreateVolume: the volume has the data of the original volume when it is presented by NodePublishVolume.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent], judges = ["DRV-152"], driver = Shared)]
async fn clone_has_the_files_of_its_source(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = write_and_detach(cx, &data, "before").await?;
    let copy = cx.volume("copy").copy_of(&data).create().await?;
    names_its_source(cx)?;

    node.attach_again().await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let cloned = cx.node_calls(&copy).await?;
    let at = cloned.target("copy");
    cloned.set_up("copy").await?;
    let cause = "The clone does not have what was in the volume.";
    cx.keeps("DRV-014", "CreateVolume", cloned.has_copied(&at, &node, "before").await?, cause)?;
    let cause = "The clone has what was written to the volume afterwards.";
    cx.keeps("DRV-014", "CreateVolume", !cloned.has_copied(&at, &node, "after").await?, cause)?;

    cloned.tear_down("copy").await?;

    let deleted = cx.delete_volume(&data).await?.asked("of a volume that was cloned");
    deleted.is("DRV-147", &["OK", "FailedPrecondition"])?;
    let again = [cloned.stage().await?, cloned.publish("copy").await?];
    let kept = cloned.has_copied(&at, &node, "before").await?;
    let cause = "The clone lost what was in it when the volume was deleted.";
    cx.keeps("DRV-147", "DeleteVolume", again.iter().all(Answer::is_ok) && kept, cause)?;
    cloned.tear_down("copy").await
}

/// A clone of a device has what was on its source, and keeps it when the source changes.
///
/// CSI, CreateVolume: the volume has the data of the original volume when it is presented by NodePublishVolume.
#[case(needs = [Clones, Creates, Block, Root, Loop, Persistent, TwoVolumes], driver = Shared)]
async fn clone_has_the_blocks_of_its_source(cx: &mut Cx) -> Result {
    // No multiple of what a driver may copy at once.
    let disk = cx.volume("disk").block().size(cx.ordinary_size() + (1 << 20)).create().await?;
    let node = write_and_detach(cx, &disk, "before").await?;
    let copy = cx.volume("copy").block().copy_of(&disk).create().await?;

    node.attach_again().await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "after").await?;
    node.tear_down("web").await?;
    let cloned = cx.node_calls(&copy).await?;
    cloned.set_up("copy").await?;
    let at = cloned.target("copy");
    let cause = "The clone has what was written to the device afterwards.";
    cx.keeps("DRV-014", "CreateVolume", !cloned.has_copied(&at, &node, "after").await?, cause)?;
    let cause = "The clone does not have what was on the device.";
    cx.keeps("DRV-014", "CreateVolume", cloned.has_copied(&at, &node, "before").await?, cause)?;
    cloned.tear_down("copy").await
}

/// A larger clone has a larger file system, and the files of its source.
///
/// CSI, CreateVolume: the volume has both the requested (larger) size and the data of the original volume.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent], judges = ["DRV-015"], driver = Shared)]
async fn larger_clone_has_a_larger_file_system(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    is_larger(cx, &data, None).await
}

/// A volume that is larger than the snapshot it is from has a larger file system, and the files of the snapshot.
///
/// CSI, CreateVolume: the volume has both the requested (larger) size and the data of the snapshot.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], judges = ["DRV-015"], driver = Shared)]
async fn larger_restore_has_a_larger_file_system(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    is_larger(cx, &data, Some("one")).await
}

async fn is_larger(cx: &Cx, data: &Volume, snapshot: Option<&str>) -> Result {
    let node = cx.node_calls(data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "before").await?;
    let before = node.file_system(&node.target("web")).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let (old, new) = (cx.size(data), 2 * cx.size(data));
    let wanted = match snapshot {
        Some(name) => cx.volume("copy").restored_from(&cx.snapshot(name, data).await?),
        None => cx.volume("copy").copy_of(data),
    };
    let Some(copy) = made_larger(cx, wanted.size(new), "DRV-015").await? else { return Ok(()) };
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    let at = copied.target("copy");
    let cause = "The larger copy does not have what was in its source.";
    cx.keeps("DRV-014", "CreateVolume", copied.has_copied(&at, &node, "before").await?, cause)?;
    if before.bytes > old {
        cx.not_tried("DRV-015", "the volume is a part of a larger file system");
        return copied.tear_down("copy").await;
    }
    let after = copied.file_system(&at).await?;
    let cause = "The copy is twice as large as its source, and its file system is not larger.";
    cx.keeps("DRV-015", "NodePublishVolume", after.bytes >= before.bytes + (new - old) / 2, cause)?;
    copied.tear_down("copy").await
}

/// A larger copy of a device, from the device or from its snapshot, has the size that was asked for.
///
/// CSI, CreateVolume: the volume has both the requested (larger) size and the data of the snapshot or original volume.
#[case(needs = [Snapshots, Creates, Block, Root, Loop, Persistent], driver = Shared)]
async fn larger_restore_of_a_device_is_larger(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let node = write_and_detach(cx, &disk, "before").await?;
    let new = 2 * cx.size(&disk);
    let snapshot = cx.snapshot("one", &disk).await?;
    let wanted = cx.volume("copy").block().restored_from(&snapshot).size(new);
    let Some(copy) = made_larger(cx, wanted, "DRV-148").await? else { return Ok(()) };
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    let at = copied.target("copy");
    let cause = "The device is a copy that was asked to be larger than its source, and is smaller than was asked for.";
    cx.keeps("DRV-148", "CreateVolume", copied.device_size(&at).await? >= new, cause)?;
    let cause = "The larger copy does not have what was on its source.";
    cx.keeps("DRV-014", "CreateVolume", copied.has_copied(&at, &node, "before").await?, cause)?;
    copied.tear_down("copy").await
}

/// A copy that is asked to be smaller than its source is refused, or is as large as its source.
///
/// CSI, Snapshot.size_bytes: the size of the volume MUST NOT be less than the size of the source snapshot.
#[case(needs = [Snapshots, Creates, Filesystem], judges = ["DRV-149", "DRV-014"], driver = Shared)]
async fn copy_is_not_smaller_than_its_source(cx: &mut Cx) -> Result {
    let data = cx.volume("data").size(2 * cx.ordinary_size()).create().await?;
    let snapshot = cx.snapshot("one", &data).await?;
    if snapshot.said["sizeBytes"].is_null() || snapshot.said["sizeBytes"] == json!("0") {
        cx.not_tried("DRV-149", "the driver does not say how large the snapshot is");
        return Ok(());
    }
    let wanted = cx.volume("copy").restored_from(&snapshot).size(cx.ordinary_size());
    let Ok(copy) = wanted.create_if_supported().await? else {
        cx.keeps("DRV-149", "CreateVolume", true, "")?;
        let whole = cx.volume("whole").restored_from(&snapshot).create_if_supported().await?;
        let cause = "CreateVolume from a snapshot is refused since one that asked for less than the snapshot has was refused.";
        return cx.keeps("DRV-014", "CreateVolume", whole.is_ok(), cause);
    };
    let stated: u64 = snapshot.said["sizeBytes"].as_str().unwrap_or("0").parse()?;
    let cause = format!(
        "CreateVolume answered a volume of {} bytes, and the snapshot that it is from has {stated}.",
        cx.size(&copy)
    );
    cx.keeps("DRV-149", "CreateVolume", cx.size(&copy) >= stated, &cause)
}

/// A copy of each type of file system can be used on one node beside its source.
///
/// CSI, CreateVolume: the volume has the data of its source when it is presented by NodePublishVolume.
#[case(needs = [Clones, FsTypes, Creates, Filesystem, Root, Persistent, TwoVolumes], driver = Shared)]
async fn clone_is_used_beside_its_source(cx: &mut Cx) -> Result {
    for fs_type in cx.fs_types() {
        let data = cx.volume(&fs_type).fs_type(&fs_type).create().await?;
        let node = cx.node_calls(&data).await?;
        node.set_up("web").await?;
        node.writes(&node.target("web"), "before").await?;
        let name = format!("copy-of-{fs_type}");
        let wanted = cx.volume(&name).fs_type(&fs_type).copy_of(&data);
        let copy = match wanted.create_if_supported().await? {
            Ok(copy) => copy,
            Err(code) => {
                // The source may be larger than was asked for, and the driver need not say so.
                let cause = format!("CreateVolume of a clone with {fs_type} answered {code}, and not OK.");
                cx.finds(code == "OutOfRange", &cause)?;
                cx.not_tried(
                    "DRV-150",
                    "the driver makes no copy of the size that its source was asked for with",
                );
                node.tear_down("web").await?;
                node.detach().await?;
                continue;
            }
        };
        let copied = cx.node_calls(&copy).await?;
        let failed = copied.refusal("copy").await?;
        let method = failed.as_ref().map_or("NodeStageVolume", Answer::method);
        let cause = format!(
            "{method} of a clone with {fs_type} answered {} while its source is in use on the node.",
            failed.as_ref().map_or("OK", Answer::code)
        );
        cx.keeps("DRV-150", method, failed.is_none(), &cause)?;
        let has = copied.has_copied(&copied.target("copy"), &node, "before").await?;
        let cause = "A clone that is used beside its source does not show what it was made of.";
        cx.keeps("DRV-150", method, has, cause)?;
        node.tear_down("web").await?;
        copied.tear_down("copy").await?;
        // The node may carry no more than these two.
        copied.detach().await?;
        node.detach().await?;
    }
    Ok(())
}

/// CreateVolume of a copy, repeated, names its source as the first time.
///
/// CSI, Volume.content_source: if specified, the volume was made from this source.
#[case(needs = [Snapshots, Creates, Filesystem], driver = Shared)]
async fn repeated_call_names_the_source_again(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let snapshot = cx.snapshot("one", &data).await?;
    cx.volume("copy").restored_from(&snapshot).create().await?;
    let first = cx.last_answer("CreateVolume")?["volume"]["contentSource"].clone();
    let cause = "CreateVolume of a copy answered another `content_source` than it was asked for.";
    let asked = cx.last_request("CreateVolume")?["volumeContentSource"].clone();
    cx.keeps("DRV-152", "CreateVolume", first.is_null() || first == asked, cause)?;
    let again = cx.call("CreateVolume", cx.last_request("CreateVolume")?).await?;
    again.is("DRV-010", &["OK"])?;
    let cause = "CreateVolume of a copy answered another `content_source` when it was repeated.";
    let is_same = !again.is_ok() || again.part("/volume")["contentSource"] == first;
    cx.keeps("DRV-152", "CreateVolume", is_same, cause)
}

/// A copy that was refused, since its source does not exist, is refused when it is asked for again.
///
/// CSI, CreateVolume: NOT_FOUND if the source does not exist. A provisioner asks again until its claim is deleted.
#[case(needs = [Clones, Creates, Filesystem], driver = Shared)]
async fn refused_copy_is_refused_again(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let (unknown, codes) = cx.unknown_volume();
    let mut request = cx.create_request("copy")?;
    request["volumeContentSource"] = json!({ "volume": { "volumeId": unknown } });
    for asked in ["of a source that does not exist", "of a source that does not exist, once more,"] {
        let answer = cx.call("CreateVolume", request.clone()).await?.asked(asked);
        cx.delete_created(&answer).await?;
        answer.is("DRV-151", codes)?;
        if answer.is_ok() {
            break;
        }
    }
    Ok(())
}

/// A clone has the files of its source whose names begin with a dot.
///
/// CSI, CreateVolume: the volume has the data of the original volume when it is presented by NodePublishVolume.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent], judges = ["DRV-014"], driver = Shared)]
async fn clone_has_hidden_files(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = write_and_detach(cx, &data, ".hidden").await?;
    let copy = cx.volume("copy").copy_of(&data).create().await?;
    let cause = "The clone does not have a file of the volume whose name begins with a dot.";
    has_hidden_file(cx, &copy, &node, cause).await
}

/// A restored volume has the files of its snapshot whose names begin with a dot.
///
/// CSI, CreateVolume: the volume has the data of the snapshot when it is presented by NodePublishVolume.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], judges = ["DRV-014"], driver = Shared)]
async fn restored_volume_has_hidden_files(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = write_and_detach(cx, &data, ".hidden").await?;
    let snapshot = cx.snapshot("one", &data).await?;
    let copy = cx.volume("copy").restored_from(&snapshot).create().await?;
    let cause = "A restored volume does not have a file of the snapshot whose name begins with a dot.";
    has_hidden_file(cx, &copy, &node, cause).await
}

async fn has_hidden_file(cx: &Cx, copy: &Volume, source: &NodeCalls, cause: &str) -> Result {
    let copied = cx.node_calls(copy).await?;
    copied.set_up("copy").await?;
    let has = copied.has_copied(&copied.target("copy"), source, ".hidden").await?;
    cx.keeps("DRV-014", "CreateVolume", has, cause)?;
    copied.tear_down("copy").await
}

/// A snapshot in whose middle the driver was killed has all files when it is asked for again.
///
/// CSI, CreateSnapshot: this operation MUST be idempotent; OK is the answer for a snapshot that was successfully cut.
#[case(needs = [Snapshots, Creates, Filesystem, Root, OwnProcess, Persistent], judges = ["DRV-036"])]
async fn snapshot_cut_by_death_is_whole(cx: &mut Cx) -> Result {
    const FILES: usize = 1500;
    const MOMENTS: [u64; 3] = [8, 32, 128];
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    for number in 0..FILES {
        std::fs::write(node.target("web").join(format!("file-{number}")), "x")?;
    }
    node.tear_down("web").await?;
    node.detach().await?;
    for after in MOMENTS {
        let request = cx.snapshot_request(&format!("cut-{after}"), &data);
        let call = || -> Call { Box::pin(cx.take("CreateSnapshot", request.clone())) };
        cx.driver_dies_during(call(), Duration::from_millis(after)).await?;
        let taken = cx.until_ok(&call).await?.asked("in whose middle the driver was killed");
        taken.is("DRV-037", &["OK"])?;
        let mut request = cx.create_request(&format!("copy-{after}"))?;
        let id = taken.part("/snapshot/snapshotId");
        request["volumeContentSource"] = json!({ "snapshot": { "snapshotId": id } });
        let call = || -> Call { Box::pin(cx.call("CreateVolume", request.clone())) };
        let made = cx.until_ok(&call).await?;
        made.succeeds()?;
        let copy = cx.node_calls_of(&made, &data).await?;
        let mut has = 0;
        if copy.refusal("copy").await?.is_none() {
            let names = std::fs::read_dir(copy.target("copy"))?.flatten().map(|entry| entry.file_name());
            has = names.filter(|name| name.to_string_lossy().starts_with("file-")).count();
            copy.tear_down("copy").await?;
        }
        copy.detach().await?;
        cx.delete_created(&made).await?;
        let cause = "CreateSnapshot in whose middle the driver was killed answered OK when it was repeated, and a volume from the snapshot lacks files.";
        cx.keeps("DRV-036", "CreateSnapshot", has == FILES, cause)?;
    }
    Ok(())
}

/// Names of files that mean something to programs: options, patterns, several words.
const ODD_NAMES: [&str; 5] = ["-x", "--checkpoint=1", "two words", "*", "größe\n"];

/// A clone, and a volume from a snapshot, have the files whose names mean something to programs.
///
/// CSI, CreateVolume: the volume has the data of its source when it is presented by NodePublishVolume.
#[case(needs = [Creates, Filesystem, Root, Persistent, TwoVolumes], judges = ["DRV-014"], driver = Shared)]
async fn copy_has_files_with_odd_names(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    for name in ODD_NAMES {
        node.writes(&node.target("web"), name).await?;
    }
    node.tear_down("web").await?;
    node.detach().await?;
    let mut copies = Vec::new();
    if cx.controller_can("CLONE_VOLUME") {
        copies.push(cx.volume("clone").copy_of(&data).create().await?);
    }
    if cx.controller_can("CREATE_DELETE_SNAPSHOT") {
        let snapshot = cx.take("CreateSnapshot", cx.snapshot_request("one", &data)).await?;
        snapshot.asked("of a volume with files that have odd names").is("DRV-014", &["OK"])?;
        let snapshot = cx.snapshot("one", &data).await?;
        copies.push(cx.volume("restored").restored_from(&snapshot).create().await?);
    }
    if copies.is_empty() {
        cx.not_tried("DRV-014", "the driver makes no copies");
    }
    for copy in copies {
        let copied = cx.node_calls(&copy).await?;
        copied.set_up("copy").await?;
        for name in ODD_NAMES {
            let has = copied.has_copied(&copied.target("copy"), &node, name).await?;
            let cause = "A copy does not have a file of its source whose name means something to programs.";
            cx.keeps("DRV-014", "CreateVolume", has, cause)?;
        }
        copied.tear_down("copy").await?;
    }
    Ok(())
}

/// A clone has the files of its source, though the name of that has a blank.
///
/// CSI, CreateVolumeRequest.name: any Unicode string.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent, TwoVolumes], judges = ["DRV-014"], driver = Shared)]
async fn clone_of_a_name_with_a_blank_has_its_files(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let mut request = cx.create_request("n")?;
    let name = request["name"].as_str().unwrap_or_default().to_owned();
    request["name"] = json!(format!("{name} and more"));
    let made = cx.call("CreateVolume", request.clone()).await?;
    if !made.is_ok() {
        cx.not_tried("DRV-014", "the driver takes no name with a blank");
        return Ok(());
    }
    let node = cx.node_calls_of(&made, &data).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), "before").await?;
    node.tear_down("web").await?;
    node.detach().await?;
    request["name"] = json!(format!("{name} copied"));
    request["volumeContentSource"] = json!({ "volume": { "volumeId": made.part("/volume/volumeId") } });
    let copy = cx.call("CreateVolume", request).await?.asked("of a volume whose name has a blank");
    copy.is("DRV-014", &["OK"])?;
    let copied = cx.node_calls_of(&copy, &data).await?;
    copied.set_up("copy").await?;
    let has = copied.has_copied(&copied.target("copy"), &node, "before").await?;
    copied.tear_down("copy").await?;
    copied.detach().await?;
    cx.delete_created(&copy).await?;
    cx.delete_created(&made).await?;
    let cause = "The clone of a volume whose name has a blank does not have its files.";
    cx.keeps("DRV-014", "CreateVolume", has, cause)
}

/// A sparse file takes no more space in a clone than in its source, up to the blocks of a file system.
///
/// Not in CSI: a copy that fills the holes of its files may be full at once.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn sparse_file_of_a_clone_stays_sparse(cx: &mut Cx) -> Result {
    const LENGTH: u64 = 8 << 20;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    let sparse = node.target("web").join("sparse");
    let file = std::fs::File::create(&sparse)?;
    file.set_len(LENGTH)?;
    file.sync_all()?;
    drop(file);
    let before = taken(&sparse)?;
    node.tear_down("web").await?;
    node.detach().await?;
    if before > LENGTH / 8 {
        cx.not_tried("DRV-161", "the file system has no sparse files");
        return Ok(());
    }
    let copy = cx.volume("copy").copy_of(&data).create().await?;
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    let after = taken(&copied.target("copy").join("sparse"))?;
    let cause = format!("A sparse file that takes {before} bytes takes {after} in a clone of its volume.");
    cx.keeps("DRV-161", "CreateVolume", after <= LENGTH / 2, &cause)?;
    copied.tear_down("copy").await
}

/// The bytes that a file takes on its disk.
fn taken(file: &std::path::Path) -> Result<u64> {
    Ok(std::os::unix::fs::MetadataExt::blocks(&file.metadata()?) * 512)
}

/// A volume that was cloned while it was published is unpublished and unstaged as before.
///
/// CSI, NodeUnpublishVolume: this RPC MUST undo the work by the corresponding NodePublishVolume.
#[case(needs = [Clones, Creates, Filesystem, Root], judges = ["DRV-060"], driver = Shared)]
async fn source_in_use_is_unpublished_after_it_was_cloned(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    if cx.volume("copy").copy_of(&data).create_if_supported().await?.is_err() {
        cx.not_tried("DRV-060", "the driver clones no volume in use");
    }
    node.tear_down("web").await
}

/// A copy that was cut off by its caller has all that its source has when it is asked for again.
///
/// CSI, CreateVolume: this operation MUST be idempotent. 'Timeouts': the CO may retry a call that it cancelled.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent], judges = ["DRV-014"])]
async fn copy_that_was_cut_off_is_whole(cx: &mut Cx) -> Result {
    /// What a copy takes some time for.
    const BYTES: usize = 24 << 20;
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.set_up("web").await?;
    std::fs::write(node.target("web").join("large"), vec![7; BYTES])?;
    node.writes(&node.target("web"), "last").await?;
    node.tear_down("web").await?;
    node.detach().await?;
    let source = json!({ "volume": { "volumeId": cx.handle(&data) } });
    for (name, after) in [("soon", 4), ("late", 16), ("later", 64)] {
        let mut request = cx.create_request(name)?;
        request["volumeContentSource"] = source.clone();
        let call = || -> Call { Box::pin(cx.call("CreateVolume", request.clone())) };
        cx.cancels(call(), Duration::from_millis(after)).await;
        let made = cx.until_ok(&call).await?.asked("of a copy that is there");
        made.is("DRV-010", &["OK"])?;
        let copy = cx.node_calls_of(&made, &data).await?;
        let target = copy.target("web");
        let refusal = copy.refusal("web").await?;
        let length = std::fs::metadata(target.join("large")).map_or(0, |found| found.len());
        let is_whole =
            refusal.is_none() && length == BYTES as u64 && copy.has_copied(&target, &node, "last").await?;
        drop(copy.unpublish("web").await?);
        drop(copy.unstage().await?);
        copy.detach().await?;
        cx.delete_created(&made).await?;
        let cause = "CreateVolume of a copy that its caller had cut off answered OK when it was repeated, and the copy lacks what its source has.";
        cx.keeps("DRV-014", "CreateVolume", is_whole, cause)?;
    }
    Ok(())
}

/// A copy of a volume that does not exist is not found.
///
/// CSI, CreateVolume: NOT_FOUND if the source does not exist.
#[case(needs = [Clones, Creates, Filesystem], judges = ["DRV-151"], driver = Shared)]
async fn clone_of_an_unknown_volume_is_not_found(cx: &mut Cx) -> Result {
    let (unknown, codes) = cx.unknown_volume();
    let made = cx.volume("copy").copy_of_id(&unknown).create_if_supported().await?;
    is_refused(cx, made, codes, "volume")?;
    // An id of the driver's own form, which it has to look up.
    let gone = cx.volume("gone").create().await?;
    let id = cx.handle(&gone);
    cx.delete_volume(&gone).await?.succeeds()?;
    let made = cx.volume("late").copy_of_id(&id).create_if_supported().await?;
    is_refused(cx, made, &["NotFound"], "volume")
}

/// A copy that could not be made leaves nothing in the driver's directory.
///
/// Kubernetes: after a final error a caller assumes that nothing was done, and does not undo the call.
#[case(needs = [Clones, Creates, Filesystem, OwnProcess])]
async fn failed_copy_leaves_no_file(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let before = cx.driver_files()?;
    for attempt in ["copy", "another-copy"] {
        drop(cx.volume(attempt).copy_of_id(&cx.unknown_volume().0).create_if_supported().await?);
    }
    let cause = "Each CreateVolume of a copy that was refused left a file in the driver's directory.";
    cx.keeps("DRV-045", "CreateVolume", cx.driver_files()? < before + 2, cause)?;
    cx.delete_volume(&data).await?.succeeds()
}

/// Copies of devices that could not be made leave no device, no descriptor and no file.
///
/// Kubernetes: after a final error a caller assumes that nothing was done, and does not undo the call.
#[case(needs = [Clones, Creates, Block, Root, Loop, OwnProcess])]
async fn failed_copies_of_devices_leave_nothing(cx: &mut Cx) -> Result {
    const TIMES: usize = 32;
    const MEMORY: u64 = 32 << 20;
    /// Other cases attach and detach devices of the machine meanwhile.
    const MANY: u64 = 16;
    let disk = cx.volume("disk").block().create().await?;
    let mut before = cx.driver_load()?;
    for number in 0..=TIMES {
        let copy = cx.volume(&format!("copy-{number}")).block().copy_of_id(&cx.unknown_volume().0);
        drop(copy.create_if_supported().await?);
        // The first one lets the driver make what it keeps.
        if number == 0 {
            before = cx.driver_load()?;
        }
    }
    let after = cx.driver_load()?;
    for (resource, before, after, allowed) in after.beside(&before, MANY, MEMORY) {
        let cause = format!(
            "With each CreateVolume of a copy of a device that was refused there are more {resource}."
        );
        cx.keeps("DRV-045", "CreateVolume", after < before + allowed, &cause)?;
    }
    cx.delete_volume(&disk).await?.succeeds()
}

/// A copy that is asked for again, after it was used, stays as it was left.
///
/// CSI, CreateVolume: this operation MUST be idempotent: the volume is there, and is not made once more.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn repeated_call_does_not_fill_the_copy_anew(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    write_and_detach(cx, &data, "before").await?;
    let snapshot = cx.snapshot("one", &data).await?;
    let copy = cx.volume("copy").restored_from(&snapshot).create().await?;
    let request = cx.last_request("CreateVolume")?;
    let node = cx.node_calls(&copy).await?;
    let target = node.target("web");
    let moved = node.file(&target, "before");
    node.set_up("web").await?;
    std::fs::rename(&moved, target.join("moved"))?;
    node.writes(&target, "after").await?;
    node.tear_down("web").await?;
    node.detach().await?;
    drop(cx.call("CreateVolume", request).await?);
    node.attach_again().await?;
    node.set_up("web").await?;
    let is_as_left = !moved.exists() && node.has(&target, "after").await?;
    let cause = "CreateVolume of a copy that is there filled it with its source again.";
    cx.keeps("DRV-160", "CreateVolume", is_as_left, cause)?;
    node.tear_down("web").await
}

/// A copy that is asked for again, when its source is gone, stays as it was left.
///
/// CSI, CreateVolume: this operation MUST be idempotent. A caller that lost the answer repeats the call at any time.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn copy_outlives_a_call_for_it_without_its_source(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let snapshot = cx.snapshot("one", &data).await?;
    let copy = cx.volume("copy").restored_from(&snapshot).create().await?;
    let request = cx.last_request("CreateVolume")?;
    let node = write_and_detach(cx, &copy, "kept").await?;
    let deleted = cx.delete_snapshot(&snapshot.id).await?;
    if !deleted.is_ok() {
        cx.not_tried("DRV-160", "the driver deletes no snapshot that a volume was made of");
        return Ok(());
    }
    drop(cx.call("CreateVolume", request).await?);
    node.attach_again().await?;
    let refusal = node.refusal("web").await?;
    let is_kept = refusal.is_none() && node.has(&node.target("web"), "kept").await?;
    let cause = "CreateVolume of a copy that is there, when its source is gone, deleted what is in the copy.";
    cx.keeps("DRV-160", "CreateVolume", is_kept, cause)?;
    node.tear_down("web").await
}

/// A volume from a snapshot that does not exist is not found.
///
/// CSI, CreateVolume: NOT_FOUND if the source does not exist.
#[case(needs = [Snapshots, Creates, Filesystem], judges = ["DRV-151"], driver = Shared)]
async fn restore_of_an_unknown_snapshot_is_not_found(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let snapshot = cx.snapshot("one", &data).await?;
    cx.delete_snapshot(&snapshot.id).await?.succeeds()?;
    let made = cx.volume("copy").restored_from(&snapshot).create_if_supported().await?;
    is_refused(cx, made, &["NotFound"], "snapshot")
}

fn is_refused(cx: &Cx, made: std::result::Result<Volume, String>, codes: &[&str], source: &str) -> Result {
    let code = made.as_ref().err().map_or("OK", String::as_str);
    let cause =
        format!("CreateVolume from a {source} that does not exist answered {code}, and not NotFound.");
    cx.keeps("DRV-151", "CreateVolume", codes.contains(&code), &cause)
}

/// A driver need not make a copy larger than its source.
async fn made_larger(cx: &Cx, wanted: VolumeBuilder, promise: &str) -> Result<Option<Volume>> {
    match wanted.create_if_supported().await? {
        Ok(copy) => Ok(Some(copy)),
        Err(code) if matches!(code.as_str(), "OutOfRange" | "InvalidArgument" | "ResourceExhausted") => {
            cx.not_tried(promise, "the driver does not make copies that are larger than their source");
            Ok(None)
        }
        Err(code) => {
            let cause = format!("CreateVolume of a copy that is larger than its source answered {code}.");
            cx.finds(false, &cause)?;
            Ok(None)
        }
    }
}

fn names_its_source(cx: &Cx) -> Result {
    let answered = cx.last_answer("CreateVolume")?;
    let cause = "CreateVolume of a copy answered a volume without `content_source`.";
    cx.keeps("DRV-152", "CreateVolume", answered["volume"]["contentSource"].is_object(), cause)
}
