//! Names of volumes: CreateVolume of a known name answers the same volume, or refuses.

use std::time::Duration;

use serde_json::Value;

use super::{size_of, write_and_detach};
use crate::prelude::*;

const CREATE: &str = "CreateVolume";

/// Names that differ only in their case, or only far from their start, are those of different volumes.
///
/// CSI, Volume.volume_id: it MUST identify this volume uniquely among all others of the plugin.
#[case(needs = [Creates, Filesystem], judges = ["DRV-110"], driver = Shared)]
async fn names_that_differ_are_different_volumes(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let request = cx.create_request("n")?;
    let name = request["name"].as_str().unwrap_or_default().to_owned();
    let long = format!("{name:n<110}");
    let names =
        [name.clone(), name.to_uppercase(), format!("{name}-"), long.clone(), format!("{long}1"), long + "2"];
    are_different(cx, &names).await
}

/// A name that begins another one is that of a volume of its own, also if the longer one was made first.
///
/// CSI, Volume.volume_id: it MUST identify this volume uniquely among all others of the plugin.
#[case(needs = [Creates, Filesystem], judges = ["DRV-110"], driver = Shared)]
async fn name_that_begins_another_is_of_another_volume(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let request = cx.create_request("n")?;
    let name = request["name"].as_str().unwrap_or_default();
    are_different(cx, &[format!("{name}-and-more"), name.to_owned()]).await
}

/// The longest names are different if only their last bytes are.
///
/// CSI, 'Size Limits': strings may have 128 bytes.
#[case(needs = [Creates, Filesystem], judges = ["DRV-110"], driver = Shared)]
async fn longest_names_are_compared_to_their_end(cx: &mut Cx) -> Result {
    const LONGEST: usize = 128;
    cx.volume("data").create().await?;
    let request = cx.create_request("n")?;
    let name = request["name"].as_str().unwrap_or_default();
    let but_one = format!("{name:n<width$}", width = LONGEST - 1);
    are_different(cx, &[format!("{but_one}1"), format!("{but_one}2")]).await
}

/// Names that differ only in a sign between their letters are those of different volumes.
///
/// CSI, Volume.volume_id: it MUST identify this volume uniquely among all others of the plugin.
#[case(needs = [Creates, Filesystem], judges = ["DRV-110"], driver = Shared)]
async fn names_that_differ_in_a_sign_are_different_volumes(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let request = cx.create_request("n")?;
    let name = request["name"].as_str().unwrap_or_default();
    are_different(cx, &["-1", ".1", "_1", "1"].map(|end| format!("{name}{end}"))).await
}

/// Checks that volumes of these names have different ids. A driver may refuse some of the names.
async fn are_different(cx: &Cx, names: &[String]) -> Result {
    let mut request = cx.last_request(CREATE)?;
    let mut made: Vec<Answer> = Vec::new();
    for name in names {
        request["name"] = json!(name);
        let answer = cx.call(CREATE, request.clone()).await?;
        made.extend(Some(answer).filter(Answer::is_ok));
    }
    let ids: Vec<&str> = made.iter().map(|answer| answer.text("/volume/volumeId")).collect();
    let is_unique = ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id));
    for answer in &made {
        cx.delete_created(answer).await?;
    }
    let cause = "CreateVolume answered one id for two names.";
    cx.keeps("DRV-110", CREATE, is_unique, cause)
}

/// A volume that is created after another was deleted has an id that no other volume has.
///
/// CSI, Volume.volume_id: it MUST identify this volume uniquely among all others of the plugin.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn id_of_a_new_volume_is_not_that_of_another(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let made = [
        cx.call(CREATE, cx.create_request("first")?).await?,
        cx.call(CREATE, cx.create_request("second")?).await?,
    ];
    cx.delete_created(&made[0]).await?;
    let last = cx.call(CREATE, cx.create_request("third")?).await?;
    cx.delete_created(&made[1]).await?;
    cx.delete_created(&last).await?;
    if ![&made[0], &made[1], &last].iter().all(|answer| answer.is_ok()) {
        cx.not_tried("DRV-110", "the driver does not make several volumes");
        return Ok(());
    }
    let id = |answer: &Answer| answer.text("/volume/volumeId").to_owned();
    let cause = "CreateVolume answered for a new volume the id of another one.";
    cx.keeps("DRV-110", CREATE, id(&last) != id(&made[1]), cause)
}

