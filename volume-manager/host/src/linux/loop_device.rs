//! Loop devices as locks on block devices (07 §13). Touches `/dev/loop-control`, `/dev/loop*` and sysfs.
//!
//! Another mount namespace may have a loop device over a file of the same path. So a loop device is taken for
//! ours only if, besides the path in sysfs, the backing file's device and inode agree.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use linux_raw_sys::loop_device as raw;
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, ioctl};

use super::file;
use crate::effect::Effect;
use crate::error::{Action, HostError, Result};

/// Attaches a loop device to `path`, or returns the attached one.
pub(super) fn lock(path: &Path) -> Result<PathBuf> {
    if let Some(device) = find(path)? {
        return Ok(device);
    }
    let failed = |error: std::io::Error| HostError::os(Action::LockDevice, path, error);
    let backing = open_backing(path).map_err(failed)?;
    let device = attach(&backing, path).map_err(failed)?;
    Effect::new("lock", path).source(&device).announce();
    Ok(device)
}

/// Opens read-write, or read-only where that is all the device permits.
fn open_backing(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path).or_else(|error| match Errno::from_io_error(&error) {
        Some(Errno::ROFS | Errno::ACCESS) => File::open(path),
        _ => Err(error),
    })
}

/// Configures a free loop device in one step. If another process takes the free number first, tries the next.
fn attach(backing: &File, path: &Path) -> std::io::Result<PathBuf> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    loop {
        // SAFETY: this call takes no argument that could be read or written.
        let number = unsafe { ioctl(&control, FreeNumber) }?;
        let device = PathBuf::from(format!("/dev/loop{number}"));
        let node = match OpenOptions::new().read(true).write(true).open(&device) {
            Ok(node) => node,
            Err(error) => match Errno::from_io_error(&error) {
                // The number exists before its node does, or was removed again.
                Some(Errno::NXIO | Errno::NODEV | Errno::NOENT | Errno::BUSY) => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                _ => return Err(error),
            },
        };
        // SAFETY: the structure is plain data of the kernel's layout, and the descriptor in it is open.
        match unsafe { ioctl(&node, Setter::<CONFIGURE, _>::new(configuration(backing, path))) } {
            Ok(()) => return Ok(device),
            Err(Errno::BUSY | Errno::NXIO) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

const CONFIGURE: Opcode = raw::LOOP_CONFIGURE;

fn configuration(backing: &File, path: &Path) -> raw::loop_config {
    let mut name = [0u8; 64];
    let bytes = path.as_os_str().as_encoded_bytes();
    // The field is short and for people only; sysfs has the whole path. The last byte stays zero.
    let shown = bytes.len().min(name.len() - 1);
    name[..shown].copy_from_slice(&bytes[..shown]);
    raw::loop_config {
        fd: backing.as_raw_fd().cast_unsigned(),
        block_size: 0,
        info: raw::loop_info64 { lo_file_name: name, ..empty_info() },
        __reserved: [0; 8],
    }
}

fn empty_info() -> raw::loop_info64 {
    raw::loop_info64 {
        lo_device: 0,
        lo_inode: 0,
        lo_rdevice: 0,
        lo_offset: 0,
        lo_sizelimit: 0,
        lo_number: 0,
        lo_encrypt_type: 0,
        lo_encrypt_key_size: 0,
        lo_flags: 0,
        lo_file_name: [0; 64],
        lo_crypt_name: [0; 64],
        lo_encrypt_key: [0; 32],
        lo_init: [0; 2],
    }
}

/// The loop device over `path`, or over the path it resolves to.
pub(super) fn find(path: &Path) -> Result<Option<PathBuf>> {
    let own = match fs::metadata(path) {
        Ok(own) => own,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(HostError::os(Action::FindLock, path, error)),
    };
    let resolved = file::canonicalize(path)?;
    let entries = fs::read_dir("/sys/block").map_err(|error| HostError::os(Action::FindLock, path, error))?;
    let mut found: Vec<u32> = entries
        .filter_map(|entry| loop_number(entry.ok()?.file_name().to_str()?))
        .filter(|number| names_backing(*number, path, &resolved) && is_over(*number, &own))
        .collect();
    found.sort_unstable();
    Ok(found.first().map(|number| PathBuf::from(format!("/dev/loop{number}"))))
}

fn loop_number(name: &str) -> Option<u32> {
    name.strip_prefix("loop")?.parse().ok()
}

/// Whether sysfs names one of the paths as the backing file. Unreadable: `false`.
fn names_backing(number: u32, path: &Path, resolved: &Path) -> bool {
    let backing = backing_file(Path::new(&format!("/dev/loop{number}")));
    backing.is_some_and(|backing| backing == path || backing == resolved)
}

/// Path of a loop device's backing file in sysfs. `None`: not attached.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let device = Path::new("/sys/block").join(device.file_name()?);
    let text = fs::read_to_string(device.join("loop/backing_file")).ok()?;
    let text = text.trim_end_matches('\n');
    Some(PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(text)))
}

