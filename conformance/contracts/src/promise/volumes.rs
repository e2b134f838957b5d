//! Creating and deleting volumes, telling about them, and attaching them.

use super::{Promise, promise};

pub(super) const PROMISES: &[Promise] = &[
    promise(
        "DRV-010",
        "creating a volume again by its name and with the same request gives the same volume",
        &["CSI 1.12, CreateVolume"],
    ),
    promise(
        "DRV-011",
        "creating a volume by a name that exists with another request is ALREADY_EXISTS",
        &["CSI 1.12, CreateVolume, errors"],
    ),
    promise(
        "DRV-012",
        "a volume is within the capacity range that was asked for, or is refused with OUT_OF_RANGE",
        &["CSI 1.12, CreateVolume"],
    ),
    promise(
        "DRV-013",
        "a volume has the capacity that was answered",
        &["CSI 1.12, Volume.capacity_bytes", "topolvm/topolvm#406"],
    ),
    promise(
        "DRV-014",
        "a volume that is a copy holds what its source held",
        &["CSI 1.12, CreateVolume, volume_content_source", "spec#482"],
    ),
    promise(
        "DRV-015",
        "the file system of a copy that is larger than its source fills the copy",
        &["kubernetes/kubernetes#94929", "csi-test#325", "ceph/ceph-csi#2719"],
    ),
    promise(
        "DRV-016",
        "a volume that cannot be used in all the ways asked for is refused with INVALID_ARGUMENT",
        &["CSI 1.12, CreateVolume, errors"],
    ),
    promise("DRV-017", "a name of 128 bytes is a good name", &["CSI 1.12, size limits", "csi-sanity"]),
    promise(
        "DRV-018",
        "no name and no id leads out of the driver's own directories",
        &["ours: a path that is made of a caller's string"],
    ),
    promise(
        "DRV-019",
        "a volume is reachable from a place that was asked for, or is refused with RESOURCE_EXHAUSTED",
        &["CSI 1.12, CreateVolume, accessibility_requirements"],
    ),
    promise(
        "DRV-020",
        "deleting a volume that is not there is OK",
        &["CSI 1.12, DeleteVolume", "csi-sanity"],
    ),
    promise(
        "DRV-021",
        "a volume in use is not deleted: FAILED_PRECONDITION, and its data stay",
        &["CSI 1.12, DeleteVolume, errors", "kubernetes/kubernetes#85476"],
    ),
    promise(
        "DRV-022",
        "a deleted volume leaves nothing: no file, no device, no entry in a list",
        &["CSI 1.12, DeleteVolume", "kubernetes/kubernetes#109132"],
    ),
    promise(
        "DRV-023",
        "capabilities are confirmed only if the volume can be used in all of these ways",
        &["CSI 1.12, ValidateVolumeCapabilities"],
    ),
    promise(
        "DRV-024",
        "the pages of a list together have every volume exactly once",
        &["CSI 1.12, ListVolumes"],
    ),
    promise(
        "DRV-025",
        "a token that was never given out is refused with ABORTED",
        &["CSI 1.12, ListVolumes, ListSnapshots, errors", "csi-sanity"],
    ),
    promise("DRV-026", "the capacity left is what can still be created", &["CSI 1.12, GetCapacity"]),
    promise(
        "DRV-030",
        "publishing a volume to a node again gives the same publish context",
        &["CSI 1.12, ControllerPublishVolume"],
    ),
    promise(
        "DRV-031",
        "a publish context leads to the volume on this node as it is attached now",
        &["CSI 1.12, ControllerPublishVolume", "kubernetes/kubernetes#121937"],
    ),
    promise(
        "DRV-032",
        "a volume for one node is not published to a second: FAILED_PRECONDITION",
        &["CSI 1.12, ControllerPublishVolume, errors"],
    ),
    promise(
        "DRV-033",
        "publishing to a node that does not exist is NOT_FOUND",
        &["CSI 1.12, ControllerPublishVolume, errors", "csi-sanity"],
    ),
    promise(
        "DRV-034",
        "unpublishing from a node again is OK, also when node or volume are gone",
        &["CSI 1.12, ControllerUnpublishVolume"],
    ),
    promise(
        "DRV-035",
        "a node gets no more volumes than it says it carries: RESOURCE_EXHAUSTED",
        &["CSI 1.12, NodeGetInfo, ControllerPublishVolume, errors"],
    ),
];
