//! File systems of the simulated kernel: inodes, names, owners, modes. Touches nothing real.
//!
//! There are no hard links, so an inode has one name and one directory, and is its dentry as well.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::directory::Directory;
use crate::errno::{self, Errno};
use crate::file::{FileKind, Metadata};
use crate::mount_table::DeviceNumber;

/// Never reused within a file system.
pub(super) type Ino = u64;

/// Root inode of every file system.
pub(super) const ROOT: Ino = 1;

/// Why an inode that something names is there.
const LIVES: &str = "an inode lives while a name, a mount or a descriptor refers to it";

fn slot(ino: Ino) -> usize {
    usize::try_from(ino).expect("as many as were made")
}

/// A file system: a superblock with its inodes.
#[derive(Debug)]
pub(super) struct Filesystem {
    pub(super) fs_type: String,
    pub(super) source: OsString,
    pub(super) dev: DeviceNumber,
    /// Superblock options as in mountinfo, without `rw` or `ro`.
    pub(super) options: Vec<String>,
    pub(super) read_only: bool,
    /// Error of every access, after its server or device is gone.
    pub(super) broken: Option<Errno>,
    /// Its block device. A file system with one outlives its mounts.
    pub(super) device: Option<DeviceNumber>,
    pub(super) bytes: u64,
    /// By number; `None` for one that is gone.
    inodes: Vec<Option<Box<Inode>>>,
}

/// A file of any kind.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) node: Node,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Its directory; its own number for the root.
    pub(super) parent: Ino,
    pub(super) name: OsString,
    /// `false` after its name was removed.
    pub(super) linked: bool,
    /// Number of mounts that show it and descriptors that hold it.
    pub(super) pins: u32,
    /// Number of mounts on it, through any mount that shows it. Its name is busy meanwhile.
    pub(super) covers: u32,
}

#[derive(Debug)]
pub(super) enum Node {
    Dir(Directory),
    File(Vec<u8>),
    Link(PathBuf),
    Device(FileKind, DeviceNumber),
    Socket,
    Fifo,
}

impl Node {
    pub(super) fn empty_dir() -> Self {
        Self::Dir(Directory::default())
    }

    pub(super) fn kind(&self) -> FileKind {
        match self {
            Self::Dir(_) => FileKind::Directory,
            Self::File(_) => FileKind::File,
            Self::Link(_) => FileKind::Symlink,
            Self::Device(kind, _) => *kind,
            Self::Socket => FileKind::Socket,
            Self::Fifo => FileKind::Fifo,
        }
    }
}

impl Filesystem {
    pub(super) fn new(fs_type: &str, source: &OsStr, dev: DeviceNumber, root_mode: u32) -> Self {
        let root = Inode {
            node: Node::empty_dir(),
            mode: root_mode,
            uid: 0,
            gid: 0,
            parent: ROOT,
            name: OsString::new(),
            linked: true,
            pins: 0,
            covers: 0,
        };
        Self {
            fs_type: fs_type.to_owned(),
            source: source.to_owned(),
            dev,
            options: Vec::new(),
            read_only: false,
            broken: None,
            device: None,
            bytes: 1 << 30,
            // Numbers begin with the root's, which is 1.
            inodes: vec![None, Some(Box::new(root))],
        }
    }

    /// Fails if the file system is broken. Called by everything that the real kernel would ask a server or disk.
    pub(super) fn ask(&self) -> Result<(), Errno> {
        self.broken.map_or(Ok(()), Err)
    }

