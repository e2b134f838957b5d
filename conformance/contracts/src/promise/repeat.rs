//! Calls that are made again because their answer was lost or the caller has restarted.

use super::{Harm, Promise, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-100",
        "staging again in the same way is OK",
        csi(
            "NodeStageVolume",
            "is already staged to the `staging_target_path`, and is identical to the specified `volume_capability` the Plugin MUST reply `0 OK`",
        ),
        &[],
    )
    .costs(Harm::Pod),
    must(
        "DRV-101",
        "publishing again in the same way is OK",
        csi(
            "NodePublishVolume",
            "has already been published at the specified `target_path`, and is compatible with the specified `volume_capability` and `readonly` flag, the Plugin MUST reply `0 OK`",
        ),
        &[],
    )
    .costs(Harm::Pod),
    must(
        "DRV-102",
        "publishing to a node again in another way is ALREADY_EXISTS",
        csi("ControllerPublishVolume, errors", "Volume published but is incompatible | 6 ALREADY_EXISTS"),
        &["csi-sanity"],
    ),
];
