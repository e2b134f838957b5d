//! Who the plugin is and what it says it can do.

use super::{Promise, promise};

pub(super) const PROMISES: &[Promise] = &[
    promise(
        "DRV-001",
        "the plugin's name is a domain name of at most 63 characters, and the same in each answer",
        &["CSI 1.12, GetPluginInfo"],
    ),
    promise(
        "DRV-002",
        "a call whose capability is reported is answered, and not with UNIMPLEMENTED",
        &["CSI 1.12, ControllerGetCapabilities, NodeGetCapabilities"],
    ),
    promise(
        "DRV-003",
        "capabilities stay the same for as long as the plugin runs",
        &["ours: a caller that asks once must be right", "kubelet asks before each call"],
    ),
    promise(
        "DRV-004",
        "a plugin that serves calls says it is ready, and one that is not says why",
        &["CSI 1.12, Probe"],
    ),
    promise(
        "DRV-005",
        "the id of a node is not empty, has at most 256 bytes, and stays the same",
        &["CSI 1.12, NodeGetInfo"],
    ),
    promise(
        "DRV-006",
        "a plugin with accessibility constraints tells the topology of its nodes and of its volumes",
        &["CSI 1.12, GetPluginCapabilities, NodeGetInfo, CreateVolume"],
    ),
];
