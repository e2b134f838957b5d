//! Modules of the kernel: put in by the program that the kernel itself asks for them, and taken out again.

use std::ffi::CStr;
use std::io;
use std::process::Command;

use nix::kmod::{DeleteModuleFlags, delete_module};

/// Where the kernel looks for it.
const MODPROBE: &str = "/sbin/modprobe";

/// Puts a module in, and what it depends on; one that is in already stays as it is.
///
/// # Errors
/// When there is none, or the kernel refuses it.
pub fn load(name: &str, parameters: &[&str]) -> io::Result<()> {
    let done = Command::new(MODPROBE).arg(name).args(parameters).output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
    }
}

/// Takes a module out, which never waits.
///
/// # Errors
/// `EWOULDBLOCK` while anything uses it.
pub fn unload(name: &CStr) -> io::Result<()> {
    Ok(delete_module(name, DeleteModuleFlags::O_NONBLOCK)?)
}