    pub(super) fn inode(&self, ino: Ino) -> &Inode {
        self.inodes[slot(ino)].as_deref().expect(LIVES)
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        self.inodes[slot(ino)].as_deref_mut().expect(LIVES)
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.inode(ino).node, Node::Dir(_))
    }

    pub(super) fn directory(&self, dir: Ino) -> Result<&Directory, Errno> {
        self.ask()?;
        match &self.inode(dir).node {
            Node::Dir(directory) => Ok(directory),
            _ => Err(Errno(errno::ENOTDIR)),
        }
    }

    pub(super) fn look_up(&self, dir: Ino, name: &OsStr) -> Result<Ino, Errno> {
        self.directory(dir)?.get(name).ok_or(Errno(errno::ENOENT))
    }

    /// Whether `ino` is `dir` or below it.
    pub(super) fn is_below(&self, ino: Ino, dir: Ino) -> bool {
        let mut here = ino;
        while here != dir {
            let parent = self.inode(here).parent;
            if parent == here {
                return false;
            }
            here = parent;
        }
        true
    }

    /// Creates a file of any kind. The name must be free.
    pub(super) fn create(&mut self, dir: Ino, name: &OsStr, node: Node, mode: u32) -> Result<Ino, Errno> {
        self.ask()?;
        let group = self.inode(dir);
        // A file in a setgid directory gets its group, and a directory also the bit.
        let setgid = group.mode & 0o2000 != 0;
        let gid = if setgid { group.gid } else { 0 };
        let mode = if setgid && matches!(node, Node::Dir(_)) { mode | 0o2000 } else { mode };
        let ino = self.inodes.len() as Ino;
        let Node::Dir(directory) = &mut self.inode_mut(dir).node else { return Err(Errno(errno::ENOTDIR)) };
        if directory.get(name).is_some() {
            return Err(Errno(errno::EEXIST));
        }
        directory.insert(name, ino, node.kind());
        let name = name.to_owned();
        let inode = Inode { node, mode, uid: 0, gid, parent: dir, name, linked: true, pins: 0, covers: 0 };
        self.inodes.push(Some(Box::new(inode)));
        Ok(ino)
    }

    /// Removes a file's name, and the inode unless it is pinned.
    pub(super) fn unlink(&mut self, ino: Ino) {
        self.take_name(ino);
        self.inode_mut(ino).linked = false;
        self.forget(ino);
    }

    /// Renames a file. The new name must be free.
    pub(super) fn relink(&mut self, ino: Ino, dir: Ino, name: &OsStr) {
        let kind = self.take_name(ino);
        if let Node::Dir(directory) = &mut self.inode_mut(dir).node {
            directory.insert(name, ino, kind);
        }
        let inode = self.inode_mut(ino);
        inode.parent = dir;
        inode.name = name.to_owned();
    }

    /// Takes an inode's name out of its directory.
    fn take_name(&mut self, ino: Ino) -> FileKind {
        let inode = self.inode(ino);
        let (dir, name, kind) = (inode.parent, inode.name.clone(), inode.node.kind());
        if let Node::Dir(directory) = &mut self.inode_mut(dir).node {
            directory.remove(&name, kind);
        }
        kind
    }

    pub(super) fn pin(&mut self, ino: Ino) {
        self.inode_mut(ino).pins += 1;
    }

    pub(super) fn unpin(&mut self, ino: Ino) {
        self.inode_mut(ino).pins -= 1;
        self.forget(ino);
    }

    fn forget(&mut self, ino: Ino) {
        let inode = self.inode(ino);
        if !inode.linked && inode.pins == 0 {
            self.inodes[slot(ino)] = None;
        }
    }

    pub(super) fn metadata(&self, ino: Ino) -> Result<Metadata, Errno> {
        self.ask()?;
        let inode = self.inode(ino);
        let (nlink, size, rdev) = match &inode.node {
            Node::Dir(directory) => (2 + directory.subdirectories(), 0, DeviceNumber::default()),
            Node::File(bytes) => (1, bytes.len() as u64, DeviceNumber::default()),
            Node::Link(target) => (1, target.as_os_str().len() as u64, DeviceNumber::default()),
            Node::Device(_, rdev) => (1, 0, *rdev),
            Node::Socket | Node::Fifo => (1, 0, DeviceNumber::default()),
        };
        Ok(Metadata {
            kind: inode.node.kind(),
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            dev: self.dev,
            ino,
            // Not needed: inode numbers are never reused here.
            born: None,
            rdev,
            nlink: if inode.linked { nlink } else { 0 },
            size,
        })
    }

    /// The names from `root` down to `ino`; `None` if `ino` is not below `root`.
    pub(super) fn names_below(&self, ino: Ino, root: Ino) -> Option<Vec<&OsStr>> {
        let mut names = Vec::new();
        let mut here = ino;
        while here != root {
            let inode = self.inode(here);
            if inode.parent == here {
                return None;
            }
            names.push(inode.name.as_os_str());
            here = inode.parent;
        }
        names.reverse();
        Some(names)
    }

    /// For statfs.
    pub(super) fn magic(&self) -> u64 {
        use crate::file::FsStats;
        match self.fs_type.as_str() {
            "tmpfs" | "devtmpfs" => FsStats::TMPFS,
            "hugetlbfs" => FsStats::HUGETLBFS,
            "nfs" | "nfs4" => FsStats::NFS,
            "ext2" | "ext3" | "ext4" => 0xef53,
            "xfs" => 0x5846_5342,
            "btrfs" => 0x9123_683e,
            _ => 0x6573_5546,
        }
    }
}
