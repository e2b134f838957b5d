//! Snapshots, copies and growth, as a cluster uses them.

use super::{Promise, advice, csi, must, should};

/// Of a volume with a content source, in CreateVolume.
const PRESENTED: &str = "MUST provide a volume that, when presented to a workload by `NodePublish` call, has both the requested (larger) size and contains data from the snapshot (or original volume)";

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
        "a snapshot says its id, its source and when it was taken, and whether it can be used",
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
    must(
        "DRV-147",
        "a clone outlives the volume that it was made of, or that volume cannot be deleted",
        csi("CreateVolume", PRESENTED),
        &[],
    ),
    must(
        "DRV-148",
        "a copy that is asked to be larger than its source has that size",
        csi("CreateVolume", PRESENTED),
        &["ceph/ceph-csi#2720"],
    ),
    must(
        "DRV-149",
        "a volume is no smaller than the snapshot that it is from",
        csi(
            "Snapshot, size_bytes",
            "The size of the volume MUST NOT be less than the size of the source snapshot",
        ),
        &[],
    ),
    must(
        "DRV-150",
        "a copy can be used on a node beside its source",
        csi("CreateVolume", PRESENTED),
        &["container-storage-interface/spec#482"],
    ),
    must(
        "DRV-151",
        "a copy of a source that does not exist is NOT_FOUND",
        csi("CreateVolume, errors", "Source does not exist | 5 NOT_FOUND"),
        &["csi-sanity"],
    ),
    advice(
        "DRV-152",
        "the answer of a volume that is a copy names its source",
        "CSI makes content_source optional; the provisioner of a cluster takes a volume without it for empty, and deletes it",
        &[],
    ),
    must(
        "DRV-153",
        "taking a group snapshot again by its name gives the same group, or ALREADY_EXISTS for other volumes",
        csi("CreateVolumeGroupSnapshot", "the group snapshot MUST only be created once"),
        &["csi-sanity"],
    ),
    must(
        "DRV-154",
        "a group says its id, its snapshots and when it was taken, and is ready when they are",
        csi(
            "VolumeGroupSnapshot",
            "If any snapshot in the list of snapshots in this message have ready_to_use set to false, the SP MUST set this field to false",
        ),
        &[],
    ),
    must(
        "DRV-155",
        "a group snapshot that does not exist is NOT_FOUND",
        csi(
            "GetVolumeGroupSnapshot, errors",
            "the plugin MUST return the specified gRPC error code ... Volume group snapshot does not exist | 5 NOT_FOUND",
        ),
        &["csi-sanity"],
    ),
    must(
        "DRV-156",
        "modifying a volume again in the same way is OK",
        csi("ControllerModifyVolume", "This operation MUST be idempotent"),
        &["csi-sanity"],
    ),
    advice(
        "DRV-157",
        "a volume with a mutable parameter that does not exist is refused",
        "CSI gives the error for modifying; a parameter that is only dropped at creation looks as if it were in force",
        &["csi-sanity"],
    ),
    must(
        "DRV-158",
        "a snapshot that names its group is not deleted alone",
        csi("DeleteSnapshot, errors", "Snapshot is part of a group | 3 INVALID_ARGUMENT"),
        &[],
    ),
    should(
        "DRV-159",
        "a group snapshot that failed leaves no snapshot",
        csi("CreateVolumeGroupSnapshot", "SP SHOULD also do clean up and make sure no snapshots are leaked"),
        &[],
    ),
];
