//! The types of disk file systems that are made here. Touches nothing.

use serde::{Deserialize, Serialize};

/// A type of disk file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    Ext4,
    Xfs,
    Btrfs,
}

impl DiskFormat {
    /// The type for mount(8) and `mkfs.<type>`.
    pub fn name(self) -> &'static str {
        match self {
            DiskFormat::Ext4 => "ext4",
            DiskFormat::Xfs => "xfs",
            DiskFormat::Btrfs => "btrfs",
        }
    }

    /// Bytes of the smallest device that mkfs accepts.
    pub fn least_bytes(self) -> u64 {
        match self {
            DiskFormat::Ext4 => 8 << 20,
            DiskFormat::Xfs => 300 << 20,
            DiskFormat::Btrfs => 128 << 20,
        }
    }
}
