//! What a driver tells of sizes: of the space that is left, and of the volumes that it makes.

use crate::prelude::*;

/// A device is as large as CreateVolume has answered.
///
/// CSI, CapacityRange: "Volume MUST be at least this big."
#[case(needs = [Creates, Block, Root, Loop])]
async fn device_has_the_answered_size(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let answered = cx.last_answer("CreateVolume")?;
    let answered: u64 = answered["volume"]["capacityBytes"].as_str().unwrap_or("0").parse()?;
    let asked = cx.last_request("CreateVolume")?;
    let asked: u64 = asked["capacityRange"]["requiredBytes"].as_str().unwrap_or("0").parse()?;
    let node = cx.node_calls(&disk).await?;
    node.set_up("web").await?;
    let size = node.device_size(&node.target("web")).await?;
    let told = "The device is smaller than CreateVolume was asked for.";
    cx.keeps("DRV-012", "CreateVolume", size >= asked, told)?;
    // A driver that answers zero does not know.
    let told = "The device is smaller than CreateVolume has answered.";
    cx.keeps("DRV-013", "CreateVolume", size >= answered, told)?;
    node.tear_down("web").await
}

/// The space that is left is less by a volume that was created, or is still enough for another as large as all of it.
///
/// CSI, GetCapacity: the capacity of the storage that can be used to provision volumes; it MUST NOT be negative.
#[case(needs = [TellsCapacity, Creates, Filesystem])]
async fn capacity_shrinks_with_a_volume(cx: &mut Cx) -> Result {
    // The first shows what to ask for.
    cx.volume("one").create().await?;
    let before = left(cx, cx.capacity()?.await?)?;
    let two = cx.volume("two").create().await?;
    let answer = cx.capacity()?.await?;
    let most: Option<u64> = answer.text("/maximumVolumeSize").parse().ok();
    let after = left(cx, answer)?;
    if after + cx.size(&two) / 2 <= before {
        return Ok(());
    }
    // Thin volumes take no space before they are written.
    let wanted = most.map_or(after, |most| after.min(most));
    if wanted < after || wanted == 0 {
        cx.not_tried("DRV-026", "a single volume cannot take all the space that is left");
        return Ok(());
    }
    let made = cx.create_such(wanted)?.await?;
    let told =
        "GetCapacity answered as much after CreateVolume as before, and a volume as large cannot be created.";
    cx.keeps("DRV-026", "GetCapacity", made.is_ok(), told)?;
    let gone = cx.call("DeleteVolume", json!({ "volumeId": made.text("/volume/volumeId") })).await?;
    gone.is("DRV-020", &["OK"])
}

fn left(cx: &Cx, answer: Answer) -> Result<u64> {
    let answer = answer.asked("for volumes such as one that was created");
    answer.is_implemented()?;
    answer.succeeds()?;
    let left: i64 = answer.text("/availableCapacity").parse().unwrap_or(0);
    let told = "GetCapacity answered a negative capacity.";
    cx.keeps("DRV-026", "GetCapacity", left >= 0, told)?;
    Ok(left.unsigned_abs())
}
