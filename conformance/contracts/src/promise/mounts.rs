//! A mounted volume as a workload sees it.

use super::{Promise, advice};

pub(super) const PROMISES: &[Promise] = &[
    advice(
        "DRV-120",
        "no mount flag that restricts the use of a volume is in force unless it was asked for",
        "CSI says which flags are asked for, and not that no others may be added; programs, set-user-ID files and devices then do not work on the volume",
        &[],
    ),
    advice(
        "DRV-121",
        "the owner and the mode of a volume's root and files stay as the workload has left them",
        "CSI says nothing of owners; a node decides by those of the root whether it changes each file",
        &["metal-stack/csi-driver-lvm#79"],
    ),
    advice(
        "DRV-122",
        "a new volume is empty but for what its file system needs",
        "CSI says nothing of what is in a new volume; a workload that finds files takes it for one that is set up already",
        &[],
    ),
    advice(
        "DRV-123",
        "what a driver makes at the target cannot be written by everybody when nothing is mounted there",
        "CSI says nothing of modes; when the mount goes, a workload that may write there fills the disk of the node",
        &[],
    ),
];