/// Whether the kernel's loop driver names this file as the backing file, by device and inode.
fn is_over(number: u32, own: &fs::Metadata) -> bool {
    let node = File::open(format!("/dev/loop{number}"));
    node.is_ok_and(|node| inode_of(&node) == Some((own.dev(), own.ino())))
}

/// Device and inode of a loop device's backing file. `None`: not attached.
fn inode_of(node: &File) -> Option<(u64, u64)> {
    // SAFETY: the kernel writes one structure of exactly this layout.
    let status = unsafe { ioctl(node, Getter::<{ raw::LOOP_GET_STATUS64 }, raw::loop_info64>::new()) };
    status.ok().map(|info| (info.lo_device, info.lo_inode))
}

/// Detaches a loop device. The kernel detaches it at the last close, so this waits up to a second for other
/// processes to close it. The effect names the backing file: the device number may be reused at once.
pub(super) fn unlock(device: &Path) -> Result<()> {
    let failed = |error: std::io::Error| HostError::os(Action::UnlockDevice, device, error);
    let node = match File::open(device) {
        Ok(node) => node,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => return Ok(()),
            _ => return Err(failed(error)),
        },
    };
    if !node.metadata().map_err(failed)?.file_type().is_block_device() {
        return Err(failed(Errno::NOTBLK.into()));
    }
    let held = backing_file(device).zip(inode_of(&node));
    // SAFETY: this call takes no argument.
    match unsafe { ioctl(&node, NoArg::<{ raw::LOOP_CLR_FD }>::new()) } {
        Ok(()) => {}
        Err(Errno::NXIO) => return Ok(()),
        Err(error) => return Err(failed(error.into())),
    }
    drop(node);
    let unlocked = Effect::new("unlock", device);
    match &held {
        Some((path, inode)) => {
            wait_until_free(device, path, *inode);
            unlocked.source(path).inode(Some(&format!("{}:{}", inode.0, inode.1))).announce();
        }
        None => unlocked.announce(),
    }
    Ok(())
}

fn wait_until_free(device: &Path, path: &Path, inode: (u64, u64)) {
    // The path first, and the device opened only if that agrees: an open device stays attached.
    let is_over = || {
        backing_file(device).is_some_and(|now| now == path)
            && File::open(device).is_ok_and(|node| inode_of(&node) == Some(inode))
    };
    for _ in 0..200 {
        if !is_over() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    tracing::warn!(device = %device.display(), "loop device is still open elsewhere; it is detached at its last close");
}

/// `LOOP_CTL_GET_FREE`, which returns the number as the result of the call itself.
struct FreeNumber;

// SAFETY: the opcode has no argument and answers with a number that is no pointer.
unsafe impl rustix::ioctl::Ioctl for FreeNumber {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        raw::LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        core::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        out: rustix::ioctl::IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| Errno::INVAL)
    }
}
