//! Resolves paths below the node's root without following links, for changes there: a link, which only a driver or a pod
//! can have made, would lead a delete or a write out of the tree. Tells which paths no mount covers. Makes directories, and
//! touches nothing else.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::statmount::UNIQUE_ID;

/// A directory below which paths are walked without following links; none where all paths are the caller's own.
#[derive(Debug, Clone, Default)]
pub(super) struct Fence(Option<Arc<Root>>);

#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// The path without links, once it was asked for.
    resolved: OnceLock<PathBuf>,
    /// The directory, held open from the last time.
    held: Mutex<Option<(Identity, Arc<OwnedFd>)>>,
}

/// Tells directories apart, and mounts of the same one: device, inode and mount. What is held open keeps its numbers.
type Identity = (u32, u32, u64, u64);

impl Root {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), resolved: OnceLock::new(), held: Mutex::default() }
    }

    /// The directory that is at the path now. A look whether it is the one that is held takes a third of what opening it
    /// takes. The way to the root is the administrator's: it may have links.
    fn open(&self) -> Result<Arc<OwnedFd>, Errno> {
        let there = identity(&self.path)?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((identity, directory)) = &*held
            && there == Some(*identity)
        {
            return Ok(Arc::clone(directory));
        }
        let directory = Arc::new(rustix::fs::open(&self.path, DIRECTORY, Mode::empty())?);
        *held = identity_of(&directory)?.map(|identity| (identity, Arc::clone(&directory)));
        Ok(directory)
    }

    fn resolved(&self) -> Option<&Path> {
        if self.resolved.get().is_none() {
            // Another thread that was faster has the same path.
            let _ = self.resolved.set(std::fs::canonicalize(&self.path).ok()?);
        }
        self.resolved.get().map(PathBuf::as_path)
    }
}

impl Fence {
    pub(super) fn around(root: &Path) -> Self {
        Self(Some(Arc::new(Root::new(root))))
    }

    /// The root and the rest of a path below it.
    fn split<'a>(&'a self, path: &'a Path) -> Option<(&'a Root, &'a Path)> {
        let root = self.0.as_deref()?;
        Some((root, path.strip_prefix(&root.path).ok()?))
    }

    /// As [`Self::split`], for a path that is plainly below the root: without `..`, without a slash at its end, which
    /// follows a link, and not the root itself, which may be a mount.
    fn split_below<'a>(&'a self, path: &'a Path) -> Option<(&'a Root, &'a Path)> {
        let (root, below) = self.split(path)?;
        let bytes = |path: &'a Path| path.as_os_str().as_encoded_bytes();
        let is_plain = bytes(path).ends_with(bytes(below))
            && below.components().all(|part| matches!(part, Component::Normal(_)));
        (is_plain && !below.as_os_str().is_empty()).then_some((root, below))
    }

    /// The directory of `path`, held open, and the name in it. ELOOP where a link is on the way from the root.
    pub(super) fn place(&self, path: &Path) -> Result<Place, Errno> {
        let Some((root, below)) = self.split(path) else { return Ok(Place::plain(path)) };
        let (Some(directory), Some(name)) = (below.parent(), below.file_name()) else {
            return Ok(Place::plain(path));
        };
        Ok(Place::named(walk(root, directory)?, name))
    }

    /// As [`Self::place`], if no link and no mount is on the way from the root: no server of a volume is asked about a name
    /// there. ENOENT where a directory is missing. `None` for any other path, and where the kernel cannot tell.
    pub(super) fn own_place(&self, path: &Path) -> Option<Result<Place, Errno>> {
        let (root, below) = self.split_below(path)?;
        let (directory, name) = (below.parent()?, below.file_name()?);
        answered(own(root.open().ok()?, directory, DIRECTORY).map(|directory| Place::named(directory, name)))
    }

    /// Opens what is at `path`, if no link and no mount is on the way from the root, and none is there. ENOENT where it is
    /// missing. `None` for any other path, and where the kernel cannot tell or refuses.
    pub(super) fn open_own(&self, path: &Path, flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
        let (root, below) = self.split_below(path)?;
        answered(own(root.open().ok()?, below, flags))
    }

    /// As [`Self::open_own`], with the mode of a file that the flags let the kernel make.
    pub(super) fn open_or_make_own(
        &self,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Option<Result<OwnedFd, Errno>> {
        let (root, below) = self.split_below(path)?;
        answered(own_or_made(root.open().ok()?, below, flags, mode))
    }

    /// Opens the deepest directory on the way to `path` that is there. `None` if a link or a mount is on the way, or what is
    /// no directory.
    pub(super) fn own_descent<'a>(&'a self, path: &'a Path) -> Option<Descent<'a>> {
        let (root, below) = self.split_below(path)?;
        let root_directory = root.open().ok()?;
        let mut here = below;
        loop {
            match own(&root_directory, here, DIRECTORY) {
                Ok(directory) => {
                    let missing = below.strip_prefix(here).ok()?;
                    return Some(Descent { directory, path: root.path.join(here), missing });
                }
                Err(Errno::NOENT) => here = here.parent()?,
                Err(_) => return None,
            }
        }
    }

    /// The path without links of what is at `path`, where [`Self::open_own`] opens it.
    pub(super) fn resolve_own(&self, path: &Path) -> Option<Result<PathBuf, Errno>> {
        let (_, below) = self.split_below(path)?;
        let opened = self.open_own(path, OFlags::PATH)?;
        let mut resolved = self.0.as_ref()?.resolved()?.to_owned();
        resolved.extend(below);
        Some(opened.map(|_| resolved))
    }

    /// Whether a mount is at `path`, and no link and no other mount on the way from the root. Does not enter it.
    pub(super) fn is_own_mount_point(&self, path: &Path) -> bool {
        let Some(Ok(place)) = self.own_place(path) else { return false };
        own(place.directory(), &place.name, OFlags::PATH | OFlags::NOFOLLOW).err() == Some(Errno::XDEV)
    }

    /// Whether `path`, there or not, is in the file system of the node's root: no link and no mount is on the way from the
    /// root, and none is at it. No server of a volume is asked about such a path. False where the kernel cannot tell.
    pub(super) fn is_own(&self, path: &Path) -> bool {
        self.open_own(path, OFlags::PATH).is_some()
    }
}

