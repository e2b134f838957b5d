//! Staging: once per volume and node.

use super::{Promise, promise};

pub(super) const PROMISES: &[Promise] = &[
    promise(
        "DRV-040",
        "a volume that was staged is there: mounted at the staging path, or ready as a device",
        &["CSI 1.12, NodeStageVolume", "kubernetes/kubernetes#106729", "kubernetes/kubernetes#86784"],
    ),
    promise(
        "DRV-041",
        "staging again changes nothing: one mount, not two on top of each other",
        &["CSI 1.12, NodeStageVolume", "topolvm/topolvm#1225"],
    ),
    promise(
        "DRV-042",
        "a volume that holds data is never formatted",
        &[
            "hetznercloud/csi-driver#1346",
            "longhorn/longhorn#14042",
            "ydb-platform/nbs#7207",
            "NetApp/trident#418",
        ],
    ),
    promise(
        "DRV-043",
        "the file system is of the type that was asked for",
        &["CSI 1.12, MountVolume.fs_type"],
    ),
    promise(
        "DRV-044",
        "mount flags given for staging are in force, or staging fails",
        &["CSI 1.12, MountVolume.mount_flags", "fenio/tns-csi#235"],
    ),
    promise(
        "DRV-045",
        "a call that fails for good leaves nothing behind",
        &["GoogleCloudPlatform/gcs-fuse-csi-driver#1576", "kubernetes/kubernetes#86784"],
    ),
    promise(
        "DRV-046",
        "staging goes through no symbolic link that somebody has put in its place",
        &["ours: the staging path is in a tree that others can reach"],
    ),
    promise(
        "DRV-047",
        "staging again in another way is ALREADY_EXISTS, and the first stays as it was",
        &["CSI 1.12, NodeStageVolume, errors"],
    ),
    promise(
        "DRV-048",
        "staging with the publish context of an attachment that has ended is refused",
        &["CSI 1.12, NodeStageVolume, publish_context", "kubernetes/kubernetes#121937"],
    ),
    promise(
        "DRV-049",
        "with VOLUME_MOUNT_GROUP the group that was asked for can write to the volume, and without it nobody is changed",
        &["CSI 1.12, VOLUME_MOUNT_GROUP", "seaweedfs/seaweedfs-csi-driver#312", "csi-driver-nfs#327"],
    ),
];
