//! The name of the plugin and its capabilities.

use super::{Promise, advice, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-001",
        "the plugin's name is a domain name of at most 63 characters, and the same in each answer",
        csi(
            "GetPluginInfo",
            "The name MUST follow domain name notation format ... It MUST be 63 characters or less",
        ),
        &[],
    ),
    must(
        "DRV-002",
        "a call that is required, always or by a reported capability, is answered, and not with UNIMPLEMENTED",
        csi(
            "ValidateVolumeCapabilities, RPC of each capability",
            "A Controller Plugin MUST implement this RPC call ... A Node Plugin MUST implement this RPC call if it has `STAGE_UNSTAGE_VOLUME` node capability",
        ),
        &[],
    ),
    advice(
        "DRV-003",
        "capabilities stay the same for as long as the plugin runs",
        "CSI asks it of GetPluginCapabilities only; a caller that asks the services once must be right as well",
        &["kubelet asks before each call"],
    ),
    must(
        "DRV-004",
        "a plugin that serves calls says it is ready, and one that is not says why",
        csi(
            "Probe",
            "In this case a successful response SHALL be returned with a readiness value of `false`",
        ),
        &[],
    ),
    must(
        "DRV-005",
        "the id of a node is not empty, has at most 256 bytes, and stays the same",
        csi(
            "NodeGetInfo",
            "This field MUST contain enough information to uniquely identify this specific node ... The size of this field SHALL NOT exceed 256 bytes",
        ),
        &[],
    ),
    advice(
        "DRV-006",
        "a plugin with accessibility constraints answers the topology of its nodes and of its volumes",
        "CSI makes both topologies optional; without them no workload can be placed where its volume is",
        &[],
    ),
    must(
        "DRV-007",
        "the calls that CSI requires of every plugin are implemented",
        csi(
            "Probe, GetPluginInfo, GetPluginCapabilities, NodeGetCapabilities",
            "A Plugin MUST implement this RPC call.",
        ),
        &[],
    ),
    must(
        "DRV-008",
        "keys and values of a topology are names of at most 63 characters, a key with an optional prefix",
        csi(
            "Topology",
            "Each string MUST be 63 characters or less and begin and end with an alphanumeric character",
        ),
        &[],
    ),
    must(
        "DRV-009",
        "each answer is a gRPC status and, if OK, the message of the call, within the limits of its fields",
        csi(
            "Error Scheme; Size Limits",
            "All CSI API calls defined in this spec MUST return a [standard gRPC status] ... fields SHALL NOT exceed the limits documented here",
        ),
        &[],
    ),
];
