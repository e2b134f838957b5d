//! Requests that do not fit what there is, and how they are refused.

use super::{Harm, Promise, advice, csi, must, should};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-180",
        "where volumes are staged, publishing without the staging path is refused",
        csi("NodePublishVolume, errors", "Staging target path not set | 9 FAILED_PRECONDITION"),
        &[],
    ),
    should(
        "DRV-181",
        "a group that is asked for with other snapshots than its own is refused",
        csi(
            "GetVolumeGroupSnapshot, snapshot_ids",
            "it SHOULD check this field and report an error if it has the ability to detect a mismatch",
        ),
        &[],
    ),
    must(
        "DRV-182",
        "the status of an error has no details",
        csi("Error Scheme", "The status `details` MUST be empty"),
        &[],
    ),
    should(
        "DRV-183",
        "a deleted volume is unpublished from the node that it was on with OK: it is published nowhere",
        csi(
            "ControllerUnpublishVolume",
            "cannot be found by the Plugin and the volume can be safely regarded as ControllerUnpublished from the node, the plugin SHOULD return `0 OK`",
        ),
        &[],
    )
    .costs(Harm::Pod),
    must(
        "DRV-184",
        "what was published and staged can be undone: unpublishing, and then unstaging, succeed",
        csi(
            "NodeUnpublishVolume, NodeUnstageVolume",
            "This RPC MUST undo the work by the corresponding `NodePublishVolume` ... This RPC MUST undo the work by the corresponding `NodeStageVolume`",
        ),
        &[],
    )
    .costs(Harm::Pod),
    should(
        "DRV-185",
        "creating a volume of one name several times at once makes one volume",
        csi(
            "CreateVolume, name",
            "The Plugin SHOULD ensure that multiple `CreateVolume` calls for the same name do not result in more than one piece of storage provisioned corresponding to that name",
        ),
        &["kubernetes-sigs/aws-ebs-csi-driver#165"],
    ),
    must(
        "DRV-186",
        "snapshots, and groups of them, of different names have different ids",
        csi(
            "Snapshot, snapshot_id; VolumeGroupSnapshot, group_snapshot_id",
            "This field MUST contain enough information to uniquely identify this specific snapshot vs all other snapshots supported by this plugin",
        ),
        &[],
    ),
    advice(
        "DRV-187",
        "statistics are those of the moment at which they are asked for",
        "CSI does not say how old statistics may be; Kubernetes shows them as current, and alarms rest on them",
        &[],
    ),
    advice(
        "DRV-188",
        "no shell runs what a name says",
        "CSI allows almost any text as a name, and says nothing of the commands that a plugin makes of it",
        &[],
    )
    .costs(Harm::Plugin),
    advice(
        "DRV-189",
        "volumes of different names can be created at once",
        "CSI has one call for a volume at a time, and a provisioner works on many claims at once",
        &[],
    ),
];
