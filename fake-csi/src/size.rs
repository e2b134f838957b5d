//! Sizes between the integers of CSI and those of the driver.

use csi_proto::v1;
use tonic::Status;

/// Converts a count to the integers of CSI.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The required bytes, and the limit if there is one.
pub(crate) fn range(range: Option<&v1::CapacityRange>) -> Result<(u64, Option<u64>), Status> {
    let Some(range) = range else { return Ok((0, None)) };
    let negative = |_| Status::out_of_range("capacity_range holds a negative size");
    let required = u64::try_from(range.required_bytes).map_err(negative)?;
    let limit = u64::try_from(range.limit_bytes).map_err(negative)?;
    let limit = (limit > 0).then_some(limit);
    if limit.is_some_and(|limit| limit < required) {
        return Err(Status::out_of_range("capacity_range.limit_bytes is below required_bytes"));
    }
    Ok((required, limit))
}
