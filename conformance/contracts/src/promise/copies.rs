//! Snapshots, copies and growth, as a cluster uses them.

use super::{Promise, advice, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-140",
        "an expansion to a size that the driver cannot make is OUT_OF_RANGE",
        csi("ControllerExpandVolume, errors", "Unsupported `capacity_range` | 11 OUT_OF_RANGE"),
        &[],
    ),
    advice(
        "DRV-141",
        "the node service reports EXPAND_VOLUME where ControllerExpandVolume leaves something to it",
        "CSI obliges the caller to call NodeExpandVolume then; where the node service has none, the expansion never ends",
        &[],
    ),
    must(
        "DRV-142",
        "deleting a snapshot or a group that is gone is OK",
        csi("DeleteSnapshot, DeleteVolumeGroupSnapshot", "This operation MUST be idempotent"),
        &["csi-sanity"],
    ),
    must(
        "DRV-143",
        "a snapshot outlives the volume that it was taken of, or that volume cannot be deleted",
        csi(
            "DeleteVolume",
            "these snapshots MUST still be fully operational and acceptable as sources for new volumes",
        ),
        &["dell/csm#1338"],
    ),
    must(
        "DRV-144",
        "a snapshot says its id, its source and when it was taken",
        csi("Snapshot", "Identity information for the source volume. ... This field is REQUIRED"),
        &[],
    ),
    must(
        "DRV-145",
        "the pages of a list of snapshots hold each once, and no more than asked for",
        csi("ListSnapshotsRequest, max_entries", "the Plugin MUST NOT return more entries than this number"),
        &["csi-sanity"],
    ),
    advice(
        "DRV-146",
        "a snapshot of a volume in use has what was written last, synced or not",
        "pods do not sync before somebody takes a snapshot; CSI asks only that the snapshot is cut when the call is answered",
        &[],
    ),
];
