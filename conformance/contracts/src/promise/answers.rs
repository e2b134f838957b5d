//! The fields of answers, for any request.

use super::{Promise, advice, csi, must, should};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-170",
        "an answer has each field that CSI requires",
        csi("`REQUIRED` vs. `OPTIONAL`", "A field noted as `REQUIRED` MUST be specified"),
        &[],
    ),
    must(
        "DRV-171",
        "no size and no number of volumes in an answer is negative",
        csi("Volume, GetCapacity, Snapshot, VolumeUsage, NodeGetInfo", "MUST NOT be negative"),
        &[],
    ),
    must(
        "DRV-172",
        "an error says in words what went wrong",
        csi("Error Scheme", "The status `message` MUST contain a human readable description of error"),
        &[],
    ),
    must(
        "DRV-173",
        "a capability is reported together with those that CSI couples it with",
        csi(
            "PluginCapability.VolumeExpansion, ControllerServiceCapability",
            "it MUST implement either the EXPAND_VOLUME controller capability or ... The SP MUST also support PUBLISH_UNPUBLISH_VOLUME",
        ),
        &[],
    ),
    must(
        "DRV-174",
        "a plugin with topologies in its answers reports VOLUME_ACCESSIBILITY_CONSTRAINTS",
        csi(
            "Volume, NodeGetInfo, accessible_topology",
            "A plugin that returns this field MUST also set the VOLUME_ACCESSIBILITY_CONSTRAINTS plugin capability",
        ),
        &[],
    ),
    should(
        "DRV-175",
        "no secret is in the context of a volume or of its attachment",
        csi(
            "Volume, volume_context; ControllerPublishVolume, publish_context",
            "The contents of this field SHOULD NOT contain sensitive information",
        ),
        &[],
    ),
    must(
        "DRV-176",
        "a controller that reports VOLUME_CONDITION answers the condition of each volume",
        csi(
            "ListVolumes, ControllerGetVolume, volume_condition",
            "This field MUST be specified if the VOLUME_CONDITION controller capability is supported",
        ),
        &[],
    ),
    must(
        "DRV-177",
        "a controller that reports LIST_VOLUMES_PUBLISHED_NODES lists each node that a volume is published to",
        csi(
            "ControllerGetVolume, published_node_ids",
            "This field MUST be specified if the LIST_VOLUMES_PUBLISHED_NODES controller capability is supported",
        ),
        &[],
    ),
    must(
        "DRV-178",
        "a snapshot that is part of a group names it wherever it is listed",
        csi(
            "Snapshot, group_snapshot_id",
            "the SP MUST provide the ID of the volume group snapshot in this field",
        ),
        &[],
    ),
    advice(
        "DRV-179",
        "a volume that has just been created is not said to be abnormal",
        "CSI says what normal is, and not when a plugin has to find it; each new volume would raise an alarm",
        &[],
    ),
];
