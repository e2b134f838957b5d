//! Does an act to a real file, the way an application would.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;

use super::act::{Act, How};

pub(super) fn perform(act: &Act, root: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = root.join(act.file());
    path.parent().map(fs::create_dir_all).transpose()?;
    match act {
        Act::Write { at, how, .. } => write(&path, *at, bytes, *how),
        Act::Append { .. } => OpenOptions::new().append(true).open(&path)?.write_all(bytes),
        Act::Cut { length, .. } => OpenOptions::new().write(true).open(&path)?.set_len(*length),
        Act::Punch { at, length, .. } => {
            let file = OpenOptions::new().write(true).open(&path)?;
            let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            let [at, length] = [*at, *length].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
            Ok(fallocate(&file, hole, at, length)?)
        }
        Act::Copy { from, at, length, .. } => copy(&root.join(from), &path, *at, *length),
        Act::Rename { from, .. } => fs::rename(root.join(from), &path),
        Act::Link { from, .. } => fs::hard_link(root.join(from), &path),
        Act::Symlink { target, .. } => std::os::unix::fs::symlink(target, &path),
        Act::Unlink { .. } => unlink_open(&path),
        Act::Mode { mode, .. } => fs::set_permissions(&path, fs::Permissions::from_mode(*mode)),
        Act::Time { seconds, .. } => {
            let time = TimeSpec::new(*seconds, 0);
            Ok(utimensat(nix::fcntl::AT_FDCWD, &path, &time, &time, UtimensatFlags::NoFollowSymlink)?)
        }
        Act::Attribute { key, .. } => set_attribute(&path, key, bytes),
    }
}

fn write(path: &Path, at: u64, bytes: &[u8], how: How) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o640);
    match how {
        How::Plain => options.open(path)?.write_all_at(bytes, at),
        How::Sync => options.custom_flags(libc::O_SYNC).open(path)?.write_all_at(bytes, at),
        How::Direct => match options.clone().custom_flags(libc::O_DIRECT).open(path) {
            Ok(file) => write_aligned(&file, at, bytes),
            // The file system has no direct I/O.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                options.open(path)?.write_all_at(bytes, at)
            }
            Err(error) => Err(error),
        },
        How::Mapped => write_mapped(&options.open(path)?, at, bytes),
    }
}

/// Writes from memory at a page's start, which the kernel asks of direct I/O.
fn write_aligned(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    const PAGE: usize = 4096;
    let mut room = vec![0_u8; bytes.len() + PAGE];
    let start = room.as_ptr().align_offset(PAGE);
    room[start..start + bytes.len()].copy_from_slice(bytes);
    file.write_all_at(&room[start..start + bytes.len()], at)
}

fn write_mapped(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let end = at + bytes.len() as u64;
    if file.metadata()?.len() < end {
        file.set_len(end)?;
    }
    let length = usize::try_from(end).unwrap_or(usize::MAX);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is open during the call.
    let mapped =
        unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is `length` bytes long, which is `at` and all of `bytes`, and nothing else has its address.
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            mapped.cast::<u8>().add(length - bytes.len()),
            bytes.len(),
        );
    }
    // SAFETY: it is the mapping that was just made, and nothing refers to it any more.
    match unsafe { libc::munmap(mapped, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the kernel copy a range; what the source does not have is not copied.
fn copy(from: &Path, to: &Path, at: u64, length: u64) -> io::Result<()> {
    let source = File::open(from)?;
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o640).open(to);
    let (mut target, end) = (options?, source.metadata()?.len());
    let mut part = vec![0; usize::try_from(end.saturating_sub(at).min(length)).unwrap_or(0)];
    if from == to || source.metadata()?.len() <= at {
        // Ranges of one file may not overlap; it is only read.
        return source.read_exact_at(&mut part, at.min(end));
    }
    target.seek(SeekFrom::Start(at))?;
    let mut source = source;
    source.seek(SeekFrom::Start(at))?;
    // This asks the kernel for `copy_file_range`, and does it by hand where there is none.
    io::copy(&mut source.take(part.len() as u64), &mut target).map(drop)
}

/// Removes a name while the file is open, and reads the file through the open descriptor.
fn unlink_open(path: &Path) -> io::Result<()> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    if fs::symlink_metadata(path)?.is_symlink() {
        return fs::remove_file(path);
    }
    let mut file = File::open(path)?;
    file.read_to_end(&mut before)?;
    fs::remove_file(path)?;
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut after)?;
    match before == after {
        true => Ok(()),
        false => Err(io::Error::other("what an open file holds changed when its name was removed")),
    }
}

fn set_attribute(path: &Path, key: &str, value: &[u8]) -> io::Result<()> {
    let (path, key) = (c_string(path.as_os_str().as_encoded_bytes())?, c_string(key.as_bytes())?);
    // SAFETY: both texts end with a zero, and the length is that of the value.
    let set = unsafe { libc::lsetxattr(path.as_ptr(), key.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An attribute of a file; nothing where it has none.
pub(super) fn attribute(path: &Path, key: &str) -> io::Result<Option<Vec<u8>>> {
    let (path, key) = (c_string(path.as_os_str().as_encoded_bytes())?, c_string(key.as_bytes())?);
    let mut room = vec![0_u8; 256];
    // SAFETY: both texts end with a zero, and the length is that of the buffer.
    let length =
        unsafe { libc::lgetxattr(path.as_ptr(), key.as_ptr(), room.as_mut_ptr().cast(), room.len()) };
    match usize::try_from(length) {
        Ok(length) => {
            room.truncate(length);
            Ok(Some(room))
        }
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
            error => Err(error),
        },
    }
}

fn c_string(bytes: &[u8]) -> io::Result<std::ffi::CString> {
    std::ffi::CString::new(bytes).map_err(io::Error::other)
}
