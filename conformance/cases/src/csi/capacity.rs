//! Sizes in a driver's answers: the available capacity, and the sizes of volumes.

use crate::prelude::*;

/// A device is at least as large as the size that CreateVolume was asked for, and as the size that it answered.
///
/// CSI, CapacityRange: "Volume MUST be at least this big."
#[case(needs = [Creates, Block, Root, Loop], driver = Shared)]
async fn device_has_the_answered_size(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    is_as_large_as_answered(cx, &disk).await
}

/// A device whose requested size is no multiple of a block or sector is not smaller: a driver rounds up.
///
/// CSI, CapacityRange: "Volume MUST be at least this big."
#[case(needs = [Creates, Block, Root, Loop], judges = ["DRV-012", "DRV-013"], driver = Shared)]
async fn device_of_an_odd_size_is_large_enough(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().size(cx.ordinary_size() + (1 << 19) + 1);
    match disk.create_if_supported().await? {
        Ok(disk) => is_as_large_as_answered(cx, &disk).await,
        Err(_) => {
            cx.not_tried("DRV-012", "the driver makes no device of such a size");
            Ok(())
        }
    }
}

/// A device that was asked for with a limit is not larger than that.
///
/// CSI, CapacityRange.limit_bytes: "Volume MUST not be bigger than this."
#[case(needs = [Creates, Block, Root, Loop], judges = ["DRV-012"], driver = Shared)]
async fn device_is_not_larger_than_its_limit(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let limit = cx.ordinary_size();
    let mut request = cx.create_request("limited")?;
    request["capacityRange"] = json!({ "requiredBytes": limit.to_string(), "limitBytes": limit.to_string() });
    let made = cx.call("CreateVolume", request).await?;
    if !made.is_ok() {
        cx.not_tried("DRV-012", "the driver makes no device of exactly this size");
        return Ok(());
    }
    let node = cx.node_calls_of(&made, &disk).await?;
    node.set_up("web").await?;
    let size = node.device_size(&node.target("web")).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    cx.delete_created(&made).await?;
    let cause = "CreateVolume with `limit_bytes` answered OK, and the device is larger.";
    cx.keeps("DRV-012", "CreateVolume", size <= limit, cause)
}

async fn is_as_large_as_answered(cx: &Cx, disk: &Volume) -> Result {
    let answered = cx.last_answer("CreateVolume")?;
    let answered: u64 = answered["volume"]["capacityBytes"].as_str().unwrap_or("0").parse()?;
    let asked = cx.last_request("CreateVolume")?;
    let asked: u64 = asked["capacityRange"]["requiredBytes"].as_str().unwrap_or("0").parse()?;
    let node = cx.node_calls(disk).await?;
    node.set_up("web").await?;
    let size = node.device_size(&node.target("web")).await?;
    let cause = "The device is smaller than the size that CreateVolume was asked for.";
    cx.keeps("DRV-012", "CreateVolume", size >= asked, cause)?;
    // Zero means that the driver does not know the size.
    let cause = "The device is smaller than the size that CreateVolume answered.";
    cx.keeps("DRV-013", "CreateVolume", size >= answered, cause)?;
    node.tear_down("web").await
}

/// After a volume was created, GetCapacity answers less, or a volume as large as the answered capacity can be created.
///
/// CSI, GetCapacity: the capacity of the storage that can be used to provision volumes; it MUST NOT be negative.
#[case(needs = [TellsCapacity, Creates, Filesystem], judges = ["DRV-171"], driver = Shared)]
async fn capacity_shrinks_with_a_volume(cx: &mut Cx) -> Result {
    // GetCapacity is called with the parameters of the last created volume.
    cx.volume("one").create().await?;
    let before = available(cx, cx.capacity()?.await?)?;
    let two = cx.volume("two").create().await?;
    let cause = "GetCapacity answered that nothing is available, and CreateVolume of such a volume is OK.";
    cx.keeps("DRV-026", "GetCapacity", before > 0, cause)?;
    let answer = cx.capacity()?.await?;
    let most: Option<u64> = answer.text("/maximumVolumeSize").parse().ok();
    let after = available(cx, answer)?;
    if after + cx.size(&two) / 2 <= before {
        return Ok(());
    }
    // A driver with thin volumes may answer as much as before, since they take no space before they are written.
    let wanted = most.map_or(after, |most| after.min(most));
    if wanted < after || wanted == 0 {
        cx.not_tried("DRV-026", "a single volume cannot take the whole available capacity");
        return Ok(());
    }
    let made = cx.creates_another(wanted)?.await?;
    let cause =
        "GetCapacity answered no less after CreateVolume, but a volume of that size cannot be created.";
    cx.keeps("DRV-026", "GetCapacity", made.is_ok(), cause)?;
    let gone = cx.call("DeleteVolume", json!({ "volumeId": made.text("/volume/volumeId") })).await?;
    gone.succeeds()
}

