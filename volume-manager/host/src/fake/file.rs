//! Directories, files and links of the simulated kernel. Touches nothing real.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::kernel::{FsId, State};
use super::tree::{Ino, Node};
use super::walk::At;
use crate::door::Removal;
use crate::errno::{self, Errno};
use crate::file::{DirEntry, FileKind, FsStats, LARGEST, Usage};

/// The umask of every process here.
const UMASK: u32 = 0o022;

impl State {
    /// EROFS on a read-only mount or file system.
    pub(super) fn writable(&self, at: At) -> Result<(), Errno> {
        let read_only = self.mount(at.mount).flags.read_only || self.fs_of(at.mount).read_only;
        if read_only { Err(Errno(errno::EROFS)) } else { Ok(()) }
    }

    /// ENOENT for a removed directory that a bind still shows: nothing can be created in it.
    fn alive(&self, dir: At) -> Result<(), Errno> {
        let linked = self.fs_of(dir.mount).inode(dir.ino).linked;
        if linked { Ok(()) } else { Err(Errno(errno::ENOENT)) }
    }

    /// Creates a file of any kind. The name must be free, the umask applies to `mode`.
    pub(super) fn create(&mut self, path: &Path, node: Node, mode: u32) -> Result<(), Errno> {
        // A path without a last name is the root or ends in `..`: it exists.
        let Some(name) = path.file_name() else { return Err(Errno(errno::EEXIST)) };
        let parent = self.resolve(path.parent().unwrap_or(Path::new("/")), true)?;
        match self.fs_of(parent.mount).look_up(parent.ino, name) {
            Ok(_) => return Err(Errno(errno::EEXIST)),
            Err(Errno(errno::ENOENT)) => {}
            Err(error) => return Err(error),
        }
        self.alive(parent)?;
        self.writable(parent)?;
        // The umask does not apply to links.
        let mode = if matches!(node, Node::Link(_)) { 0o777 } else { mode & !UMASK };
        self.fs_of_mut(parent.mount).create(parent.ino, name, node, mode).map(drop)
    }

    /// Ignores setuid and setgid, as mkdir does.
    pub(super) fn make_dir(&mut self, path: &Path, mode: u32) -> Result<(), Errno> {
        self.create(path, Node::empty_dir(), mode & 0o1777)
    }

    /// Makes a directory and its missing parents. Returns those that it made, from the top down.
    pub(super) fn make_dir_all(&mut self, path: &Path, mode: u32) -> Result<Vec<PathBuf>, Errno> {
        let mut missing = Vec::new();
        let mut here = path;
        loop {
            match self.make_dir(here, mode) {
                Ok(()) => break,
                Err(Errno(errno::EEXIST)) => {
                    let at = self.resolve(here, true)?;
                    if !self.fs_of(at.mount).is_dir(at.ino) {
                        return Err(Errno(errno::ENOTDIR));
                    }
                    let Some(next) = missing.pop() else { return Ok(Vec::new()) };
                    here = next;
                    self.make_dir(here, mode)?;
                    break;
                }
                Err(Errno(errno::ENOENT)) => {
                    missing.push(here);
                    here = here.parent().ok_or(Errno(errno::ENOENT))?;
                }
                Err(error) => return Err(error),
            }
        }
        let mut made = vec![here.to_owned()];
        while let Some(next) = missing.pop() {
            self.make_dir(next, mode)?;
            made.push(next.to_owned());
        }
        Ok(made)
    }

    /// The inode of a name to remove; its directory must be writable.
    fn going(&self, path: &Path) -> Result<At, Errno> {
        let (parent, _) = self.resolve_parent(path)?;
        self.writable(parent)?;
        self.named(path)
    }

    /// The inode of a name, below any mount on it.
    fn named(&self, path: &Path) -> Result<At, Errno> {
        let (parent, name) = self.resolve_parent(path)?;
        let ino = self.fs_of(parent.mount).look_up(parent.ino, &name)?;
        Ok(At { mount: parent.mount, ino })
    }

