//! Growing, modifying and measuring volumes.

use super::{Promise, promise};

pub(super) const PROMISES: &[Promise] = &[
    promise(
        "DRV-080",
        "after the node's expansion the device has the new size, wherever it is open",
        &["CSI 1.12, NodeExpandVolume"],
    ),
    promise(
        "DRV-081",
        "after the node's expansion the file system has the new size",
        &["CSI 1.12, NodeExpandVolume", "kubernetes/kubernetes#94929"],
    ),
    promise(
        "DRV-082",
        "an expansion answers the size that the volume then has, which is within the range asked for",
        &["CSI 1.12, ControllerExpandVolume"],
    ),
    promise(
        "DRV-083",
        "expanding again to a size that is reached already is OK",
        &["CSI 1.12, ControllerExpandVolume, NodeExpandVolume"],
    ),
    promise(
        "DRV-084",
        "statistics are those of the volume: its size, its inodes",
        &["CSI 1.12, NodeGetVolumeStats"],
    ),
    promise(
        "DRV-085",
        "statistics of a path where the volume is not are NOT_FOUND",
        &["CSI 1.12, NodeGetVolumeStats, errors", "csi-sanity"],
    ),
    promise("DRV-086", "a volume whose mount is gone is not said to be well", &["CSI 1.12, VolumeCondition"]),
    promise(
        "DRV-087",
        "a modification that is refused has changed nothing",
        &["CSI 1.12, ControllerModifyVolume, errors"],
    ),
];
