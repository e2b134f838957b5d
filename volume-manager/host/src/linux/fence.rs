//! Resolves paths below the node's root without following links, for changes there: a link, which only a driver or a pod
//! can have made, would lead a delete or a write out of the tree. Tells which paths no mount covers. Touches nothing itself.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// A directory below which paths are walked without following links; none where all paths are the caller's own.
#[derive(Debug, Clone, Default)]
pub(super) struct Fence(Option<Arc<Path>>);

impl Fence {
    pub(super) fn around(root: &Path) -> Self {
        Self(Some(root.into()))
    }

    /// The root and the rest of a path below it.
    fn split<'a>(&'a self, path: &'a Path) -> Option<(&'a Path, &'a Path)> {
        let root = self.0.as_deref()?;
        Some((root, path.strip_prefix(root).ok()?))
    }

    /// The directory of `path`, held open, and the name in it. ELOOP where a link is on the way from the root.
    pub(super) fn place(&self, path: &Path) -> Result<Place, Errno> {
        let Some((root, below)) = self.split(path) else { return Ok(Place::plain(path)) };
        let (Some(directory), Some(name)) = (below.parent(), below.file_name()) else {
            return Ok(Place::plain(path));
        };
        let directory = walk(root, directory)?;
        Ok(Place { directory: Some(directory), name: OsString::from(name).into() })
    }

    /// Whether `path`, there or not, is in the file system of the node's root: no link and no mount is on the way from the
    /// root, and none is at it. No server of a volume is asked about such a path. False where the kernel cannot tell.
    pub(super) fn is_own(&self, path: &Path) -> bool {
        let Some((root, below)) = self.split(path).filter(|(_, below)| !below.as_os_str().is_empty()) else {
            return false;
        };
        let Ok(root) = rustix::fs::open(root, DIRECTORY, Mode::empty()) else { return false };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = rustix::fs::openat2(&root, below, flags, Mode::empty(), STAY | ResolveFlags::NO_XDEV);
        matches!(found, Ok(_) | Err(Errno::NOENT))
    }
}

/// A name in a directory that cannot become another one.
pub(super) struct Place {
    /// The working directory, which an absolute name does not ask for.
    directory: Option<OwnedFd>,
    pub(super) name: PathBuf,
}

impl Place {
    fn plain(path: &Path) -> Self {
        Self { directory: None, name: path.to_owned() }
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, |directory| directory.as_fd())
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Follows no link.
const STAY: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn walk(root: &Path, below: &Path) -> Result<OwnedFd, Errno> {
    // The way to the root is the administrator's: it may have links.
    let root = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
    if below.as_os_str().is_empty() {
        return Ok(root);
    }
    loop {
        match rustix::fs::openat2(&root, below, DIRECTORY, Mode::empty(), STAY) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS) => return walk_by_names(root, below),
            other => return other,
        }
    }
}

/// For kernels before 5.6: name by name.
fn walk_by_names(root: OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    below.iter().try_fold(root, |here, name| {
        match rustix::fs::openat(&here, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOTDIR) if is_link(&here, name.as_ref()) => Err(Errno::LOOP),
            other => other,
        }
    })
}

fn is_link(directory: &OwnedFd, name: &Path) -> bool {
    rustix::fs::readlinkat(directory, name, Vec::new()).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree with a directory, `pods/a`, and a link to it, `pods/b`.
    fn tree() -> tempfile::TempDir {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("pods/a/volumes")).unwrap();
        symlink("a", scratch.path().join("pods/b")).unwrap();
        scratch
    }

    #[test]
    fn path_behind_a_link_or_outside_is_not_the_nodes_own() {
        let scratch = tree();
        let root = scratch.path();
        let fence = Fence::around(root);
        for (path, is_own) in [
            ("pods/a", true),
            ("pods/a/new/newer", true),
            ("pods/b", false),
            ("pods/b/new", false),
            ("pods/../pods/a", true),
            ("", false),
            ("/proc", false),
        ] {
            assert_eq!(fence.is_own(&root.join(path)), is_own, "{path}");
        }
        assert!(!Fence::default().is_own(&root.join("pods/a")), "no root is known");
    }

    #[test]
    fn both_walks_refuse_a_link_on_the_way() {
        let scratch = tree();
        let root = scratch.path();
        let open = || rustix::fs::open(root, DIRECTORY, Mode::empty()).unwrap();
        for (below, outcome) in [
            ("pods/a/volumes", Ok(())),
            ("pods/b/volumes", Err(Errno::LOOP)),
            ("pods/b", Err(Errno::LOOP)),
            ("pods/c", Err(Errno::NOENT)),
        ] {
            assert_eq!(walk(root, below.as_ref()).map(drop), outcome, "{below}");
            assert_eq!(walk_by_names(open(), below.as_ref()).map(drop), outcome, "{below}");
        }
    }
}
