//! What a driver needs of its machine and its author does not have to script: disks with a file system, and an NFS
//! export.

use serde::{Deserialize, Serialize};

use super::{Manifest, ManifestError, Size, preparation::is_below_state};
use crate::disk_format::DiskFormat;

/// A disk of the machine with an empty file system, mounted before the driver starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Where it is mounted, such as `{state}/volumes`.
    pub path: String,
    /// Its file system: `ext4`, `xfs` or `btrfs`.
    pub fs_type: DiskFormat,
    /// Its size: 1 GiB if none is given. It takes the room of what is written to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Options of its file system, such as `prjquota`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Bytes of a disk: enough for any file system with quotas, and some volumes.
const DEFAULT_SIZE: u64 = 1 << 30;

impl Disk {
    pub fn bytes(&self) -> u64 {
        self.size.map_or(DEFAULT_SIZE, Size::bytes)
    }
}

impl Manifest {
    /// Whether something has to be ready before `prepare` and the driver.
    pub fn wants_fixtures(&self) -> bool {
        !self.disks.is_empty() || self.nfs_export.is_some()
    }

    /// Refuses fixtures at places that are not the driver's, and disks that no file system fits on.
    pub(super) fn check_fixtures(&self) -> Result<(), ManifestError> {
        let paths = self.disks.iter().map(|disk| &disk.path).chain(&self.nfs_export);
        if let Some(path) = paths.into_iter().find(|path| !is_below_state(path)) {
            return Err(ManifestError::FixtureElsewhere { place: path.clone() });
        }
        match self.disks.iter().find(|disk| disk.bytes() < disk.fs_type.least_bytes()) {
            Some(disk) => Err(ManifestError::SmallDisk {
                place: disk.path.clone(),
                fs_type: disk.fs_type.name(),
                least: disk.fs_type.least_bytes() >> 20,
            }),
            None => Ok(()),
        }
    }
}