/// A volume that is created with the name of a deleted one is new, however often that is done.
///
/// CSI, DeleteVolume: a plugin that creates volumes MUST implement this call, which is made to deprovision a volume.
#[case(needs = [Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn name_of_a_deleted_volume_is_free(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let request = cx.last_request(CREATE)?;
    write_and_detach(cx, &data, "first").await?;
    let deleted = cx.delete_volume(&data).await?.asked("of a volume that is used nowhere any more");
    deleted.is("DRV-115", &["OK"])?;
    // Twice: a driver that remembers what it has deleted may take the second volume for the first.
    for (name, earlier) in [("second", "first"), ("third", "second")] {
        let made = cx.call(CREATE, request.clone()).await?;
        if !made.is_ok() {
            cx.not_tried("DRV-115", "the driver makes no volume with the name of a deleted one");
            return Ok(());
        }
        let node = cx.node_calls_of(&made, &data).await?;
        node.set_up("web").await?;
        let target = node.target("web");
        let is_new = !node.file(&target, earlier).exists();
        node.writes(&target, name).await?;
        node.tear_down("web").await?;
        node.detach().await?;
        cx.delete_created(&made).await?;
        let cause = "CreateVolume with the name of a volume that was deleted made one that has its files.";
        cx.keeps("DRV-115", "DeleteVolume", is_new, cause)?;
    }
    Ok(())
}

/// A device that is created with the name of a deleted one is new, and what is written to it is on no other device.
///
/// CSI, DeleteVolume: a plugin that creates volumes MUST implement this call, which is made to deprovision a volume.
#[case(needs = [Creates, Block, Root, Loop, Persistent, TwoVolumes], driver = Shared)]
async fn name_of_a_deleted_device_is_free(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let request = cx.last_request(CREATE)?;
    write_and_detach(cx, &disk, "first").await?;
    cx.delete_volume(&disk).await?.succeeds()?;
    // What it was on may be the next one's.
    let other = cx.node_calls(&cx.volume("other").block().create().await?).await?;
    other.set_up("web").await?;
    other.writes(&other.target("web"), "of-the-other").await?;
    let made = cx.call(CREATE, request).await?;
    if !made.is_ok() {
        cx.not_tried("DRV-115", "the driver makes no volume with the name of a deleted one");
        return other.tear_down("web").await;
    }
    let node = cx.node_calls_of(&made, &disk).await?;
    node.set_up("web").await?;
    let is_new = !node.has(&node.target("web"), "first").await?;
    node.writes(&node.target("web"), "second").await?;
    let is_its_own = other.has(&other.target("web"), "of-the-other").await?;
    node.tear_down("web").await?;
    node.detach().await?;
    cx.delete_created(&made).await?;
    other.tear_down("web").await?;
    let cause = "CreateVolume with the name of a device that was deleted made one that has its blocks.";
    cx.keeps("DRV-115", "DeleteVolume", is_new, cause)?;
    let cause = "What was written to a device with the name of a deleted one is on another device.";
    cx.keeps("DRV-051", "NodePublishVolume", is_its_own, cause)
}

/// The name of a volume with a file system is taken for a device too, unless the volume can be used as either.
///
/// CSI, CreateVolume: ALREADY_EXISTS if a volume of the name exists and is incompatible with the request.
#[case(needs = [Creates, Filesystem, Block, Root], driver = Shared)]
async fn taken_name_for_another_use_is_refused(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let mut request = cx.last_request(CREATE)?;
    let mode = request["volumeCapabilities"][0]["accessMode"].clone();
    let device = json!({ "block": {}, "accessMode": mode });
    request["volumeCapabilities"] = json!([device]);
    let answer = cx.call(CREATE, request).await?;
    if !answer.is_ok() || answer.text("/volume/volumeId") != cx.handle(&data) {
        return answer
            .asked("of a device, by a name that a file system has,")
            .is("DRV-011", &["AlreadyExists"]);
    }
    // Volumes that are disks are compatible with both uses.
    let node = cx.node_calls(&data).await?;
    node.ask_with(|asked| *asked = device);
    let refusal = node.refusal("web").await?;
    let is_device = node.is_device(&node.target("web"));
    let cause = "CreateVolume of a device, by a name that a file system has, answered OK, and the volume cannot be published as a device.";
    cx.keeps("DRV-011", CREATE, refusal.is_none() && is_device, cause)
}

