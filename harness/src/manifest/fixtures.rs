//! Fixtures that a manifest can ask for, so that its author writes no script: disks, LVM volume groups, iSCSI targets and an
//! NFS export.

use serde::{Deserialize, Serialize};

use super::{Manifest, ManifestError, Size, State, preparation::is_below_state};
use crate::disk_format::DiskFormat;

/// A disk of the machine with an empty file system, mounted before the driver starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Where it is mounted, such as `{state}/volumes`.
    pub path: String,
    /// Its file system: `ext4`, `xfs` or `btrfs`.
    pub fs_type: DiskFormat,
    /// Its size: 512 MiB if none is given. Only what is written to it takes memory, or disk space in a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Options of its file system, such as `prjquota`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// A volume group of LVM on a disk of its own, there before the driver starts, in a guest (`--tier vm`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeGroup {
    /// Its name, such as `csi-vg`.
    pub name: String,
    /// The size of its disk: 512 MiB if none is given. Only what is written to it takes disk space in the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

/// An iSCSI target with disks, at 127.0.0.1:3260 before the driver starts, in a guest (`--tier vm`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IscsiTarget {
    /// Its name, such as `iqn.2026-01.dev.volproof:disks`.
    pub iqn: String,
    /// The number of its disks, which are LUN 1 and the following: 1 if none is given.
    #[serde(default = "default_units")]
    pub units: u32,
    /// The size of each disk: 512 MiB if none is given. Only what is written to it takes disk space in the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

fn default_units() -> u32 {
    1
}

/// The size of a disk in bytes: large enough for any file system with quotas and some volumes, and smaller than the file
/// system of a case's state.
const DEFAULT_SIZE: u64 = 512 << 20;

impl Disk {
    pub fn bytes(&self) -> u64 {
        self.size.map_or(DEFAULT_SIZE, Size::bytes)
    }
}

impl VolumeGroup {
    pub fn bytes(&self) -> u64 {
        self.size.map_or(DEFAULT_SIZE, Size::bytes)
    }

    /// Whether LVM accepts the name.
    fn has_valid_name(&self) -> bool {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte);
        let name = self.name.as_bytes();
        (1..128).contains(&name.len())
            && !matches!(name, [b'-', ..] | b"." | b"..")
            && name.iter().copied().all(is_valid)
    }
}

impl IscsiTarget {
    /// The most disks of a target: an address has one byte for the number of the disk.
    const MOST_UNITS: u32 = 255;

    /// Bytes of each disk.
    pub fn bytes(&self) -> u64 {
        self.size.map_or(DEFAULT_SIZE, Size::bytes)
    }

    /// Whether the name has the form of RFC 3720: `iqn.`, a year and month, and a reversed domain name of that time.
    fn has_valid_name(&self) -> bool {
        let is_valid =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:".contains(&byte);
        let is_year_and_month = |month: &str| {
            let digits = month.split_once('-').filter(|(year, month)| (year.len(), month.len()) == (4, 2));
            digits.is_some_and(|(year, month)| {
                year.bytes().chain(month.bytes()).all(|byte| byte.is_ascii_digit())
            })
        };
        let parts = self.iqn.strip_prefix("iqn.").and_then(|rest| rest.split_once('.'));
        self.iqn.len() <= 223
            && parts.is_some_and(|(month, rest)| {
                is_year_and_month(month)
                    && !rest.starts_with(['.', '-', ':'])
                    && !rest.is_empty()
                    && rest.bytes().all(is_valid)
            })
    }
}

impl Manifest {
    /// Whether a fixture has to be ready before `prepare` and the driver start.
    pub fn wants_fixtures(&self) -> bool {
        !self.disks.is_empty()
            || !self.volume_groups.is_empty()
            || !self.iscsi_targets.is_empty()
            || self.nfs_export.is_some()
    }

    /// Refuses fixtures outside the driver's state, fixtures of a driver that already runs or has a state for each node, disks
    /// that are too small for their file system, and volume groups and iSCSI targets with invalid names or numbers.
    pub(super) fn check_fixtures(&self) -> Result<(), ManifestError> {
        let disks = self.disks.iter().map(|disk| ("path", &disk.path));
        let mut paths = disks.chain(self.nfs_export.iter().map(|path| ("nfs_export", path)));
        if let Some((key, path)) = paths.find(|(_, path)| !is_below_state(path)) {
            return Err(ManifestError::FixtureElsewhere { key, place: path.clone() });
        }
        if self.wants_fixtures() && self.is_running_already() {
            return Err(ManifestError::FixturesOfRunning);
        }
        if self.wants_fixtures() && self.nodes > 1 && self.state == State::PerNode {
            return Err(ManifestError::FixturesOfEachNode);
        }
        if let Some(group) = self.volume_groups.iter().find(|group| !group.has_valid_name()) {
            return Err(ManifestError::VolumeGroupName { name: group.name.clone() });
        }
        self.check_targets()?;
        match self.disks.iter().find(|disk| disk.bytes() < disk.fs_type.least_bytes()) {
            Some(disk) => Err(ManifestError::SmallDisk {
                place: disk.path.clone(),
                fs_type: disk.fs_type.name(),
                least: disk.fs_type.least_bytes() >> 20,
            }),
            None => Ok(()),
        }
    }

    fn check_targets(&self) -> Result<(), ManifestError> {
        for (number, target) in self.iscsi_targets.iter().enumerate() {
            let iqn = target.iqn.clone();
            if !target.has_valid_name() {
                return Err(ManifestError::TargetName { iqn });
            }
            if !(1..=IscsiTarget::MOST_UNITS).contains(&target.units) {
                return Err(ManifestError::TargetUnits { iqn, units: target.units });
            }
            if self.iscsi_targets.iter().take(number).any(|other| other.iqn == iqn) {
                return Err(ManifestError::TwoTargets { iqn });
            }
        }
        Ok(())
    }
}
