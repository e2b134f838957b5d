//! Snapshots and groups of them.

use super::{Harm, Promise, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-036",
        "a snapshot holds what the volume held when it was taken, whatever is written later",
        csi("CreateSnapshot", "it MUST block until the snapshot is cut"),
        &[],
    )
    .costs(Harm::Data),
    must(
        "DRV-037",
        "taking a snapshot again by its name gives the same snapshot, or ALREADY_EXISTS for another volume",
        csi("CreateSnapshot", "This operation MUST be idempotent"),
        &[],
    ),
    must(
        "DRV-038",
        "a group has a snapshot of each of its volumes, and goes as a whole",
        csi(
            "CreateVolumeGroupSnapshot",
            "the volume snapshots in the group MUST be taken at the same point-in-time",
        ),
        &[],
    ),
    must(
        "DRV-039",
        "a list of snapshots has those that were asked for, and no others",
        csi(
            "ListSnapshots",
            "The Plugin SHALL return the information about all snapshots on the storage system within the given parameters",
        ),
        &["csi-sanity"],
    ),
];
