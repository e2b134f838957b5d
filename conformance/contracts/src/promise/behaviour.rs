//! How a driver behaves as a whole: bad requests, many at once, death and return.

use super::{Promise, promise};

pub(super) const PROMISES: &[Promise] = &[
    promise(
        "DRV-090",
        "a request that lacks a required field is INVALID_ARGUMENT and changes nothing",
        &["CSI 1.12, error scheme", "csi-sanity"],
    ),
    promise(
        "DRV-091",
        "two operations on one volume do not interleave: the second waits or is ABORTED",
        &[
            "CSI 1.12, error scheme",
            "kubernetes/kubernetes#82190",
            "kubernetes/kubernetes#102486",
            "ceph/ceph-csi#615",
        ],
    ),
    promise(
        "DRV-092",
        "pods that share a volume, and volumes that share a node, come and go together",
        &["aws-fsx-openzfs-csi-driver#97", "csi-driver-nfs#209"],
    ),
    promise(
        "DRV-093",
        "every call is answered, however many there are at once",
        &["kubernetes-sigs/aws-ebs-csi-driver#370", "kubernetes/kubernetes#101622"],
    ),
    promise(
        "DRV-094",
        "no secret and no token is in a log",
        &["CSI 1.12, secrets", "kubernetes/kubernetes#118419", "democratic-csi#515"],
    ),
    promise(
        "DRV-095",
        "what a driver knew before it was restarted it knows afterwards",
        &["longhorn/longhorn#14042", "kubernetes/kubernetes#85280"],
    ),
    promise(
        "DRV-096",
        "what is published goes on working while the driver is away and after it has returned",
        &["ceph/ceph-csi#91", "kadalu/kadalu#1089", "seaweedfs/seaweedfs-csi-driver#201"],
    ),
    promise("DRV-097", "no request takes the driver down", &["ours: a driver serves all pods of a node"]),
    promise(
        "DRV-098",
        "a driver leaves no process behind",
        &["kubernetes-csi/csi-driver-nfs#1271", "ceph/ceph-csi#4200"],
    ),
    promise(
        "DRV-099",
        "a volume that does not exist is NOT_FOUND, where the call is not about its absence",
        &["CSI 1.12, errors of each call"],
    ),
];
