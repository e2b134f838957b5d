//! Staging: once per volume and node.

use super::{Harm, Promise, advice, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-040",
        "a volume that was staged is there: mounted at the staging path, or ready as a device",
        csi(
            "NodeStageVolume, volume_capability",
            "SP MUST ensure the CO can use the staged volume as described",
        ),
        &["kubernetes/kubernetes#106729", "kubernetes/kubernetes#86784"],
    )
    .costs(Harm::Pod),
    must(
        "DRV-041",
        "staging again changes nothing: one mount, not two on top of each other",
        csi("NodeStageVolume", "This operation MUST be idempotent"),
        &["topolvm/topolvm#1225"],
    ),
    must(
        "DRV-042",
        "a volume that holds data is never formatted",
        csi("NodeStageVolume", "This operation MUST be idempotent"),
        &[
            "hetznercloud/csi-driver#1346",
            "longhorn/longhorn#14042",
            "ydb-platform/nbs#7207",
            "NetApp/trident#418",
        ],
    )
    .costs(Harm::Loss),
    must(
        "DRV-043",
        "the file system is of the type that was asked for",
        csi(
            "NodeStageVolume, volume_capability",
            "SP MUST ensure the CO can use the staged volume as described",
        ),
        &[],
    ),
    advice(
        "DRV-044",
        "mount flags given for staging are in force, or staging fails",
        "CSI asks for the flags where the volume is used, and they may come into force when it is published",
        &["fenio/tns-csi#235"],
    ),
    advice(
        "DRV-045",
        "a call that fails for good leaves nothing behind",
        "CSI lets a caller repeat what failed; the kubelet takes a final error for nothing done and forgets the call",
        &["GoogleCloudPlatform/gcs-fuse-csi-driver#1576", "kubernetes/kubernetes#86784"],
    ),
    advice(
        "DRV-046",
        "staging goes through no symbolic link that somebody has put in its place",
        "CSI says nothing of links; the staging path is in a tree that others can reach",
        &[],
    ),
    must(
        "DRV-047",
        "staging again in another way is ALREADY_EXISTS, and the first stays as it was",
        csi(
            "NodeStageVolume, errors",
            "the plugin MUST return the specified gRPC error code ... Volume published but is incompatible | 6 ALREADY_EXISTS",
        ),
        &[],
    ),
    advice(
        "DRV-048",
        "staging with the publish context of an attachment that has ended is refused",
        "CSI binds the caller to the right context, and does not oblige a plugin to notice a wrong one",
        &["kubernetes/kubernetes#121937"],
    ),
    must(
        "DRV-049",
        "with VOLUME_MOUNT_GROUP the group that was asked for can write to the volume, and without it nobody is changed",
        csi(
            "VolumeCapability, volume_mount_group",
            "SP MUST ensure that the volume_mount_group parameter is passed as the group identifier to the underlying operating system mount system call",
        ),
        &["seaweedfs/seaweedfs-csi-driver#312", "csi-driver-nfs#327"],
    ),
];