/// CreateVolume of a known name with other parameters does not change the volume's context, whatever it answers.
///
/// CSI, Volume: "A volume uniquely identified by `volume_id` SHALL always report the same volume_context."
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn taken_name_with_other_parameters_keeps_its_context(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let created = cx.last_answer(CREATE)?["volume"].clone();
    let mut request = cx.last_request(CREATE)?;
    let mut parameters = request["parameters"].as_object().cloned().unwrap_or_default();
    parameters.insert("volproof.dev/other".to_owned(), json!("other"));
    request["parameters"] = Value::Object(parameters);
    let answer = cx.call(CREATE, request).await?;
    let again = answer.part("/volume");
    if answer.is_ok() && again["volumeId"] != created["volumeId"] {
        return cx.delete_created(&answer).await;
    }
    let context = |volume: &Value| volume["volumeContext"].as_object().cloned().unwrap_or_default();
    let is_same = context(&again) == context(&created);
    let cause =
        "CreateVolume of a taken name with other parameters answered its volume with another volume_context.";
    cx.keeps("DRV-111", CREATE, !answer.is_ok() || is_same, cause)
}

/// The name of a volume is taken for a volume with a smaller limit.
///
/// CSI, CreateVolume: ALREADY_EXISTS if a volume of the name exists and is incompatible with the capacity range.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn taken_name_within_a_smaller_limit_is_refused(cx: &mut Cx) -> Result {
    cx.volume("data").size(2 * cx.ordinary_size()).create().await?;
    if size_of(&cx.last_answer(CREATE)?["volume"]) <= cx.ordinary_size() {
        cx.not_tried("DRV-011", "the driver does not say how large its volumes are");
        return Ok(());
    }
    let size = cx.ordinary_size().to_string();
    let mut request = cx.last_request(CREATE)?;
    request["capacityRange"] = json!({ "requiredBytes": size, "limitBytes": size });
    let answer = cx.call(CREATE, request).await?;
    let answer = answer.asked("of a taken name, with a limit that its volume exceeds,");
    answer.is("DRV-011", &["AlreadyExists", "OutOfRange"])
}

/// A volume that is created with a limit only is not larger than that.
///
/// CSI, CapacityRange: `limit_bytes` alone may be given; "Volume MUST not be bigger than this."
#[case(needs = [Creates, Filesystem], judges = ["DRV-012"], driver = Shared)]
async fn limit_alone_is_respected(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let limit = cx.ordinary_size();
    let mut request = cx.create_request("limited")?;
    request["capacityRange"] = json!({ "limitBytes": limit.to_string() });
    let made = cx.call(CREATE, request).await?.asked("with `limit_bytes` alone");
    cx.delete_created(&made).await?;
    let size = size_of(&made.part("/volume"));
    let cause = format!("{TOO_LARGE} (answered {size} bytes, with a limit of {limit} alone)");
    cx.keeps("DRV-012", CREATE, size <= limit, &cause)?;
    made.is("DRV-012", &["OK", "OutOfRange"])
}

/// A device that was refused for its size, or for want of space, is refused when it is asked for again, or is as large as that.
///
/// CSI, CapacityRange.required_bytes: "Volume MUST be at least this big." A provisioner asks again until its claim is deleted.
#[case(needs = [Creates, Block, Root, Loop], judges = ["DRV-012"], driver = Shared)]
async fn device_that_did_not_fit_is_refused_again(cx: &mut Cx) -> Result {
    /// 512 GiB, which is more than is free where most cases run, and 32 TiB.
    const LARGE: [u64; 2] = [1 << 39, 1 << 45];
    let disk = cx.volume("disk").block().create().await?;
    let mut request = cx.last_request(CREATE)?;
    let name = request["name"].as_str().unwrap_or_default().to_owned();
    let mut tried = false;
    for size in LARGE {
        request["name"] = json!(format!("{name}-{size}"));
        request["capacityRange"] = json!({ "requiredBytes": size.to_string() });
        let first = cx.call(CREATE, request.clone()).await?;
        cx.delete_created(&first).await?;
        if first.is_ok() {
            continue;
        }
        tried = true;
        let again = cx.call(CREATE, request.clone()).await?;
        if !again.is_ok() {
            continue;
        }
        let node = cx.node_calls_of(&again, &disk).await?;
        let is_large =
            node.refusal("web").await?.is_none() && node.device_size(&node.target("web")).await? >= size;
        drop(node.unpublish("web").await?);
        drop(node.unstage().await?);
        node.detach().await?;
        cx.delete_created(&again).await?;
        let cause = "CreateVolume of a device that was refused answered OK when it was repeated, and there is no device of that size.";
        cx.keeps("DRV-012", CREATE, is_large, cause)?;
    }
    if !tried {
        cx.not_tried("DRV-012", "the driver makes devices of 32 TiB");
    }
    Ok(())
}

