//! What a host says about files. Touches nothing.

use std::ffi::OsString;
use std::time::SystemTime;

use crate::mount_table::DeviceNumber;

/// The longest file that is read as a whole, in bytes: far longer than any that a node keeps for itself.
pub const LARGEST: u64 = 16 << 20;

/// What kind of thing a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A block device node.
    BlockDevice,
    /// A character device node.
    CharDevice,
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
    /// The file system did not say (only in a [`DirEntry`]).
    Unknown,
}

impl FileKind {
    /// Whether it is a block or a character device.
    pub fn is_device(self) -> bool {
        matches!(self, Self::BlockDevice | Self::CharDevice)
    }
}

/// What stat(2) says about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: twelve bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The device of its file system.
    pub dev: DeviceNumber,
    /// Its inode number.
    pub ino: u64,
    /// When it was made, where the file system knows: a number that is free again is given to the next file.
    pub born: Option<SystemTime>,
    /// For a device node, the device it reaches; else 0:0.
    pub rdev: DeviceNumber,
    /// How many names it has.
    pub nlink: u64,
    /// Its length in bytes.
    pub size: u64,
}

impl Metadata {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether both are one file: same device, same inode.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.dev == other.dev && self.ino == other.ino
    }
}

/// One name in a directory. It was not looked at, so a hung mount behind it does no harm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name.
    pub name: OsString,
    /// What the directory says it is, the link itself and not its target.
    pub kind: FileKind,
}

/// What statfs(2) says about a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStats {
    /// Its magic number.
    pub magic: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Free bytes.
    pub bytes_free: u64,
    /// Free bytes for somebody who is not root.
    pub bytes_available: u64,
    /// Inodes; 0 where the file system has no fixed number.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Mount flags of the path's mount (`ST_RDONLY`, …), by which a bind inherits them.
    pub flags: u64,
}

impl FsStats {
    /// The magic number of tmpfs.
    pub const TMPFS: u64 = 0x0102_1994;
    /// The magic number of hugetlbfs.
    pub const HUGETLBFS: u64 = 0x9584_58f6;
    /// The magic number of NFS.
    pub const NFS: u64 = 0x6969;

    /// The options a bind mount of this path has to be given so as not to lose them (07 §3), in the order
    /// the kubelet has them.
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

/// What a tree takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Allocated bytes; a file with several names counts once.
    pub bytes: u64,
    /// Files and directories; a file with several names counts once.
    pub inodes: u64,
}