/// A way down of which no part is a link or on another mount.
pub(super) struct Descent<'a> {
    /// The deepest directory that is there.
    directory: OwnedFd,
    path: PathBuf,
    missing: &'a Path,
}

impl Descent<'_> {
    /// Makes what is missing, and calls `made` for each directory. `None` where another process has put something else in
    /// the way.
    pub(super) fn make(mut self, mode: Mode, mut made: impl FnMut(&Path)) -> Option<Result<(), Errno>> {
        let mut names = self.missing.iter().peekable();
        while let Some(name) = names.next() {
            self.path.push(name);
            match rustix::fs::mkdirat(&self.directory, name, mode) {
                Ok(()) => {
                    made(&self.path);
                    if names.peek().is_none() {
                        break;
                    }
                }
                // Another process may have made it in the meantime.
                Err(Errno::EXIST) => {}
                Err(error) => return Some(Err(error)),
            }
            self.directory = own(&self.directory, name.as_ref(), DIRECTORY).ok()?;
        }
        Some(Ok(()))
    }
}

/// `None` where the kernel does not number mounts.
fn identity(root: &Path) -> Result<Option<Identity>, Errno> {
    identified(rustix::fs::statx(CWD, root, AtFlags::STATX_DONT_SYNC, IDENTITY))
}

fn identity_of(directory: &OwnedFd) -> Result<Option<Identity>, Errno> {
    identified(rustix::fs::statx(directory, "", AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH, IDENTITY))
}

const IDENTITY: StatxFlags = StatxFlags::INO.union(UNIQUE_ID);

fn identified(seen: Result<rustix::fs::Statx, Errno>) -> Result<Option<Identity>, Errno> {
    match seen {
        Ok(seen) => {
            let is_whole = StatxFlags::from_bits_retain(seen.stx_mask).contains(IDENTITY);
            let identity = (seen.stx_dev_major, seen.stx_dev_minor, seen.stx_ino, seen.stx_mnt_id);
            Ok(is_whole.then_some(identity))
        }
        Err(Errno::NOSYS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a path below the root of which no part is a link or on another mount.
fn own(directory: impl AsFd, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    own_or_made(directory, below, flags, Mode::empty())
}

fn own_or_made(directory: impl AsFd, below: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(directory, below, flags | OFlags::CLOEXEC, mode, STAY | ResolveFlags::NO_XDEV)
}

/// The answers that leave no doubt.
fn answered<T>(opened: Result<T, Errno>) -> Option<Result<T, Errno>> {
    match opened {
        Ok(_) | Err(Errno::NOENT) => Some(opened),
        Err(_) => None,
    }
}

/// A name in a directory that cannot become another one.
pub(super) struct Place {
    /// The working directory, which an absolute name does not ask for.
    directory: Option<Arc<OwnedFd>>,
    pub(super) name: PathBuf,
}

impl Place {
    fn named(directory: impl Into<Arc<OwnedFd>>, name: &OsStr) -> Self {
        Self { directory: Some(directory.into()), name: name.into() }
    }

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

fn walk(root: &Root, below: &Path) -> Result<Arc<OwnedFd>, Errno> {
    let root = root.open()?;
    if below.as_os_str().is_empty() {
        return Ok(root);
    }
    loop {
        match rustix::fs::openat2(&root, below, DIRECTORY, Mode::empty(), STAY) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS) => return walk_by_names(root, below),
            other => return other.map(Arc::new),
        }
    }
}

/// For kernels before 5.6: name by name.
fn walk_by_names(root: Arc<OwnedFd>, below: &Path) -> Result<Arc<OwnedFd>, Errno> {
    below.iter().try_fold(root, |here, name| {
        match rustix::fs::openat(&here, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOTDIR) if is_link(&here, name.as_ref()) => Err(Errno::LOOP),
            other => other.map(Arc::new),
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
            ("pods/../pods/a", false),
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
        let fenced = Root::new(root);
        for (below, outcome) in [
            ("pods/a/volumes", Ok(())),
            ("pods/b/volumes", Err(Errno::LOOP)),
            ("pods/b", Err(Errno::LOOP)),
            ("pods/c", Err(Errno::NOENT)),
        ] {
            assert_eq!(walk(&fenced, below.as_ref()).map(drop), outcome, "{below}");
            assert_eq!(walk_by_names(fenced.open().unwrap(), below.as_ref()).map(drop), outcome, "{below}");
        }
    }

    #[test]
    fn root_that_was_replaced_is_opened_again() {
        let scratch = tree();
        let path = scratch.path().join("pods");
        let root = Root::new(&path);
        let number = |directory: Arc<OwnedFd>| rustix::fs::fstat(&*directory).unwrap().st_ino;
        let before = number(root.open().unwrap());
        assert_eq!(number(root.open().unwrap()), before);
        fs::rename(&path, scratch.path().join("old")).unwrap();
        assert_eq!(root.open().map(drop), Err(Errno::NOENT));
        fs::create_dir(&path).unwrap();
        assert_ne!(number(root.open().unwrap()), before);
    }
}
