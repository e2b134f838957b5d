//! How a volume is going to be used, in CSI's words, as the controllers beside a driver say it.
//!
//! The node says it in its own way (`volume-manager/src/plugin/csi/capability.rs`): it looks at the first access
//! mode only, and the controllers look at all.

use api::storage::CsiSource;
use api::{AccessMode, Volume, VolumeMode};
use csi_proto::v1;
use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::volume_capability::{AccessType, BlockVolume, MountVolume};

/// The capability of a volume. `fine_modes` says whether the driver knows the access modes of a single node that
/// distinguish one writer from many.
pub(crate) fn of_volume(volume: &Volume, csi: &CsiSource, fine_modes: bool) -> v1::VolumeCapability {
    with_mode(volume, csi, access_mode(&volume.access_modes, fine_modes))
}

/// The capabilities that a new volume is to have: one for each access mode.
pub(crate) fn each_of_claim(volume: &Volume, csi: &CsiSource, fine_modes: bool) -> Vec<v1::VolumeCapability> {
    let modes = volume.access_modes.iter();
    modes.map(|mode| with_mode(volume, csi, access_mode(&[*mode], fine_modes))).collect()
}

fn with_mode(volume: &Volume, csi: &CsiSource, mode: Mode) -> v1::VolumeCapability {
    let access_type = match volume.mode {
        Some(VolumeMode::Block) => AccessType::Block(BlockVolume {}),
        _ => AccessType::Mount(MountVolume {
            fs_type: csi.fs_type.clone(),
            mount_flags: volume.mount_options.clone(),
            ..MountVolume::default()
        }),
    };
    v1::VolumeCapability {
        access_mode: Some(v1::volume_capability::AccessMode { mode: mode.into() }),
        access_type: Some(access_type),
    }
}

fn access_mode(modes: &[AccessMode], fine_modes: bool) -> Mode {
    let has = |mode| modes.contains(&mode);
    if has(AccessMode::ReadWriteMany) {
        return Mode::MultiNodeMultiWriter;
    }
    match (has(AccessMode::ReadOnlyMany), has(AccessMode::ReadWriteOnce), fine_modes) {
        (true, true, _) => Mode::MultiNodeSingleWriter,
        (true, false, _) => Mode::MultiNodeReaderOnly,
        (false, true, true) => Mode::SingleNodeMultiWriter,
        (false, false, true) if has(AccessMode::ReadWriteOncePod) => Mode::SingleNodeSingleWriter,
        (false, ..) => Mode::SingleNodeWriter,
    }
}

#[cfg(test)]
mod tests {
    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};

    use super::*;

    #[test]
    fn all_access_modes_of_a_volume_count() {
        let rows = [
            (&[ReadWriteOnce][..], Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter),
            (&[ReadWriteOncePod], Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter),
            (&[ReadOnlyMany], Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly),
            (&[ReadWriteOnce, ReadOnlyMany], Mode::MultiNodeSingleWriter, Mode::MultiNodeSingleWriter),
            (&[ReadWriteOnce, ReadWriteMany], Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter),
        ];
        for (modes, coarse, fine) in rows {
            assert_eq!((access_mode(modes, false), access_mode(modes, true)), (coarse, fine), "{modes:?}");
        }
    }
}
