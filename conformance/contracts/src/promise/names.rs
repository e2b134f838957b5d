//! Names and lists of volumes: one volume a name, told in the same way wherever it is told.

use super::{Promise, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-110",
        "volumes of different names have different ids",
        csi(
            "Volume, volume_id",
            "This field MUST contain enough information to uniquely identify this specific volume vs all other volumes supported by this plugin",
        ),
        &[],
    ),
    must(
        "DRV-111",
        "what the controller tells of a volume is what was answered when it was created or grown",
        csi("Volume, volume_context", "SHALL always report the same volume_context"),
        &[],
    ),
];
