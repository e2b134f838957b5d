//! The driver's own calls to the kernel: mounts, loop devices, file systems and the daemons of FUSE.
//!
//! It shares no code with the volume manager or the harness on purpose: a mistake in shared code would hide from the
//! judge.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) mod copy;
pub(crate) mod filesystem;
pub(crate) mod fuse;
pub(crate) mod loop_device;
pub(crate) mod mount;

/// A system call or a tool that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error("cannot {verb} `{path}`")]
    Path {
        verb: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot {verb} `{from}` on `{to}`")]
    Pair {
        verb: &'static str,
        from: PathBuf,
        to: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot run `{command}`: {output}")]
    Tool { command: String, output: String },
}

impl KernelError {
    pub(crate) fn path(verb: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Path { verb, path: path.as_ref().to_owned(), source: source.into() }
    }

    pub(crate) fn pair(
        verb: &'static str,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Pair { verb, from: from.as_ref().to_owned(), to: to.as_ref().to_owned(), source: source.into() }
    }

    /// The kernel's error number; `None` for a tool.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Path { source, .. } | Self::Pair { source, .. } => source.raw_os_error(),
            Self::Tool { .. } => None,
        }
    }
}

/// A command that dies with the driver: the next driver may start the same work anew.
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let die_with_us = || {
        let signal = nix::sys::signal::Signal::SIGKILL;
        nix::sys::prctl::set_pdeathsig(signal).map_err(io::Error::from)
    };
    // SAFETY: between fork and exec it makes a single system call and allocates nothing.
    unsafe { command.pre_exec(die_with_us) };
    command
}