/// Volumes that are created at once are each there to be used.
///
/// CSI, CreateVolume: the volume of the answer is provisioned. A provisioner works on several claims at once.
#[case(needs = [Creates, Filesystem, Root, TwoVolumes], driver = Shared)]
async fn volumes_made_at_once_are_used(cx: &mut Cx) -> Result {
    const TIMES: usize = 8;
    const BEFORE_ANOTHER_TRY: Duration = Duration::from_secs(3);
    let data = cx.volume("data").create().await?;
    let requests = (0..TIMES).map(|number| cx.create_request(&format!("at-once-{number}")));
    let requests: Vec<Value> = requests.collect::<Result<_>>()?;
    let calls = requests.iter().map(|request| -> Call { Box::pin(cx.call(CREATE, request.clone())) });
    let mut lost = Vec::new();
    let answers = cx.at_once(calls.collect()).await?;
    for made in answers.iter().filter(|made| made.is_ok()) {
        let node = cx.node_calls_of(made, &data).await?;
        let mut refused = node.refusal("web").await?;
        if refused.is_some() && lost.is_empty() {
            // What passes by itself is another fault: what was known of a device before it was used again, for example.
            cx.waits(BEFORE_ANOTHER_TRY).await;
            refused = node.refusal("web").await?;
        }
        lost.extend(refused.map(|refused| (refused.method().to_owned(), refused.code().to_owned())));
        drop(node.unpublish("web").await?);
        drop(node.unstage().await?);
        node.detach().await?;
        cx.delete_created(made).await?;
    }
    if let Some((method, code)) = lost.first() {
        let count = lost.len();
        let cause =
            format!("Of {TIMES} volumes that were created at once, {method} of {count} answered {code}.");
        cx.keeps("DRV-092", CREATE, false, &cause)?;
    }
    cx.keeps("DRV-092", CREATE, true, "")?;
    // The others say that they may be tried again, or that there is no room: as their size was granted before, OUT_OF_RANGE
    // can only mean that.
    const LATER: [&str; 5] = ["OK", "Aborted", "Unavailable", "ResourceExhausted", "OutOfRange"];
    let failed: Vec<&str> = answers.iter().map(Answer::code).filter(|code| !LATER.contains(code)).collect();
    let cause = format!(
        "Of {TIMES} volumes of different names that were created at once, {} failed: {}.",
        failed.len(),
        failed.join(", ")
    );
    cx.keeps("DRV-189", CREATE, failed.is_empty(), &cause)
}

/// A volume keeps its data whatever its name begins with.
///
/// CSI, CreateVolume, name: the suggested name for the storage space. A driver may not take it for a mark of its own.
#[case(needs = [Creates, Filesystem, Root, Persistent], driver = Shared)]
async fn name_that_looks_like_a_mark_keeps_its_data(cx: &mut Cx) -> Result {
    /// Names of inline volumes, snapshots and the like begin so in one driver or another.
    const MARKS: [&str; 5] = ["csi-", "ephemeral-", "snapshot-", "archived-", "tmp-"];
    let data = cx.volume("data").create().await?;
    let mut request = cx.last_request(CREATE)?;
    let name = request["name"].as_str().unwrap_or_default().to_owned();
    for mark in MARKS {
        request["name"] = json!(format!("{mark}{name}"));
        let made = cx.call(CREATE, request.clone()).await?;
        if !made.is_ok() {
            continue;
        }
        let node = cx.node_calls_of(&made, &data).await?;
        let target = node.target("web");
        node.set_up("web").await?;
        node.writes(&target, "kept").await?;
        node.tear_down("web").await?;
        let is_kept = node.refusal("web").await?.is_none() && node.has(&target, "kept").await?;
        drop(node.unpublish("web").await?);
        drop(node.unstage().await?);
        node.detach().await?;
        cx.delete_created(&made).await?;
        let cause = format!(
            "What was in a volume whose name begins with `{mark}` is gone after NodeUnpublishVolume."
        );
        cx.keeps("DRV-064", "NodeUnpublishVolume", is_kept, &cause)?;
    }
    Ok(())
}

