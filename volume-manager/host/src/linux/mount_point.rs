//! Whether a path is a mount point, and which mount shows it. Touches nothing; reads the mount table.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::{file, statmount};
use crate::error::{Action, HostError, Result};
use crate::mount_table::{MountEntry, MountTable};

const MOUNTINFO: &str = "/proc/thread-self/mountinfo";

/// The most readings of a table that changes while it is read.
const TRIES: usize = 10;

pub(super) fn table() -> Result<MountTable> {
    let read =
        || fs::read(MOUNTINFO).map_err(|error| HostError::os(Action::ReadMountTable, MOUNTINFO, error));
    Ok(MountTable::parse(&consistent(read, super::probe::kernel_version())?)?)
}

/// Reads the table once where the kernel gives it whole. Before 5.8, a mount that vanishes during the read can
/// hide others, so two readings in a row must agree. If they never do, the error is EBUSY, which is no error of
/// a dead mount: callers must not take a path for dead because the table could not be read.
fn consistent(mut read: impl FnMut() -> Result<Vec<u8>>, kernel: (u32, u32)) -> Result<Vec<u8>> {
    let mut text = read()?;
    if kernel >= (5, 8) {
        return Ok(text);
    }
    for _ in 0..TRIES {
        let again = read()?;
        if again == text {
            return Ok(text);
        }
        text = again;
    }
    Err(HostError::os(Action::ReadMountTable, MOUNTINFO, Errno::BUSY))
}

/// The mount that shows `path`.
pub(super) fn mount_of(path: &Path) -> Result<MountEntry> {
    if let Some(entry) = statmount::mount_of(path)? {
        return Ok(entry);
    }
    mount_in_table(path)
}

/// As [`mount_of`], by the table.
fn mount_in_table(path: &Path) -> Result<MountEntry> {
    let resolved = file::canonicalize(path)?;
    let missing = || HostError::os(Action::Stat, path, Errno::NOENT);
    table()?.containing(&resolved).cloned().ok_or_else(missing)
}

/// Whether statx says that `path` is the root of a mount, following a final link.
pub(super) fn is_likely(path: &Path) -> Result<bool> {
    likely(path, AtFlags::empty()).map_err(|error| HostError::os(Action::Stat, path, error))
}

/// As [`is_likely`] without following a final link: a link is no mount.
pub(super) fn is_root_of_mount(path: &Path) -> Result<bool, Errno> {
    likely(path, AtFlags::SYMLINK_NOFOLLOW)
}

fn likely(path: &Path, flags: AtFlags) -> Result<bool, Errno> {
    let flags = flags | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    match rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE) {
        Ok(stat) if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
        }
        Ok(_) | Err(Errno::NOSYS) => has_other_device_than_parent(path),
        Err(error) => Err(error),
    }
}

/// The check without statx. It does not see bind mounts of the parent's file system.
fn has_other_device_than_parent(path: &Path) -> Result<bool, Errno> {
    let own = rustix::fs::stat(path)?;
    let parent = rustix::fs::stat(path.join(".."))?;
    Ok(own.st_dev != parent.st_dev || own.st_ino == parent.st_ino)
}

/// Whether `path` is a mount point, with certainty.
pub(super) fn is_certain(path: &Path) -> Result<bool> {
    if path == Path::new("/") {
        return Ok(true);
    }
    let resolved = match file::canonicalize(path) {
        Ok(resolved) => resolved,
        // Root on an export with root_squash may not look, and the table still has the mount.
        Err(error) if error.is_permission_denied() => return is_in_table(path),
        Err(error) => return Err(error),
    };
    match crosses_a_mount(&resolved) {
        Ok(crosses) => Ok(crosses),
        Err(_) if has_other_device_than_parent(&resolved) == Ok(true) => Ok(true),
        Err(_) => is_in_table(&resolved),
    }
}

