//! Growing, modifying and measuring volumes.

use super::{Promise, advice, csi, must, should};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-080",
        "after the node's expansion the device has the new size, wherever it is open",
        csi("CapacityRange", "Volume MUST be at least this big"),
        &[],
    ),
    must(
        "DRV-081",
        "after the node's expansion the file system has the new size",
        csi("CapacityRange", "Volume MUST be at least this big"),
        &["kubernetes/kubernetes#94929"],
    ),
    must(
        "DRV-082",
        "an expansion answers the size that the volume then has, which is within the range asked for",
        csi("ControllerExpandVolume", "Capacity of volume after expansion. This field is REQUIRED"),
        &[],
    ),
    should(
        "DRV-083",
        "expanding again to a size that is reached already is OK",
        csi(
            "ControllerExpandVolume, NodeExpandVolume",
            "is already larger than or equal to the target capacity of the expansion request, the plugin SHOULD reply 0 OK",
        ),
        &[],
    ),
    must(
        "DRV-084",
        "statistics are those of the volume: its size, its inodes",
        csi("NodeGetVolumeStats", "The total capacity in specified Unit. This field is REQUIRED"),
        &[],
    ),
    must(
        "DRV-085",
        "statistics of a path where the volume is not are NOT_FOUND",
        csi(
            "NodeGetVolumeStats, errors",
            "the plugin MUST return the specified gRPC error code ... Volume does not exist | 5 NOT_FOUND",
        ),
        &["csi-sanity"],
    ),
    must(
        "DRV-086",
        "a volume whose mount is gone is not said to be well",
        csi(
            "VolumeCondition",
            "This field MUST be specified if the VOLUME_CONDITION node capability is supported",
        ),
        &[],
    ),
    must(
        "DRV-087",
        "a modification that is refused has changed nothing",
        csi(
            "ControllerModifyVolume, errors",
            "The SP MUST NOT have applied any modification to the volume as part of this specific call",
        ),
        &[],
    ),
    advice(
        "DRV-088",
        "the condition of a volume that is well has a message",
        "CSI requires the message, and says that a scalar field that is left out has its default; of a volume that is well an empty text keeps nothing back",
        &[],
    ),
];
