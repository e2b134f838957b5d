//! Publishing, unpublishing and unstaging: mounts at a path, and leftovers there.

use super::{Harm, Promise, advice, csi, must, should};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-050",
        "what is published read-only cannot be written through its target",
        csi("NodePublishVolume, readonly", "SP MUST publish the volume in readonly mode"),
        &["csi-driver-smb#987", "aws-efs-csi-driver#799"],
    )
    .costs(Harm::Data),
    must(
        "DRV-051",
        "a target shows the volume that was asked for, and no other",
        csi("NodePublishVolume, target_path", "the SP SHALL place the mounted directory at target_path"),
        &["kubernetes/kubernetes#120853"],
    )
    .costs(Harm::Data),
    must(
        "DRV-052",
        "the target of a raw device is the node of that device",
        csi("NodePublishVolume, target_path", "the SP SHALL place the block device at target_path"),
        &["topolvm/topolvm#406"],
    ),
    must(
        "DRV-053",
        "publishing again changes nothing: one mount at the target, not two",
        csi("NodePublishVolume", "This operation MUST be idempotent"),
        &["topolvm/topolvm#1225"],
    ),
    advice(
        "DRV-054",
        "a volume that is not staged is not published: nobody is shown an empty directory instead",
        "CSI binds the caller to stage first; a plugin that looks keeps a workload from writing into an empty directory",
        &["kubernetes/kubernetes#106729", "kubernetes/kubernetes#120853"],
    ),
    must(
        "DRV-055",
        "when publishing was OK the volume is mounted at the target, which the driver has created",
        csi(
            "NodePublishVolume, target_path",
            "the SP SHALL place the block device at target_path ... the SP SHALL place the mounted directory at target_path",
        ),
        &["csi-test#326"],
    )
    .costs(Harm::Pod),
    advice(
        "DRV-056",
        "a symbolic link at the target is not followed",
        "CSI says nothing of links; the target is in a tree that pods can reach",
        &[],
    ),
    must(
        "DRV-057",
        "mount flags given for publishing are in force at the target",
        csi(
            "NodePublishVolume, volume_capability",
            "SP MUST ensure the CO can use the published volume as described",
        ),
        &[],
    ),
    should(
        "DRV-058",
        "publishing again at a target in another way is ALREADY_EXISTS",
        csi(
            "NodePublishVolume",
            "The following table shows what the Plugin SHOULD return when receiving a second `NodePublishVolume` on the same volume on the same node",
        ),
        &[],
    ),
    should(
        "DRV-059",
        "a volume for a single writer has a single target",
        csi(
            "NodePublishVolume",
            "use the following table instead for what the Plugin SHOULD return when receiving a second `NodePublishVolume`",
        ),
        &["csi-sanity"],
    ),
    must(
        "DRV-060",
        "nothing is mounted at a target once it was unpublished",
        csi("NodeUnpublishVolume", "This RPC MUST undo the work by the corresponding `NodePublishVolume`"),
        &["kubernetes/kubernetes#60987"],
    ),
    must(
        "DRV-061",
        "the target itself is gone once it was unpublished",
        csi(
            "NodeUnpublishVolume, target_path",
            "The SP MUST delete the file or directory it created at this path",
        ),
        &["csi-sanity"],
    ),
    must(
        "DRV-062",
        "unpublishing again is OK",
        csi("NodeUnpublishVolume", "This operation MUST be idempotent"),
        &["spiffe/spiffe-csi#158"],
    )
    .costs(Harm::Pod),
    must(
        "DRV-063",
        "unpublishing one target leaves the volume's other targets alone",
        csi("NodeUnpublishVolume", "This RPC MUST undo the work by the corresponding `NodePublishVolume`"),
        &["topolvm/topolvm#1035"],
    ),
    must(
        "DRV-064",
        "unpublishing deletes no data",
        csi("NodeUnpublishVolume", "This RPC MUST undo the work by the corresponding `NodePublishVolume`"),
        &["topolvm/topolvm#1035", "kubernetes/kubernetes#45464"],
    )
    .costs(Harm::Loss),
    must(
        "DRV-065",
        "what is beside the target is the caller's and stays untouched",
        csi("NodeUnpublishVolume", "This RPC MUST undo the work by the corresponding `NodePublishVolume`"),
        &["kubernetes/kubernetes#101911", "kubernetes/kubernetes#85280"],
    )
    .costs(Harm::Loss),
    advice(
        "DRV-066",
        "a target in use is not said to be unpublished: a mount that is only out of sight still writes",
        "CSI does not say when a mount is gone; one that is only out of sight still writes",
        &["kubernetes/kubernetes#102486"],
    ),
    must(
        "DRV-067",
        "an inline volume is gone, with all it held, when it was unpublished",
        csi("NodeUnpublishVolume", "This RPC MUST undo the work by the corresponding `NodePublishVolume`"),
        &["kubernetes/kubernetes#127229", "dell/csm#1673"],
    ),
    must(
        "DRV-068",
        "unpublishing an inline volume again is OK, though the volume is gone",
        csi("NodeUnpublishVolume", "This operation MUST be idempotent"),
        &["kubernetes/kubernetes#90752", "intel/pmem-csi#626"],
    )
    .costs(Harm::Pod),
    advice(
        "DRV-069",
        "unpublishing and unstaging are OK where the mount has gone behind the driver's back",
        "CSI asks it of unstaging only, for a volume that is not staged; an unpublish that fails for ever keeps the pod",
        &["spiffe/spiffe-csi#158", "hetznercloud/csi-driver#172"],
    ),
    must(
        "DRV-070",
        "nothing is mounted at a staging path once it was unstaged",
        csi("NodeUnstageVolume", "This RPC MUST undo the work by the corresponding `NodeStageVolume`"),
        &[],
    ),
    must(
        "DRV-071",
        "unstaging again is OK",
        csi("NodeUnstageVolume", "This operation MUST be idempotent"),
        &[],
    )
    .costs(Harm::Pod),
    must(
        "DRV-072",
        "all that was written is there again when the volume is staged next",
        csi("NodeUnstageVolume", "This RPC MUST undo the work by the corresponding `NodeStageVolume`"),
        &[],
    )
    .costs(Harm::Loss),
    must(
        "DRV-073",
        "a cycle of staging and unstaging holds no device afterwards",
        csi("NodeUnstageVolume", "This RPC MUST undo the work by the corresponding `NodeStageVolume`"),
        &["kubernetes/kubernetes#109132", "topolvm/topolvm#877"],
    ),
    advice(
        "DRV-074",
        "the staging directory is the caller's: unstaging leaves it where it was",
        "CSI has the caller make the directory, and does not forbid a plugin to remove it",
        &["kubernetes/kubernetes#102486"],
    ),
    advice(
        "DRV-075",
        "unstaging a volume that is still published is refused, and the target goes on working",
        "CSI binds the caller to unpublish first, and does not oblige a plugin to refuse",
        &["kubernetes/kubernetes#102486"],
    ),
    advice(
        "DRV-076",
        "what is beside the path of a call is the caller's and stays untouched",
        "CSI gives a plugin the path of a call and says nothing of what lies beside it: the node finds its volumes by it",
        &["kubernetes/kubernetes#101911"],
    ),
];
