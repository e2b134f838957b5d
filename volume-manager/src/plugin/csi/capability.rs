//! The volume capability of a request: access mode, filesystem or block, mount flags.
//!
//! Pure functions.

use api::AccessMode;
use csi_proto::v1::VolumeCapability;
use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::volume_capability::{AccessMode as CsiAccessMode, AccessType, BlockVolume, MountVolume};

/// The access mode for a PersistentVolume with the access modes `modes`.
///
/// Like the kubelet, it uses the first mode only; without a mode, as in every inline volume, it assumes
/// ReadWriteOnce. `single_node_multi_writer` is the driver's capability of that name: without it,
/// SINGLE_NODE_WRITER stands for ReadWriteOnce and ReadWriteOncePod.
pub(crate) fn access_mode(modes: &[AccessMode], single_node_multi_writer: bool) -> Mode {
    match (modes.first(), single_node_multi_writer) {
        (None | Some(AccessMode::ReadWriteOnce), true) => Mode::SingleNodeMultiWriter,
        (Some(AccessMode::ReadWriteOncePod), true) => Mode::SingleNodeSingleWriter,
        (None | Some(AccessMode::ReadWriteOnce | AccessMode::ReadWriteOncePod), false) => {
            Mode::SingleNodeWriter
        }
        (Some(AccessMode::ReadOnlyMany), _) => Mode::MultiNodeReaderOnly,
        (Some(AccessMode::ReadWriteMany), _) => Mode::MultiNodeMultiWriter,
    }
}

pub(crate) fn mounted(mode: Mode, mount: MountVolume) -> VolumeCapability {
    VolumeCapability { access_mode: Some(wrap(mode)), access_type: Some(AccessType::Mount(mount)) }
}

pub(crate) fn block(mode: Mode) -> VolumeCapability {
    VolumeCapability { access_mode: Some(wrap(mode)), access_type: Some(AccessType::Block(BlockVolume {})) }
}

fn wrap(mode: Mode) -> CsiAccessMode {
    CsiAccessMode { mode: mode.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_every_mode_with_and_without_the_newer_ones() {
        use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
        for (modes, old, new) in [
            (&[][..], Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter),
            (&[ReadWriteOnce], Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter),
            (&[ReadWriteOncePod], Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter),
            (&[ReadOnlyMany], Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly),
            (&[ReadWriteMany], Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter),
            (&[ReadWriteMany, ReadWriteOnce], Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter),
            (&[ReadWriteOnce, ReadWriteMany], Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter),
        ] {
            assert_eq!((access_mode(modes, false), access_mode(modes, true)), (old, new), "{modes:?}");
        }
    }
}
