//! How a driver behaves as a whole: bad requests, many at once, death and return.

use super::{Harm, Promise, advice, csi, must, should};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-090",
        "a request that lacks a required field is INVALID_ARGUMENT and changes nothing",
        csi("Error Scheme", "Missing required field | 3 INVALID_ARGUMENT"),
        &["csi-sanity"],
    ),
    should(
        "DRV-091",
        "two operations on one volume do not interleave: the second waits or is ABORTED",
        csi("Concurrency", "The plugin SHOULD handle this as gracefully as possible"),
        &["kubernetes/kubernetes#82190", "kubernetes/kubernetes#102486", "ceph/ceph-csi#615"],
    ),
    must(
        "DRV-092",
        "pods that share a volume, and volumes that share a node, come and go together",
        csi(
            "NodePublishVolume, volume_capability",
            "SP MUST ensure the CO can use the published volume as described",
        ),
        &["aws-fsx-openzfs-csi-driver#97", "csi-driver-nfs#209"],
    ),
    must(
        "DRV-093",
        "every call is answered, however many there are at once",
        csi("Error Scheme", "All CSI API calls defined in this spec MUST return a [standard gRPC status]"),
        &["kubernetes-sigs/aws-ebs-csi-driver#370", "kubernetes/kubernetes#101622"],
    ),
    must(
        "DRV-094",
        "no secret and no token is in a log",
        csi(
            "csi_secret",
            "contain information that is sensitive and MUST be treated as such (e.g. not logged)",
        ),
        &["kubernetes/kubernetes#118419", "democratic-csi#515"],
    )
    .costs(Harm::Plugin),
    advice(
        "DRV-095",
        "what a driver knew before it was restarted it knows afterwards",
        "CSI says nothing of restarts; a plugin restarts with each update",
        &["longhorn/longhorn#14042", "kubernetes/kubernetes#85280"],
    ),
    advice(
        "DRV-096",
        "what is published goes on working while the driver is away and after it has returned",
        "CSI says nothing of restarts; a plugin restarts with each update",
        &["ceph/ceph-csi#91", "kadalu/kadalu#1089", "seaweedfs/seaweedfs-csi-driver#201"],
    ),
    must(
        "DRV-097",
        "no request takes the driver down",
        csi("Error Scheme", "All CSI API calls defined in this spec MUST return a [standard gRPC status]"),
        &[],
    )
    .costs(Harm::Plugin),
    advice(
        "DRV-098",
        "a driver leaves no process behind",
        "CSI says nothing of processes; those that stay use up the node",
        &["kubernetes-csi/csi-driver-nfs#1271", "ceph/ceph-csi#4200"],
    ),
    must(
        "DRV-099",
        "a volume that does not exist is NOT_FOUND, where the call is not about its absence",
        csi(
            "errors of each call",
            "Volume does not exist | 5 NOT_FOUND ... it MUST return a non-ok gRPC code",
        ),
        &[],
    ),
];
