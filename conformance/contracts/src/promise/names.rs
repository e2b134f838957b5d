//! Names and lists of volumes: one volume for each name, with the same fields in every answer.

use super::{Harm, Promise, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-110",
        "volumes of different names have different ids",
        csi(
            "Volume, volume_id",
            "This field MUST contain enough information to uniquely identify this specific volume vs all other volumes supported by this plugin",
        ),
        &[],
    ),
    must(
        "DRV-111",
        "the controller describes a volume as it answered when it was created or expanded",
        csi("Volume, volume_context", "SHALL always report the same volume_context"),
        &[],
    ),
    must(
        "DRV-112",
        "deleting one volume or snapshot leaves all others as they are",
        csi(
            "Volume, volume_id",
            "This field MUST contain enough information to uniquely identify this specific volume vs all other volumes supported by this plugin",
        ),
        &["CVE-2026-3864"],
    )
    .costs(Harm::Loss),
    must(
        "DRV-113",
        "a volume that was unpublished from a node takes no place there",
        csi("ControllerUnpublishVolume, node_id", "the SP MUST unpublish the volume from the specified node"),
        &["azuredisk-csi-driver#1842"],
    ),
    must(
        "DRV-114",
        "a plugin that reports SINGLE_NODE_MULTI_WRITER accepts SINGLE_NODE_WRITER, too",
        csi(
            "NodePublishVolume",
            "Plugins MUST accept and allow use of the `SINGLE_NODE_WRITER` access mode ... in order to permit older COs to continue working",
        ),
        &["csi-sanity"],
    ),
    must(
        "DRV-115",
        "a volume that is created by the name of a deleted one has nothing of it",
        csi(
            "DeleteVolume",
            "A Controller Plugin MUST implement this RPC call if it has `CREATE_DELETE_VOLUME` capability. This RPC will be called by the CO to deprovision a volume",
        ),
        &[],
    )
    .costs(Harm::Data),
];
