//! Path resolution of the simulated kernel. Touches nothing real.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use super::kernel::State;
use super::mount::MountId;
use super::tree::{Filesystem, Ino, Node};
use crate::errno::{self, Errno};
use crate::file::FileKind;

/// A place: an inode as a certain mount shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) mount: MountId,
    pub(super) ino: Ino,
}

/// Options of a resolution.
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// Whether to follow a final link.
    follow: bool,
    /// The place that the path must not leave.
    beneath: Option<At>,
}

/// The kernel's limit of links in a resolution.
const MOST_LINKS: u32 = 40;

impl State {
    /// The place of a path. `follow`: whether to follow a final link.
    pub(super) fn resolve(&self, path: &Path, follow: bool) -> Result<At, Errno> {
        if !path.is_absolute() {
            return Err(Errno(errno::EINVAL));
        }
        self.walk(self.root_place(), path, Walk { follow, beneath: None }, &mut 0)
    }

    /// ENOTDIR unless the path is a directory.
    pub(super) fn resolve_dir(&self, path: &Path) -> Result<At, Errno> {
        let at = self.resolve(path, true)?;
        let is_dir = self.fs_of(at.mount).is_dir(at.ino);
        if is_dir { Ok(at) } else { Err(Errno(errno::ENOTDIR)) }
    }

    /// The place of a path that must not leave `base` (EXDEV).
    pub(super) fn resolve_beneath(&self, base: At, sub: &Path) -> Result<At, Errno> {
        self.walk(base, sub, Walk { follow: true, beneath: Some(base) }, &mut 0)
    }

    /// The directory of a path's last name, and the name. EBUSY if the path does not end in a name.
    pub(super) fn resolve_parent(&self, path: &Path) -> Result<(At, OsString), Errno> {
        let name = path.file_name().ok_or(Errno(errno::EBUSY))?;
        let parent = self.resolve(path.parent().unwrap_or(Path::new("/")), true)?;
        if !self.fs_of(parent.mount).is_dir(parent.ino) {
            return Err(Errno(errno::ENOTDIR));
        }
        Ok((parent, name.to_owned()))
    }

    /// The place where open(2) would create a missing file: a dangling final link is followed.
    pub(super) fn resolve_new(
        &self,
        from: At,
        path: &Path,
        links: &mut u32,
    ) -> Result<(At, OsString), Errno> {
        let how = Walk { follow: true, beneath: None };
        let name = path.file_name().ok_or(Errno(errno::EISDIR))?;
        let dir = self.walk(from, path.parent().unwrap_or(Path::new("/")), how, links)?;
        let fs = self.fs_of(dir.mount);
        match fs.look_up(dir.ino, name) {
            Ok(ino) => match &fs.inode(ino).node {
                Node::Link(_) if *links > MOST_LINKS => Err(Errno(errno::ELOOP)),
                Node::Link(target) => {
                    *links += 1;
                    self.resolve_new(dir, target, links)
                }
                _ => Err(Errno(errno::EEXIST)),
            },
            Err(Errno(errno::ENOENT)) => Ok((dir, name.to_owned())),
            Err(error) => Err(error),
        }
    }

    /// The root of the tree, below any mount over it: a process keeps its root.
    pub(super) fn root_place(&self) -> At {
        let root = self.root_mount();
        At { mount: root, ino: self.mount(root).root }
    }

    fn walk(&self, from: At, path: &Path, how: Walk, links: &mut u32) -> Result<At, Errno> {
        let mut at = from;
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            match component {
                Component::CurDir | Component::Prefix(_) => {}
                Component::RootDir if how.beneath.is_some() => return Err(Errno(errno::EXDEV)),
                Component::RootDir => at = self.root_place(),
                Component::ParentDir if how.beneath == Some(at) => return Err(Errno(errno::EXDEV)),
                Component::ParentDir => at = self.up(at)?,
                Component::Normal(name) => {
                    let last = components.peek().is_none();
                    at = self.down(at, name, !last || how.follow, how, links)?;
                }
            }
        }
        Ok(at)
    }

    fn down(&self, at: At, name: &OsStr, follow: bool, how: Walk, links: &mut u32) -> Result<At, Errno> {
        let fs = self.fs_of(at.mount);
        let ino = fs.look_up(at.ino, name)?;
        match &fs.inode(ino).node {
            Node::Link(target) if follow => {
                *links += 1;
                if *links > MOST_LINKS {
                    return Err(Errno(errno::ELOOP));
                }
                self.walk(at, target, Walk { follow: true, ..how }, links)
            }
            _ => Ok(self.cross(At { mount: at.mount, ino })),
        }
    }

    fn up(&self, at: At) -> Result<At, Errno> {
        if !self.fs_of(at.mount).is_dir(at.ino) {
            return Err(Errno(errno::ENOTDIR));
        }
        let mut at = at;
        while at.ino == self.mount(at.mount).root {
            let mount = self.mount(at.mount);
            if mount.parent == at.mount {
                return Ok(at);
            }
            at = At { mount: mount.parent, ino: mount.point };
        }
        let parent = self.fs_of(at.mount).inode(at.ino).parent;
        Ok(self.cross(At { mount: at.mount, ino: parent }))
    }

    /// The root of the topmost mount at a place; the place itself if nothing is mounted there.
    pub(super) fn cross(&self, at: At) -> At {
        let mut at = at;
        while let Some(child) = self.child_at(at) {
            at = At { mount: child, ino: self.mount(child).root };
        }
        at
    }

    /// The path of a place as the kernel prints it.
    pub(super) fn path_of(&self, at: At) -> PathBuf {
        let mut names: Vec<&OsStr> = Vec::new();
        let mut at = at;
        loop {
            let mount = self.mount(at.mount);
            let below = self.fs_of(at.mount).names_below(at.ino, mount.root).unwrap_or_default();
            names.extend(below.into_iter().rev());
            if mount.parent == at.mount {
                break;
            }
            at = At { mount: mount.parent, ino: mount.point };
        }
        let mut path = PathBuf::from("/");
        path.extend(names.into_iter().rev());
        path
    }

    pub(super) fn kind_at(&self, at: At) -> FileKind {
        self.fs_of(at.mount).inode(at.ino).node.kind()
    }

    pub(super) fn fs_of(&self, mount: MountId) -> &Filesystem {
        self.fs(self.mount(mount).fs)
    }

    pub(super) fn fs_of_mut(&mut self, mount: MountId) -> &mut Filesystem {
        let fs = self.mount(mount).fs;
        self.fs_mut(fs)
    }
}
