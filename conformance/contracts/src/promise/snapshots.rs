//! Snapshots and groups of them.

use super::{Promise, promise};

pub(super) const PROMISES: &[Promise] = &[
    promise(
        "DRV-036",
        "a snapshot holds what the volume held when it was taken, whatever is written later",
        &["CSI 1.12, CreateSnapshot"],
    ),
    promise(
        "DRV-037",
        "taking a snapshot again by its name gives the same snapshot, or ALREADY_EXISTS for another volume",
        &["CSI 1.12, CreateSnapshot"],
    ),
    promise(
        "DRV-038",
        "a group has a snapshot of each of its volumes, and goes as a whole",
        &["CSI 1.12, CreateVolumeGroupSnapshot, DeleteVolumeGroupSnapshot"],
    ),
    promise(
        "DRV-039",
        "a list of snapshots has those that were asked for, and no others",
        &["CSI 1.12, ListSnapshots", "csi-sanity"],
    ),
];
