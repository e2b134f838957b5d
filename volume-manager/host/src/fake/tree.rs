//! File systems of the simulated kernel: inodes, names, owners, modes. Touches nothing real.
//!
//! There are no hard links, so an inode has one name and one directory, and is its dentry as well.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::errno::{self, Errno};
use crate::file::{FileKind, Metadata};
use crate::mount_table::DeviceNumber;

/// Never reused within a file system.
pub(super) type Ino = u64;

/// Root inode of every file system.
pub(super) const ROOT: Ino = 1;

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
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
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
}

#[derive(Debug)]
pub(super) enum Node {
    Dir(BTreeMap<OsString, Ino>),
    File(Vec<u8>),
    Link(PathBuf),
    Device(FileKind, DeviceNumber),
    Socket,
    Fifo,
}

impl Node {
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
            node: Node::Dir(BTreeMap::new()),
            mode: root_mode,
            uid: 0,
            gid: 0,
            parent: ROOT,
            name: OsString::new(),
            linked: true,
            pins: 0,
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
            inodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
        }
    }

    /// Fails if the file system is broken. Called by everything that the real kernel would ask a server or disk.
    pub(super) fn ask(&self) -> Result<(), Errno> {
        self.broken.map_or(Ok(()), Err)
    }

    pub(super) fn inode(&self, ino: Ino) -> &Inode {
        self.inodes.get(&ino).expect("an inode lives while a name, a mount or a descriptor refers to it")
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("an inode lives while a name, a mount or a descriptor refers to it")
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.inode(ino).node, Node::Dir(_))
    }

    pub(super) fn entries(&self, dir: Ino) -> Result<&BTreeMap<OsString, Ino>, Errno> {
        self.ask()?;
        match &self.inode(dir).node {
            Node::Dir(entries) => Ok(entries),
            _ => Err(Errno(errno::ENOTDIR)),
        }
    }

    pub(super) fn look_up(&self, dir: Ino, name: &OsStr) -> Result<Ino, Errno> {
        self.entries(dir)?.get(name).copied().ok_or(Errno(errno::ENOENT))
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
        let ino = self.next;
        let Node::Dir(entries) = &mut self.inode_mut(dir).node else { return Err(Errno(errno::ENOTDIR)) };
        if entries.contains_key(name) {
            return Err(Errno(errno::EEXIST));
        }
        entries.insert(name.to_owned(), ino);
        self.next += 1;
        let name = name.to_owned();
        self.inodes.insert(ino, Inode { node, mode, uid: 0, gid, parent: dir, name, linked: true, pins: 0 });
        Ok(ino)
    }

    /// Removes a file's name, and the inode unless it is pinned.
    pub(super) fn unlink(&mut self, ino: Ino) {
        let inode = self.inode(ino);
        let (dir, name) = (inode.parent, inode.name.clone());
        if let Node::Dir(entries) = &mut self.inode_mut(dir).node {
            entries.remove(&name);
        }
        self.inode_mut(ino).linked = false;
        self.forget(ino);
    }

    /// Renames a file. The new name must be free.
    pub(super) fn relink(&mut self, ino: Ino, dir: Ino, name: &OsStr) {
        let inode = self.inode(ino);
        let (old_dir, old_name) = (inode.parent, inode.name.clone());
        if let Node::Dir(entries) = &mut self.inode_mut(old_dir).node {
            entries.remove(&old_name);
        }
        if let Node::Dir(entries) = &mut self.inode_mut(dir).node {
            entries.insert(name.to_owned(), ino);
        }
        let inode = self.inode_mut(ino);
        inode.parent = dir;
        inode.name = name.to_owned();
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
            self.inodes.remove(&ino);
        }
    }

    pub(super) fn metadata(&self, ino: Ino) -> Result<Metadata, Errno> {
        self.ask()?;
        let inode = self.inode(ino);
        let (nlink, size, rdev) = match &inode.node {
            Node::Dir(entries) => {
                let dirs = entries.values().filter(|below| self.is_dir(**below)).count();
                (2 + dirs as u64, 0, DeviceNumber::default())
            }
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
