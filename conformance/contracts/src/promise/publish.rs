//! Publishing, unpublishing and unstaging: what appears at a path, and what is left when it goes.

use super::{Promise, promise};

pub(super) const PROMISES: &[Promise] = &[
    promise(
        "DRV-050",
        "what is published read-only cannot be written through its target",
        &["CSI 1.12, NodePublishVolume, readonly", "csi-driver-smb#987", "aws-efs-csi-driver#799"],
    ),
    promise(
        "DRV-051",
        "a target shows the volume that was asked for, and no other",
        &["CSI 1.12, NodePublishVolume", "kubernetes/kubernetes#120853"],
    ),
    promise(
        "DRV-052",
        "the target of a raw device is the node of that device",
        &["CSI 1.12, NodePublishVolume", "topolvm/topolvm#406"],
    ),
    promise(
        "DRV-053",
        "publishing again changes nothing: one mount at the target, not two",
        &["CSI 1.12, NodePublishVolume", "topolvm/topolvm#1225"],
    ),
    promise(
        "DRV-054",
        "a volume that is not staged is not published: nobody is shown an empty directory instead",
        &[
            "CSI 1.12, NodePublishVolume, errors",
            "kubernetes/kubernetes#106729",
            "kubernetes/kubernetes#120853",
        ],
    ),
    promise(
        "DRV-055",
        "when publishing was OK the volume is mounted at the target, which the driver has created",
        &["CSI 1.12, NodePublishVolume, target_path", "csi-test#326"],
    ),
    promise(
        "DRV-056",
        "a symbolic link at the target is not followed",
        &["ours: the target is in a tree that pods can reach"],
    ),
    promise(
        "DRV-057",
        "mount flags given for publishing are in force at the target",
        &["CSI 1.12, MountVolume.mount_flags"],
    ),
    promise(
        "DRV-058",
        "publishing again at a target in another way is ALREADY_EXISTS",
        &["CSI 1.12, NodePublishVolume, errors"],
    ),
    promise(
        "DRV-059",
        "a volume for a single writer has a single target",
        &["CSI 1.12, SINGLE_NODE_SINGLE_WRITER", "csi-sanity"],
    ),
    promise(
        "DRV-060",
        "nothing is mounted at a target once it was unpublished",
        &["CSI 1.12, NodeUnpublishVolume", "kubernetes/kubernetes#60987"],
    ),
    promise(
        "DRV-061",
        "the target itself is gone once it was unpublished",
        &["CSI 1.12, NodeUnpublishVolume", "csi-sanity"],
    ),
    promise(
        "DRV-062",
        "unpublishing again is OK",
        &["CSI 1.12, NodeUnpublishVolume", "spiffe/spiffe-csi#158"],
    ),
    promise(
        "DRV-063",
        "unpublishing one target leaves the volume's other targets alone",
        &["topolvm/topolvm#1035"],
    ),
    promise(
        "DRV-064",
        "unpublishing deletes no data",
        &["topolvm/topolvm#1035", "kubernetes/kubernetes#45464"],
    ),
    promise(
        "DRV-065",
        "what is beside the target is the caller's and stays untouched",
        &["kubernetes/kubernetes#101911", "kubernetes/kubernetes#85280"],
    ),
    promise(
        "DRV-066",
        "a target in use is not said to be unpublished: a mount that is only out of sight still writes",
        &["ours: MNT_DETACH", "kubernetes/kubernetes#102486"],
    ),
    promise(
        "DRV-067",
        "an inline volume is gone, with all it held, when it was unpublished",
        &["CSI 1.12, NodeUnpublishVolume", "kubernetes/kubernetes#127229", "dell/csm#1673"],
    ),
    promise(
        "DRV-068",
        "unpublishing an inline volume again is OK, though the volume is gone",
        &["kubernetes/kubernetes#90752", "intel/pmem-csi#626"],
    ),
    promise(
        "DRV-069",
        "unpublishing and unstaging are OK where the mount has gone behind the driver's back",
        &["spiffe/spiffe-csi#158", "hetznercloud/csi-driver#172"],
    ),
    promise(
        "DRV-070",
        "nothing is mounted at a staging path once it was unstaged",
        &["CSI 1.12, NodeUnstageVolume"],
    ),
    promise("DRV-071", "unstaging again is OK", &["CSI 1.12, NodeUnstageVolume"]),
    promise(
        "DRV-072",
        "all that was written is there again when the volume is staged next",
        &["ours: a volume is for keeping data"],
    ),
    promise(
        "DRV-073",
        "a cycle of staging and unstaging holds no device afterwards",
        &["kubernetes/kubernetes#109132", "topolvm/topolvm#877"],
    ),
    promise(
        "DRV-074",
        "the staging directory is the caller's: unstaging leaves it where it was",
        &["CSI 1.12, NodeStageVolume, staging_target_path", "kubernetes/kubernetes#102486"],
    ),
    promise(
        "DRV-075",
        "unstaging a volume that is still published is refused, and the target goes on working",
        &["CSI 1.12, NodeUnstageVolume", "kubernetes/kubernetes#102486"],
    ),
];
