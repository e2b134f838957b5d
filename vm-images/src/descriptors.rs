//! Handing open files to a child under fixed numbers.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives a child these descriptors under these numbers; the caller's own are closed with the command.
pub(crate) fn hand_over(command: &mut Command, handed: Vec<(OwnedFd, RawFd)>) {
    let mut high = vec![-1; handed.len()];
    // SAFETY: between fork and exec only fcntl and dup2 are called, on descriptors the closure owns, and
    // nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            // First out of the way of every number that is to be given, then onto it.
            for ((from, _), high) in handed.iter().zip(&mut high) {
                *high = libc::fcntl(from.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 64);
                if *high < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            for ((_, to), high) in handed.iter().zip(&high) {
                if libc::dup2(*high, *to) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}