/// Creates a volume. Returns its size, and the answer of GetCapacity for its parameters.
async fn capacity_beside_a_volume(cx: &Cx) -> Result<(u64, Answer)> {
    let one = cx.volume("one").create().await?;
    // GetCapacity is called with the parameters of the last created volume.
    let answer = cx.capacity()?.await?;
    answer.is_implemented()?;
    answer.succeeds()?;
    Ok((cx.size(&one), answer))
}

/// The smallest size that GetCapacity answers is no larger than a volume that was made with the same parameters.
///
/// CSI, GetCapacityResponse.minimum_volume_size: the smallest size to create a volume with the same parameters.
#[case(needs = [TellsCapacity, Creates, Filesystem], driver = Shared)]
async fn smallest_size_is_that_of_a_volume(cx: &mut Cx) -> Result {
    let (size, answer) = capacity_beside_a_volume(cx).await?;
    let smallest: u64 = answer.text("/minimumVolumeSize").parse().unwrap_or(0);
    let cause = format!(
        "GetCapacity answered a minimum_volume_size of {smallest} bytes, and there is a volume of {size} bytes with the same parameters."
    );
    cx.keeps("DRV-026", "GetCapacity", smallest <= size, &cause)
}

/// The largest size that GetCapacity answers is no smaller than a volume that was made with the same parameters.
///
/// CSI, GetCapacityResponse.maximum_volume_size: the largest size to create a volume with the same parameters.
#[case(needs = [TellsCapacity, Creates, Filesystem], driver = Shared)]
async fn largest_size_is_not_below_that_of_a_volume(cx: &mut Cx) -> Result {
    let (size, answer) = capacity_beside_a_volume(cx).await?;
    // A field of its own type: zero is a size, and no answer is none.
    if !answer.has("/maximumVolumeSize") {
        cx.not_tried("DRV-026", "the driver answers no `maximum_volume_size`");
        return Ok(());
    }
    let largest: u64 = answer.text("/maximumVolumeSize").parse().unwrap_or(0);
    let cause = format!(
        "GetCapacity answered a maximum_volume_size of {largest} bytes, and there is a volume of {size} bytes with the same parameters."
    );
    cx.keeps("DRV-026", "GetCapacity", largest >= size, &cause)
}

/// A volume of more than 4 GiB has the size that was asked for, and not the rest of a division by 4 GiB.
///
/// CSI, CapacityRange.required_bytes: "Volume MUST be at least this big."
#[case(needs = [Creates, Filesystem], driver = Shared)]
async fn size_has_more_than_32_bits(cx: &mut Cx) -> Result {
    const FOUR_GIB: u64 = 1 << 32;
    cx.volume("data").create().await?;
    let wanted = FOUR_GIB + cx.ordinary_size();
    let made = cx.creates_another(wanted)?.await?;
    cx.delete_created(&made).await?;
    if !made.is_ok() {
        cx.not_tried("DRV-012", "the driver makes no volume of more than 4 GiB here");
        return Ok(());
    }
    let has: u64 = made.text("/volume/capacityBytes").parse().unwrap_or(0);
    let cause = match has == wanted % FOUR_GIB {
        true => format!("CreateVolume of {wanted} bytes answered OK and a volume of {has} bytes."),
        // Not the rest of a division: it has another size in other cases, too.
        false => format!("{TOO_SMALL} (answered {has} bytes, asked for {wanted})"),
    };
    cx.keeps("DRV-012", "CreateVolume", has == 0 || has >= wanted, &cause)
}

