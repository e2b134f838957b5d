//! Leftovers in a driver that runs on: locks and descriptors.

use super::{Promise, advice, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-130",
        "a volume is ABORTED only while another call for it is under way, and not for ever after",
        csi("Error Scheme", "Operation pending for volume | 10 ABORTED"),
        &["ceph/ceph-csi#3511", "hashicorp/nomad#15197"],
    ),
    advice(
        "DRV-131",
        "a volume that comes and goes leaves no descriptor, thread or process in the driver",
        "CSI says nothing of them; a driver runs for months, and those that stay use up the node",
        &["ceph/ceph-csi#3559", "Dynatrace/dynatrace-operator#7070"],
    ),
    advice(
        "DRV-132",
        "volumes that come and go together leave no memory, mount, device or file behind",
        "CSI says nothing of them; a driver that grows is killed for its memory while pods start",
        &["kubernetes-sigs/azuredisk-csi-driver#2416", "ceph/ceph-csi#3559"],
    ),
    must(
        "DRV-133",
        "a driver that was ended, however that was, can be started again",
        csi("Supervised Lifecycle Management", "a Plugin SHALL act as a long-running service"),
        &[],
    ),
];
