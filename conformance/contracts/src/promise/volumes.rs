//! Promises about creating, deleting, listing and attaching volumes.

use super::{Harm, Promise, advice, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-010",
        "creating a volume again by its name and with the same request gives the same volume",
        csi("CreateVolume", "This operation MUST be idempotent"),
        &[],
    )
    .costs(Harm::Pod),
    must(
        "DRV-011",
        "creating a volume by a name that exists with another request is ALREADY_EXISTS",
        csi(
            "CreateVolume, errors",
            "the plugin MUST return the specified gRPC error code ... Volume already exists but is incompatible | 6 ALREADY_EXISTS",
        ),
        &[],
    ),
    must(
        "DRV-012",
        "a volume is within the capacity range that was asked for, or is refused with OUT_OF_RANGE",
        csi("CapacityRange", "Volume MUST be at least this big ... Volume MUST not be bigger than this"),
        &[],
    ),
    must(
        "DRV-013",
        "a volume has the capacity that was answered",
        csi("CapacityRange", "Volume MUST be at least this big"),
        &["topolvm/topolvm#406"],
    ),
    must(
        "DRV-014",
        "a volume that is a copy holds what its source held",
        csi(
            "CreateVolume",
            "MUST provide a volume that, when presented to a workload by `NodePublish` call, has both the requested (larger) size and contains data from the snapshot (or original volume)",
        ),
        &["spec#482"],
    )
    .costs(Harm::Data),
    must(
        "DRV-015",
        "the file system of a copy that is larger than its source fills the copy",
        csi(
            "CreateVolume",
            "MUST provide a volume that, when presented to a workload by `NodePublish` call, has both the requested (larger) size and contains data from the snapshot (or original volume)",
        ),
        &["kubernetes/kubernetes#94929", "csi-test#325", "ceph/ceph-csi#2719"],
    ),
    must(
        "DRV-016",
        "a volume that cannot be used in all the ways asked for is refused with INVALID_ARGUMENT",
        csi(
            "CreateVolume, volume_capabilities",
            "If ANY of the specified volume capabilities are not supported by the SP, the call MUST return the appropriate gRPC error code",
        ),
        &[],
    ),
    advice(
        "DRV-017",
        "a name of 128 bytes is a good name",
        "CSI allows names up to its size limit, and does not oblige a plugin to take each of them",
        &["csi-sanity"],
    ),
    advice(
        "DRV-018",
        "no name and no id leads out of the driver's own directories",
        "CSI says nothing of paths that a plugin makes of a caller's strings",
        &[],
    ),
    must(
        "DRV-019",
        "a volume is reachable from a place that was asked for, or is refused with RESOURCE_EXHAUSTED",
        csi(
            "TopologyRequirement",
            "If requisite is specified, the provisioned volume MUST be accessible from at least one of the requisite topologies",
        ),
        &[],
    ),
    must(
        "DRV-020",
        "deleting a volume that is not there is OK",
        csi(
            "DeleteVolume",
            "does not exist or the artifacts associated with the volume do not exist anymore, the Plugin MUST reply `0 OK`",
        ),
        &["csi-sanity"],
    )
    .costs(Harm::Pod),
    must(
        "DRV-021",
        "a volume in use is not deleted: FAILED_PRECONDITION, and its data stay",
        csi("DeleteVolume, errors", "Volume in use | 9 FAILED_PRECONDITION"),
        &["kubernetes/kubernetes#85476"],
    ),
    advice(
        "DRV-022",
        "a deleted volume leaves nothing: no file, no device, no entry in a list",
        "CSI does not say what has to be gone; what stays is paid for by nobody who could delete it",
        &["kubernetes/kubernetes#109132"],
    ),
    must(
        "DRV-023",
        "capabilities are confirmed only if the volume can be used in all of these ways",
        csi(
            "ValidateVolumeCapabilities",
            "This RPC call SHALL return `confirmed` only if all the volume capabilities specified in the request are supported",
        ),
        &[],
    ),
    must(
        "DRV-024",
        "the pages of a list together have every volume exactly once",
        csi(
            "ListVolumes",
            "The Plugin SHALL return the information about all the volumes that it knows about",
        ),
        &[],
    ),
    must(
        "DRV-025",
        "a token that was never given out is refused with ABORTED",
        csi("ListVolumes, ListSnapshots, errors", "Invalid `starting_token` | 10 ABORTED"),
        &["csi-sanity"],
    ),
    must(
        "DRV-026",
        "the capacity left is what can still be created",
        csi(
            "GetCapacity",
            "the Plugin SHALL report the capacity of the storage that can be used to provision volumes",
        ),
        &[],
    ),
    advice(
        "DRV-027",
        "a capability without an access type or an access mode is refused with INVALID_ARGUMENT",
        "CSI requires both of the caller, and not each plugin takes something missing for an error",
        &["csi-sanity"],
    ),
    advice(
        "DRV-028",
        "what CSI makes optional can be left out of CreateVolume and NodeExpandVolume",
        "CSI lets a plugin choose the size where none is asked for, and does not say that it must be able to",
        &["csi-sanity"],
    ),
    advice(
        "DRV-029",
        "the capabilities that a volume was created with are confirmed",
        "CSI says when a plugin may confirm, and not when it has to; a caller that asks would refuse a good volume",
        &["csi-sanity"],
    ),
    must(
        "DRV-030",
        "publishing a volume to a node again gives the same publish context",
        csi("ControllerPublishVolume", "This operation MUST be idempotent"),
        &[],
    )
    .costs(Harm::Pod),
    must(
        "DRV-031",
        "a publish context leads to the volume on this node as it is attached now",
        csi(
            "ControllerPublishVolume, volume_capability",
            "SP MUST ensure the CO can use the published volume as described",
        ),
        &["kubernetes/kubernetes#121937"],
    ),
    must(
        "DRV-032",
        "a volume for one node is not published to a second: FAILED_PRECONDITION",
        csi("ControllerPublishVolume, errors", "Volume published to another node | 9 FAILED_PRECONDITION"),
        &[],
    ),
    must(
        "DRV-033",
        "publishing to a node that does not exist is NOT_FOUND",
        csi("ControllerPublishVolume, errors", "Node does not exist | 5 NOT_FOUND"),
        &["csi-sanity"],
    ),
    must(
        "DRV-034",
        "unpublishing from a node again is OK, and so is unpublishing from all nodes at once",
        csi(
            "ControllerUnpublishVolume",
            "is not attached to the node corresponding to the `node_id`, the Plugin MUST reply `0 OK`",
        ),
        &[],
    )
    .costs(Harm::Pod),
    must(
        "DRV-035",
        "a node gets no more volumes than it says it carries: RESOURCE_EXHAUSTED",
        csi("ControllerPublishVolume, errors", "Max volumes attached | 8 RESOURCE_EXHAUSTED"),
        &[],
    ),
];