/// The capacity that a volume takes is there again when the volume was deleted.
///
/// CSI, GetCapacity: the capacity of the storage pool from which volumes are provisioned.
#[case(needs = [TellsCapacity, Creates, Filesystem], judges = ["DRV-026"])]
async fn deleted_volume_gives_its_capacity_back(cx: &mut Cx) -> Result {
    let cx = &*cx;
    cx.volume("data").create().await?;
    comes_back(cx, "volume that is created and deleted", "DeleteVolume", async |number| {
        let made = cx.call("CreateVolume", cx.create_request(&format!("round-{number}"))?).await?;
        made.succeeds()?;
        cx.delete_created(&made).await
    })
    .await
}

/// The capacity that a device takes is there again when the volume was deleted.
///
/// CSI, GetCapacity: the capacity of the storage pool from which volumes are provisioned.
#[case(needs = [TellsCapacity, Creates, Block, Root, Loop], judges = ["DRV-026"])]
async fn deleted_device_gives_its_capacity_back(cx: &mut Cx) -> Result {
    let cx = &*cx;
    cx.volume("disk").block().create().await?;
    let request = cx.last_request("CreateVolume")?;
    comes_back(cx, "device that is created and deleted", "DeleteVolume", async |number| {
        let mut request = request.clone();
        request["name"] = json!(format!("round-{number}"));
        let made = cx.call("CreateVolume", request).await?;
        made.succeeds()?;
        cx.delete_created(&made).await
    })
    .await
}

/// The capacity that a volume takes by growing is there again when the volume was deleted.
///
/// CSI, GetCapacity: the capacity of the storage pool from which volumes are provisioned.
#[case(needs = [TellsCapacity, Expands, Creates, Filesystem], judges = ["DRV-026"])]
async fn grown_volume_gives_its_capacity_back(cx: &mut Cx) -> Result {
    let cx = &*cx;
    cx.volume("data").create().await?;
    comes_back(cx, "volume that grows and is deleted", "ControllerExpandVolume", async |number| {
        let request = cx.create_request(&format!("round-{number}"))?;
        let made = cx.call("CreateVolume", request.clone()).await?;
        made.succeeds()?;
        let size = (2 * cx.ordinary_size()).to_string();
        let larger = json!({
            "volumeId": made.part("/volume/volumeId"), "capacityRange": { "requiredBytes": size },
            "volumeCapability": request["volumeCapabilities"][0],
        });
        drop(cx.call("ControllerExpandVolume", larger).await?);
        cx.delete_created(&made).await
    })
    .await
}

/// A volume that was refused takes no capacity.
///
/// CSI, GetCapacity: the capacity of the storage pool from which volumes are provisioned.
#[case(needs = [TellsCapacity, Clones, Creates, Filesystem], judges = ["DRV-026"])]
async fn refused_volume_takes_no_capacity(cx: &mut Cx) -> Result {
    let cx = &*cx;
    cx.volume("data").create().await?;
    let unknown = cx.unknown_volume().0;
    comes_back(cx, "copy that is refused", "CreateVolume", async |number| {
        let mut request = cx.create_request(&format!("round-{number}"))?;
        request["volumeContentSource"] = json!({ "volume": { "volumeId": unknown } });
        let made = cx.call("CreateVolume", request).await?;
        cx.delete_created(&made).await
    })
    .await
}

/// Checks that not every round takes the same capacity for ever. What others write to a shared disk differs from round to
/// round.
async fn comes_back(cx: &Cx, each: &str, method: &str, round: impl AsyncFn(usize) -> Result) -> Result {
    const ROUNDS: usize = 3;
    let mut left = vec![available(cx, cx.capacity()?.await?)?];
    for number in 0..ROUNDS {
        round(number).await?;
        left.push(available(cx, cx.capacity()?.await?)?);
    }
    let lost: Vec<u64> = left.windows(2).map(|pair| pair[0].saturating_sub(pair[1])).collect();
    let is_lost = lost.iter().all(|bytes| *bytes >= cx.ordinary_size() / 2 && *bytes == lost[0]);
    let cause = format!("With each {each} GetCapacity answers {} bytes less.", lost[0]);
    cx.keeps("DRV-026", method, !is_lost, &cause)
}

fn available(cx: &Cx, answer: Answer) -> Result<u64> {
    let answer = answer.asked("with the parameters of a created volume");
    answer.is_implemented()?;
    answer.succeeds()?;
    let bytes: i64 = answer.text("/availableCapacity").parse().unwrap_or(0);
    let cause = "GetCapacity answered a negative capacity.";
    cx.keeps("DRV-026", "GetCapacity", bytes >= 0, cause)?;
    Ok(bytes.unsigned_abs())
}