/// Lets the kernel walk onto the path with `RESOLVE_NO_XDEV`: for a mount point that fails with EXDEV.
fn crosses_a_mount(resolved: &Path) -> Result<bool, Errno> {
    let (parent, name) = match (resolved.parent(), resolved.file_name()) {
        (Some(parent), Some(name)) => (parent, name),
        _ => return Ok(true),
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let parent = rustix::fs::open(parent, flags | OFlags::DIRECTORY, Mode::empty())?;
    let step = |name: &OsStr| {
        rustix::fs::openat2(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::NO_XDEV)
    };
    match step(name) {
        Ok(_) => Ok(false),
        Err(Errno::XDEV) => Ok(true),
        Err(error) => Err(error),
    }
}

fn is_in_table(path: &Path) -> Result<bool> {
    Ok(table()?.at(path).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno;

    /// The result for a table that gives `readings` in order and then its last one for ever, and the number of
    /// reads.
    fn read(readings: &[&str], kernel: (u32, u32)) -> (Result<String, Option<i32>>, usize) {
        let mut times = 0;
        let next = || {
            let reading = readings.get(times).or(readings.last()).unwrap();
            times += 1;
            match reading.is_empty() {
                true => Err(HostError::os(Action::ReadMountTable, MOUNTINFO, Errno::IO)),
                false => Ok(reading.as_bytes().to_vec()),
            }
        };
        let text = consistent(next, kernel).map(|text| String::from_utf8(text).unwrap());
        (text.map_err(|error| error.errno()), times)
    }

    #[test]
    fn old_kernels_table_is_read_until_two_readings_agree() {
        let (old, whole) = ((5, 7), (5, 8));
        let ever_new: Vec<String> = (0..20).map(|reading| reading.to_string()).collect();
        let ever_new: Vec<&str> = ever_new.iter().map(String::as_str).collect();
        let lately = [&ever_new[..10], &ever_new[9..10]].concat();
        for (readings, kernel, text, times) in [
            (&["a", "b"][..], whole, Ok("a"), 1),
            (&["a"], old, Ok("a"), 2),
            (&["a", "b", "b"], old, Ok("b"), 3),
            (&["a", "b", "a", "a"], old, Ok("a"), 4),
            (&lately, old, Ok("9"), 11),
            (&ever_new, old, Err(Some(errno::EBUSY)), 11),
            (&["a", ""], old, Err(Some(errno::EIO)), 2),
            (&[""], whole, Err(Some(errno::EIO)), 1),
        ] {
            assert_eq!(read(readings, kernel), (text.map(str::to_owned), times), "{readings:?} {kernel:?}");
        }
    }

    #[test]
    fn unreadable_table_is_no_error_of_a_dead_mount() {
        let mut readings = 0_u8..;
        let error = consistent(|| Ok(readings.by_ref().take(1).collect()), (4, 19)).unwrap_err();
        assert!(!error.is_corrupted_mount() && !error.is_not_found() && !error.is_permission_denied());
        assert_eq!(error.to_string(), "cannot read the mount table from `/proc/thread-self/mountinfo`");
    }

    /// The fallbacks for older kernels are called on this kernel too.
    #[test]
    fn fallbacks_of_old_kernels_agree_with_statx() {
        let scratch = tempfile::tempdir().unwrap();
        let plain = scratch.path().join("plain");
        fs::create_dir(&plain).unwrap();
        for (path, expected) in [(Path::new("/"), true), (Path::new("/proc"), true), (&plain, false)] {
            let shown = path.display();
            assert_eq!(is_likely(path).unwrap(), expected, "{shown}");
            assert_eq!(has_other_device_than_parent(path).unwrap(), expected, "{shown}");
            assert_eq!(is_in_table(&fs::canonicalize(path).unwrap()).unwrap(), expected, "{shown}");
            let (one, listed) = (mount_of(path).unwrap(), mount_in_table(path).unwrap());
            assert_eq!((one.id, one.mount_point), (listed.id, listed.mount_point), "{shown}");
        }
    }
}
