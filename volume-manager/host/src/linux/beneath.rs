//! Paths below a directory whose content belongs to a pod. The pod may swap links at any moment, so paths are
//! resolved by `openat2`, which resolves and checks in one step. Touches the file system and the mount table.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use super::file;
use crate::door::OpenedBeneath;
use crate::effect::Effect;
use crate::error::{Action, HostError, Result};
use crate::sub_path::{names, refusal};

/// Opens `sub` below `base` as a path only (`O_PATH`), and holds it.
pub(super) fn open_beneath(base: &Path, sub: &Path) -> Result<OpenedBeneath> {
    names(base, sub)?;
    let dir = open_base(base)?;
    let found = step(dir.as_fd(), sub, OFlags::PATH).map_err(|error| refusal(base, sub, error))?;
    let found = std::fs::File::from(found);
    let failed = |error| HostError::os(Action::Stat, base.join(sub), error);
    let metadata = file::describe(&found.metadata().map_err(failed)?);
    let shown = rustix::path::DecInt::from_fd(&found);
    let link = Path::new("/proc/thread-self/fd").join(shown.as_ref() as &Path);
    // For texts only. Without /proc they show the requested path.
    let path = std::fs::read_link(link).unwrap_or_else(|_| base.join(sub));
    Ok(OpenedBeneath::new(metadata, path, Arc::new(OwnedFd::from(found))))
}

/// Binds the opened file. No path of the pod's is resolved again.
pub(super) fn bind_opened(opened: &OpenedBeneath, target: &Path) -> Result<()> {
    let failed = |error| HostError::pair(Action::Bind, &opened.path, target, error);
    let held: &OwnedFd = opened.handle().ok_or_else(|| failed(Errno::BADF))?;
    let place = open_target(target).map_err(failed)?;
    // mount(2) answers ENOTDIR if only one of them is a directory; the newer calls do not.
    if place.is_dir != opened.metadata.is_dir() {
        return Err(failed(Errno::NOTDIR));
    }
    attach(held.as_fd(), place.fd.as_fd()).map_err(failed)?;
    Effect::new("bind", target).source(&opened.path).announce();
    Ok(())
}

struct Target {
    fd: OwnedFd,
    is_dir: bool,
}

/// Opens the target of a bind. A symbolic link is refused: the mount would cover the link itself, and a path
/// through the link would not reach it.
fn open_target(target: &Path) -> Result<Target, Errno> {
    let fd = rustix::fs::open(target, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
        FileType::Symlink => Err(Errno::INVAL),
        kind => Ok(Target { fd, is_dir: kind == FileType::Directory }),
    }
}

fn attach(held: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    match rustix::mount::open_tree(held, "", flags) {
        Ok(tree) => {
            let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            rustix::mount::move_mount(&tree, "", target, "", both)
        }
        // Kernels before 5.2. Links in /proc/…/fd lead to the open files, even if they were renamed.
        Err(Errno::NOSYS) => {
            let link = |fd: BorrowedFd<'_>| {
                let number = rustix::path::DecInt::from_fd(fd);
                Path::new("/proc/thread-self/fd").join(number.as_ref() as &Path)
            };
            rustix::mount::mount_bind(link(held), link(target))
        }
        Err(error) => Err(error),
    }
}

/// Makes the missing directories of `sub` below `base`, each with exactly `mode`.
pub(super) fn make_dirs_beneath(base: &Path, sub: &Path, mode: &u32) -> Result<()> {
    let names = names(base, sub)?;
    let dir = open_base(base)?;
    let directory = OFlags::PATH | OFlags::DIRECTORY;
    match step(dir.as_fd(), sub, directory) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(refusal(base, sub, error)),
    }
    let mut walked = PathBuf::new();
    let mut here =
        dir.as_fd().try_clone_to_owned().map_err(|error| HostError::os(Action::Open, base, error))?;
    for name in names {
        walked.push(name);
        // From the base each time, so that a link may lead sideways but never out.
        here = match step(dir.as_fd(), &walked, directory) {
            Ok(next) => next,
            Err(Errno::NOENT) => make_dir(here.as_fd(), name, *mode, &base.join(&walked))?,
            Err(error) => return Err(refusal(base, &walked, error)),
        };
    }
    Ok(())
}

/// Makes a directory below an opened one and opens it.
fn make_dir(parent: BorrowedFd<'_>, name: &OsStr, mode: u32, path: &Path) -> Result<OwnedFd> {
    let failed = |error: Errno| match error {
        Errno::LOOP | Errno::EXIST => HostError::os(Action::MakeDir, path, Errno::NOTDIR),
        error => HostError::os(Action::MakeDir, path, error),
    };
    let mode = Mode::from_bits_retain(mode & 0o7777);
    rustix::fs::mkdirat(parent, name, mode).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(failed)?;
    // After mkdir, which applies the umask and drops setgid.
    rustix::fs::fchmod(&made, mode).map_err(failed)?;
    Effect::new("mkdir", path).announce();
    Ok(made)
}

fn open_base(base: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(base, flags, Mode::empty()).map_err(|error| HostError::os(Action::Open, base, error))
}

/// Opens `sub` in one resolution that cannot leave `dir`, even if directories are renamed meanwhile.
fn step(dir: BorrowedFd<'_>, sub: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let sub = if sub.as_os_str().is_empty() { Path::new(".") } else { sub };
    loop {
        match rustix::fs::openat2(dir, sub, flags | OFlags::CLOEXEC, Mode::empty(), stay) {
            // A rename during the walk: the kernel cannot prove that the path stayed below.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}
