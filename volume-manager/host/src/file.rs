//! Metadata of files, directories and file systems. Touches nothing.

use std::ffi::OsString;
use std::time::SystemTime;

use crate::mount_table::DeviceNumber;

/// The longest file that is read as a whole, in bytes: far longer than any file that a node keeps for itself.
pub const LARGEST: u64 = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    Directory,
    File,
    Symlink,
    BlockDevice,
    CharDevice,
    Socket,
    Fifo,
    /// The file system did not say (only in a [`DirEntry`]).
    Unknown,
}

impl FileKind {
    pub fn is_device(self) -> bool {
        matches!(self, Self::BlockDevice | Self::CharDevice)
    }
}

/// Metadata of a file as stat(2) reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: twelve bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// The device of the file system.
    pub dev: DeviceNumber,
    pub ino: u64,
    /// Creation time, where the file system keeps it. It distinguishes a file from an earlier one
    /// whose inode number was reused.
    pub born: Option<SystemTime>,
    /// The device that a device node stands for; 0:0 for other files.
    pub rdev: DeviceNumber,
    /// Number of hard links.
    pub nlink: u64,
    /// Bytes.
    pub size: u64,
}

impl Metadata {
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Same device, same inode.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.dev == other.dev && self.ino == other.ino
    }
}

/// A name in a directory. Listing does not stat it, so a hung mount of that name does not block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    pub name: OsString,
    /// As the directory lists it: a link is a link, with any target.
    pub kind: FileKind,
}

/// Size and flags of a file system as statfs(2) reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStats {
    pub magic: u64,
    pub bytes: u64,
    pub bytes_free: u64,
    /// Free bytes for users other than root.
    pub bytes_available: u64,
    /// Inodes; 0 where the file system has no fixed number.
    pub inodes: u64,
    pub inodes_free: u64,
    /// Mount flags of the path's mount (`ST_RDONLY`, …). A bind of the path inherits them.
    pub flags: u64,
}

impl FsStats {
    /// Magic number, as are the next two.
    pub const TMPFS: u64 = 0x0102_1994;
    pub const HUGETLBFS: u64 = 0x9584_58f6;
    pub const NFS: u64 = 0x6969;

    /// Mount options that a bind of this path must repeat to keep them (07 §3), in the kubelet's order.
    pub fn bind_options(&self) -> Vec<&'static str> {
        const FLAGS: [(u64, &str); 7] = [
            (0x1, "ro"),
            (0x4, "nodev"),
            (0x8, "noexec"),
            (0x2, "nosuid"),
            (0x400, "noatime"),
            (0x1000, "relatime"),
            (0x800, "nodiratime"),
        ];
        FLAGS.iter().filter(|(flag, _)| self.flags & flag != 0).map(|(_, name)| *name).collect()
    }
}

/// Space and inodes that a tree uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Allocated bytes; a file with several names counts once.
    pub bytes: u64,
    /// Files and directories; a file with several names counts once.
    pub inodes: u64,
}