/// A volume larger than any storage is refused for its size.
///
/// CSI, CreateVolume: OUT_OF_RANGE if the capacity range is not supported.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn size_that_cannot_be_is_out_of_range(cx: &mut Cx) -> Result {
    /// 4 EiB: more than any machine has.
    const TOO_MUCH: u64 = 1 << 62;
    cx.volume("data").create().await?;
    let mut request = cx.create_request("vast")?;
    request["capacityRange"] = json!({ "requiredBytes": TOO_MUCH.to_string() });
    let made = cx.call(CREATE, request).await?;
    cx.delete_created(&made).await?;
    let size = size_of(&made.part("/volume"));
    if made.is_ok() && size == 0 {
        // It may not know how much its storage has.
        cx.not_tried("DRV-012", "the driver does not say how large its volumes are");
        return Ok(());
    }
    let cause = format!("{TOO_SMALL} (answered {size} bytes, asked for {TOO_MUCH})");
    cx.keeps("DRV-012", CREATE, !made.is_ok() || size >= TOO_MUCH, &cause)?;
    made.asked("of more bytes than there are").is("DRV-012", &["OutOfRange", "ResourceExhausted"])
}

/// A repeated CreateVolume of a clone answers the same clone; with another source its name is taken.
///
/// CSI, CreateVolume: this operation MUST be idempotent.
#[case(needs = [Clones, Creates, Filesystem, TwoVolumes], judges = ["DRV-010", "DRV-011"], driver = Shared)]
async fn repeated_clone_is_the_same(cx: &mut Cx) -> Result {
    let (one, two) = (cx.volume("one").create().await?, cx.volume("two").create().await?);
    cx.volume("copy").copy_of(&one).create().await?;
    let other = json!({ "volume": { "volumeId": cx.handle(&two) } });
    is_made_once(cx, other).await
}

/// A repeated CreateVolume from a snapshot answers the same volume; with another snapshot its name is taken.
///
/// CSI, CreateVolume: this operation MUST be idempotent.
#[case(needs = [Snapshots, Creates, Filesystem], judges = ["DRV-010", "DRV-011"], driver = Shared)]
async fn repeated_restore_is_the_same(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let (one, two) = (cx.snapshot("one", &data).await?, cx.snapshot("two", &data).await?);
    cx.volume("copy").restored_from(&one).create().await?;
    is_made_once(cx, json!({ "snapshot": { "snapshotId": two.id } })).await
}

/// Repeats the last CreateVolume, of a copy, and then asks for a copy of another source with its name.
async fn is_made_once(cx: &Cx, other: Value) -> Result {
    let mut request = cx.last_request(CREATE)?;
    let first = cx.last_answer(CREATE)?;
    let again = cx.call(CREATE, request.clone()).await?.asked("of a copy that is there");
    again.is("DRV-010", &["OK"])?;
    let cause = "CreateVolume of a copy that is there answered another volume.";
    let is_same = again.part("/volume/volumeId") == first["volume"]["volumeId"];
    cx.keeps("DRV-010", CREATE, is_same, cause)?;
    request["volumeContentSource"] = other;
    let answer = cx.call(CREATE, request).await?;
    answer.asked("of a copy of another source, by a name that is taken,").is("DRV-011", &["AlreadyExists"])
}

/// Concurrent CreateVolume calls with one name create one volume.
///
/// CSI, CreateVolumeRequest, name: "The Plugin SHOULD ensure that multiple `CreateVolume` calls for the same name do not
/// result in more than one piece of storage provisioned corresponding to that name." A caller repeats a call whose answer is
/// late.
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn name_asked_for_at_once_is_one_volume(cx: &mut Cx) -> Result {
    const TIMES: usize = 4;
    cx.volume("data").create().await?;
    let request = cx.create_request("at-once")?;
    let calls = (0..TIMES).map(|_| -> Call { Box::pin(cx.call(CREATE, request.clone())) });
    let mut answers = cx.at_once(calls.collect()).await?;
    // A call that was not OK may be repeated, and then answers the same volume.
    answers.push(cx.until_free(|| Box::pin(cx.call(CREATE, request.clone()))).await?);
    let mut ids: Vec<&str> = answers.iter().filter(|answer| answer.is_ok()).map(id_of).collect();
    ids.sort_unstable();
    ids.dedup();
    for answer in &answers {
        cx.delete_created(answer).await?;
    }
    let cause = "CreateVolume that was called several times at once made several volumes of one name.";
    cx.keeps("DRV-185", CREATE, ids.len() == 1, cause)
}

fn id_of(answer: &Answer) -> &str {
    answer.text("/volume/volumeId")
}
