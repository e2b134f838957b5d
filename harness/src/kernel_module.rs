//! Loads and unloads kernel modules. Loading runs modprobe, as the kernel itself does.

use std::ffi::CStr;
use std::io;
use std::process::Command;

use nix::kmod::{DeleteModuleFlags, delete_module};

/// The path that the kernel uses.
const MODPROBE: &str = "/sbin/modprobe";

/// Loads a module with its dependencies. A loaded module stays as it is.
///
/// # Errors
/// When the module does not exist, or the kernel refuses it.
pub fn load(name: &str, parameters: &[&str]) -> io::Result<()> {
    let done = Command::new(MODPROBE).arg(name).args(parameters).output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
    }
}

/// Unloads a module without waiting.
///
/// # Errors
/// `EWOULDBLOCK` while it is in use.
pub fn unload(name: &CStr) -> io::Result<()> {
    Ok(delete_module(name, DeleteModuleFlags::O_NONBLOCK)?)
}
