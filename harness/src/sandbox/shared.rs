//! A node's root on the machine itself: for a driver that runs already, in the machine's namespaces.
//!
//! To judge such a driver, the harness has to observe the driver's own mount namespace. A second one would not do: mounts
//! propagate to it, but a mount that is made read-only afterwards is so in one namespace only. So this sandbox is a PID
//! namespace alone, and all its mounts are below one directory of the machine, which the keeper removes at the end. The
//! directory is in the ledger before it is made.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::{SandboxError, furnish};
use crate::Layout;
use crate::ledger::{Entry, Ledger};
use crate::loop_device::table;
use crate::observe;

/// A driver that runs already, and where it can be met.
#[derive(Debug, Clone)]
pub struct SharedNode {
    /// The directory below which the node's root is made. Mounts there must be visible to the driver.
    pub below: PathBuf,
    /// A directory of the run's own, for what the driver need not see.
    pub private: PathBuf,
    /// The driver's socket, by which its process is found.
    pub socket: PathBuf,
}

/// Makes a root on the machine and fills it.
pub(super) fn prepare(
    shared: &SharedNode,
    ledger: Option<&Ledger>,
    bytes: u64,
) -> Result<Layout, SandboxError> {
    let me = std::process::id();
    let run = shared.private.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let root = match shared.below == shared.private {
        // Short, since a socket's path has 108 bytes.
        true => shared.below.join(format!("n{me}")),
        false => shared.below.join(format!("volproof-{run}-{me}")),
    };
    let layout = Layout::new(root, shared.private.join(format!("s{me}")));
    if let Some(ledger) = ledger {
        let path = layout.root().to_owned();
        ledger.record(&Entry::SharedRoot { path, since: table::latest_sequence() })?;
    }
    furnish::make_dir(layout.root(), 0o750)?;
    furnish::make_dir(layout.state(), 0o700)?;
    furnish::tmpfs(layout.root(), bytes, "0750")?;
    let done = furnish::attach("a shared node root", layout.root(), None, MsFlags::MS_SHARED, None)
        .and_then(|()| is_seen(&shared.socket, layout.root()))
        .and_then(|()| furnish::fill(&layout));
    done.inspect_err(|_| take_away(&layout))?;
    Ok(layout)
}

/// Whether the driver's process sees the root. A process that cannot be asked is believed.
fn is_seen(socket: &Path, root: &Path) -> Result<(), SandboxError> {
    let failed = |source: io::Error| SandboxError::Driver { socket: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).map_err(failed)?;
    let peer = getsockopt(&stream, PeerCredentials).map_err(|errno| failed(errno.into()))?;
    let Ok(mounts) = observe::mounts_of(&peer.pid().to_string()) else { return Ok(()) };
    match mounts.iter().any(|mount| mount.target == root) {
        true => Ok(()),
        false => Err(SandboxError::Unseen { pid: peer.pid(), root: root.to_owned() }),
    }
}

/// Takes the root from the machine, if nothing is mounted below it. What is, is the ledger's.
pub(super) fn take_away(layout: &Layout) {
    if umount2(layout.root(), MntFlags::UMOUNT_NOFOLLOW).is_ok() {
        let _ = fs::remove_dir(layout.root());
    }
    // Sockets and nothing else: everything of value is below the root.
    let _ = fs::remove_dir_all(layout.state());
}
