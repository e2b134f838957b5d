//! The ioctls of a loop device, which no crate wraps.

use std::io;
use std::os::fd::RawFd;

use linux_raw_sys::loop_device as raw;

use super::LoopOptions;

/// The argument of [`configure`].
pub(super) fn config(backing: RawFd, flags: u32, options: &LoopOptions) -> raw::loop_config {
    let mut info = empty();
    info.lo_flags = flags;
    info.lo_offset = options.offset;
    // Only GET_STATUS64 shows this name, by which a person recognises the device.
    let name = b"volproof";
    info.lo_file_name[..name.len()].copy_from_slice(name);
    raw::loop_config {
        fd: backing as u32,
        block_size: options.block_size.unwrap_or(0),
        info,
        __reserved: [0; 8],
    }
}

/// Attaches a file to the device and applies the settings, in one step. EBUSY if the device has a file already.
pub(super) fn configure(device: RawFd, config: &raw::loop_config) -> io::Result<()> {
    // SAFETY: LOOP_CONFIGURE reads one loop_config.
    check(unsafe { libc::ioctl(device, raw::LOOP_CONFIGURE as _, std::ptr::from_ref(config)) })
}

/// The device's file and settings. ENXIO if it has no file.
pub(super) fn status(device: RawFd) -> io::Result<raw::loop_info64> {
    let mut info = empty();
    // SAFETY: LOOP_GET_STATUS64 writes one loop_info64.
    check(unsafe { libc::ioctl(device, raw::LOOP_GET_STATUS64 as _, std::ptr::from_mut(&mut info)) })?;
    Ok(info)
}

/// Has the kernel detach the file at the last close of the device.
pub(super) fn clear(device: RawFd) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    check(unsafe { libc::ioctl(device, raw::LOOP_CLR_FD as _, 0) })
}

/// Turns direct I/O on the backing file on or off.
pub(super) fn set_direct_io(device: RawFd, on: bool) -> io::Result<()> {
    // SAFETY: LOOP_SET_DIRECT_IO takes a number.
    check(unsafe { libc::ioctl(device, raw::LOOP_SET_DIRECT_IO as _, libc::c_ulong::from(on)) })
}

/// Takes back that a device is read-only. Attaching a file does not.
pub(super) fn allow_writes(device: RawFd) -> io::Result<()> {
    /// `_IO(0x12, 93)`, which no crate has.
    const BLKROSET: u32 = 0x125d;
    let read_only: libc::c_int = 0;
    // SAFETY: BLKROSET reads one int.
    check(unsafe { libc::ioctl(device, BLKROSET as _, std::ptr::from_ref(&read_only)) })
}

fn empty() -> raw::loop_info64 {
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

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