    /// Removes a name. mountinfo shows a bind of it as deleted from now on.
    fn unlink(&mut self, fs: FsId, ino: Ino) {
        if self.fs(fs).inode(ino).pins > 0 {
            self.table_changed();
        }
        self.fs_mut(fs).unlink(ino);
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<(), Errno> {
        let at = self.going(path)?;
        let fs = self.fs_of(at.mount);
        if !fs.is_dir(at.ino) {
            return Err(Errno(errno::ENOTDIR));
        }
        if self.is_point(self.mount(at.mount).fs, at.ino) {
            return Err(Errno(errno::EBUSY));
        }
        if !fs.directory(at.ino)?.is_empty() {
            return Err(Errno(errno::ENOTEMPTY));
        }
        self.unlink(self.mount(at.mount).fs, at.ino);
        Ok(())
    }

    /// Removes a file that is no directory, and returns its kind.
    pub(super) fn remove_file(&mut self, path: &Path) -> Result<FileKind, Errno> {
        let at = self.going(path)?;
        let kind = self.fs_of(at.mount).inode(at.ino).node.kind();
        if kind == FileKind::Directory {
            return Err(Errno(errno::EISDIR));
        }
        if self.is_point(self.mount(at.mount).fs, at.ino) {
            return Err(Errno(errno::EBUSY));
        }
        self.unlink(self.mount(at.mount).fs, at.ino);
        Ok(kind)
    }

    /// Removes a tree as far as `removal` permits. The first obstacle is the error, with its path.
    pub(super) fn remove_tree(&mut self, path: &Path, removal: Removal) -> Result<(), (PathBuf, Blocked)> {
        let failed = |error: Errno| (path.to_owned(), Blocked::Os(error));
        let at = match self.named(path) {
            Ok(at) => at,
            Err(Errno(errno::ENOENT | errno::ENOTDIR)) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        if !self.fs_of(at.mount).is_dir(at.ino) {
            if removal == Removal::DirsOnly {
                return Err(failed(Errno(errno::ENOTDIR)));
            }
            return self.remove_file(path).map(drop).map_err(failed);
        }
        let covered = self.cross(at);
        if covered != at && removal != Removal::Everything {
            return Err((path.to_owned(), Blocked::MountPoint));
        }
        let names = match self.fs_of(covered.mount).directory(covered.ino) {
            Ok(directory) => {
                directory.sorted().into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
            }
            Err(error) => return Err(failed(error)),
        };
        let mut first = None;
        for name in names {
            if let Err(error) = self.remove_tree(&path.join(name), removal) {
                first.get_or_insert(error);
            }
        }
        match (first, self.remove_dir(path)) {
            (Some(error), Err(_)) => Err(error),
            (_, Ok(())) => Ok(()),
            (None, Err(error)) => Err(failed(error)),
        }
    }

    pub(super) fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>, Errno> {
        let at = self.resolve(path, true)?;
        let fs = self.fs_of(at.mount);
        let names = fs.directory(at.ino)?.sorted().into_iter();
        Ok(names
            .map(|(name, ino)| DirEntry { name: name.to_owned(), kind: fs.inode(ino).node.kind() })
            .collect())
    }

    pub(super) fn read_file(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        let bytes = self.content(path)?;
        if bytes.len() as u64 > LARGEST { Err(Errno(errno::EFBIG)) } else { Ok(bytes.to_owned()) }
    }

    pub(super) fn read_end(&self, path: &Path, most: u64) -> Result<Vec<u8>, Errno> {
        let bytes = self.content(path)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(bytes[bytes.len().saturating_sub(most)..].to_owned())
    }

    fn content(&self, path: &Path) -> Result<&[u8], Errno> {
        let at = self.resolve(path, true)?;
        let fs = self.fs_of(at.mount);
        fs.ask()?;
        match &fs.inode(at.ino).node {
            Node::File(bytes) => Ok(bytes),
            Node::Dir(_) => Err(Errno(errno::EISDIR)),
            Node::Device(..) | Node::Link(_) | Node::Socket | Node::Fifo => Err(Errno(errno::ENXIO)),
        }
    }

    /// Truncates or creates, then writes.
    pub(super) fn write_file(&mut self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), Errno> {
        match self.resolve(path, false) {
            Ok(at) => {
                let fs = self.fs_of(at.mount);
                fs.ask()?;
                // Other kinds have their own errors below, also on a read-only file system.
                if fs.inode(at.ino).node.kind() == FileKind::File {
                    self.writable(at)?;
                }
                match &mut self.fs_of_mut(at.mount).inode_mut(at.ino).node {
                    Node::File(content) => bytes.clone_into(content),
                    Node::Dir(_) => return Err(Errno(errno::EISDIR)),
                    Node::Link(_) => return Err(Errno(errno::ELOOP)),
                    Node::Device(..) | Node::Socket | Node::Fifo => return Err(Errno(errno::ENXIO)),
                }
                Ok(())
            }
            Err(Errno(errno::ENOENT)) => {
                let (dir, name) = self.resolve_new(self.root_place(), path, &mut 0)?;
                self.alive(dir)?;
                self.writable(dir)?;
                let node = Node::File(bytes.to_owned());
                self.fs_of_mut(dir.mount).create(dir.ino, &name, node, mode & !UMASK).map(drop)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn read_link(&self, path: &Path) -> Result<PathBuf, Errno> {
        let at = self.resolve(path, false)?;
        let fs = self.fs_of(at.mount);
        fs.ask()?;
        match &fs.inode(at.ino).node {
            Node::Link(target) => Ok(target.clone()),
            _ => Err(Errno(errno::EINVAL)),
        }
    }

    /// The checks stand in the kernel's order: the first that fails is the error.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let (old_parent, old_name) = self.resolve_parent(from)?;
        let (parent, name) = self.resolve_parent(to)?;
        if parent.mount != old_parent.mount {
            return Err(Errno(errno::EXDEV));
        }
        self.writable(parent)?;
        let id = self.mount(parent.mount).fs;
        let fs = self.fs(id);
        let old = fs.look_up(old_parent.ino, &old_name)?;
        let there = fs.look_up(parent.ino, &name).ok();
        if fs.is_below(parent.ino, old) {
            return Err(Errno(errno::EINVAL));
        }
        if let Some(there) = there {
            if fs.is_below(old_parent.ino, there) {
                return Err(Errno(errno::ENOTEMPTY));
            }
            if there == old {
                return Ok(());
            }
            match (fs.is_dir(old), fs.is_dir(there)) {
                (true, false) => return Err(Errno(errno::ENOTDIR)),
                (false, true) => return Err(Errno(errno::EISDIR)),
                _ => {}
            }
        }
        if there.is_none() {
            self.alive(parent)?;
        }
        if self.is_point(id, old) || there.is_some_and(|there| self.is_point(id, there)) {
            return Err(Errno(errno::EBUSY));
        }
        if let Some(there) = there {
            if fs.is_dir(there) && !fs.directory(there)?.is_empty() {
                return Err(Errno(errno::ENOTEMPTY));
            }
            self.unlink(id, there);
        }
        self.fs_mut(id).relink(old, parent.ino, &name);
        // The paths of mounts below a renamed directory have changed.
        self.table_changed();
        Ok(())
    }

    pub(super) fn chmod(&mut self, path: &Path, mode: u32) -> Result<(), Errno> {
        let at = self.resolve(path, true)?;
        self.fs_of(at.mount).ask()?;
        self.writable(at)?;
        self.fs_of_mut(at.mount).inode_mut(at.ino).mode = mode & 0o7777;
        Ok(())
    }

    pub(super) fn lchown(&mut self, path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let at = self.resolve(path, false)?;
        self.fs_of(at.mount).ask()?;
        self.writable(at)?;
        self.chown_at(at, uid, gid);
        Ok(())
    }

    /// Changes the owner. That clears setuid and setgid, except of directories.
    pub(super) fn chown_at(&mut self, at: At, uid: Option<u32>, gid: Option<u32>) {
        let inode = self.fs_of_mut(at.mount).inode_mut(at.ino);
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        if inode.node.kind() != FileKind::Directory {
            inode.mode &= !0o6000;
        }
    }

    pub(super) fn statfs(&self, path: &Path) -> Result<FsStats, Errno> {
        let at = self.resolve(path, true)?;
        let fs = self.fs_of(at.mount);
        fs.ask()?;
        let flags = self.mount(at.mount).flags;
        let bits = [
            (flags.read_only || fs.read_only, 0x1),
            (flags.nosuid, 0x2),
            (flags.nodev, 0x4),
            (flags.noexec, 0x8),
            (flags.noatime, 0x400),
            (flags.nodiratime, 0x800),
            (flags.relatime, 0x1000),
        ];
        Ok(FsStats {
            magic: fs.magic(),
            bytes: fs.bytes,
            bytes_free: fs.bytes,
            bytes_available: fs.bytes,
            inodes: 1 << 16,
            inodes_free: 1 << 16,
            flags: bits.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum(),
        })
    }

    /// Everything at and below a place, children before their directory; across mounts if `cross`.
    pub(super) fn tree_below(&self, at: At, cross: bool) -> Result<Vec<At>, Errno> {
        let mut places = Vec::new();
        let mut todo = vec![(at, false)];
        while let Some((at, done)) = todo.pop() {
            let fs = self.fs_of(at.mount);
            if done || !fs.is_dir(at.ino) {
                places.push(at);
                continue;
            }
            todo.push((at, true));
            for (_, ino) in fs.directory(at.ino)?.sorted().into_iter().rev() {
                let below = At { mount: at.mount, ino };
                let shown = self.cross(below);
                if cross || shown == below {
                    todo.push((shown, false));
                }
            }
        }
        Ok(places)
    }

    pub(super) fn disk_usage(&self, path: &Path) -> Result<Usage, Errno> {
        let at = self.resolve(path, false)?;
        let mut usage = Usage::default();
        for place in self.tree_below(at, false)? {
            usage.inodes += 1;
            usage.bytes += self.fs_of(place.mount).metadata(place.ino)?.size.next_multiple_of(4096);
        }
        Ok(usage)
    }

    /// Makes the missing directories of a path below `base`, each with exactly `mode`, and returns their paths
    /// relative to `base`.
    pub(super) fn make_dirs_beneath(
        &mut self,
        base: At,
        names: &[&OsStr],
        mode: u32,
    ) -> Result<Vec<PathBuf>, Errno> {
        let (mut made, mut walked, mut here) = (Vec::new(), PathBuf::new(), base);
        for name in names {
            walked.push(name);
            here = match self.resolve_beneath(base, &walked) {
                Ok(next) if !self.fs_of(next.mount).is_dir(next.ino) => return Err(Errno(errno::ENOTDIR)),
                Ok(next) => next,
                Err(Errno(errno::ENOENT)) => {
                    made.push(walked.clone());
                    At { mount: here.mount, ino: self.make_dir_at(here, name, mode)? }
                }
                Err(error) => return Err(error),
            };
        }
        Ok(made)
    }

    fn make_dir_at(&mut self, dir: At, name: &OsStr, mode: u32) -> Result<Ino, Errno> {
        self.alive(dir)?;
        self.writable(dir)?;
        let fs = self.fs_of_mut(dir.mount);
        let made = fs.create(dir.ino, name, Node::empty_dir(), mode);
        // EEXIST: a dangling link has the name.
        let ino =
            made.map_err(|error| if error.0 == errno::EEXIST { Errno(errno::ENOTDIR) } else { error })?;
        fs.inode_mut(ino).mode = mode & 0o7777;
        Ok(ino)
    }
}

/// The obstacle to the removal of a tree.
#[derive(Debug)]
pub(super) enum Blocked {
    Os(Errno),
    MountPoint,
}
