//! Looking around in a sandbox from outside: finds it in the ledgers and joins its namespaces. Makes nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Layout;
use crate::ledger::{self, Entry, LedgerError, Life};

/// A sandbox that is there now.
#[derive(Debug, Clone)]
pub struct Visit {
    name: String,
    init: Life,
    root: PathBuf,
}

/// Why a sandbox could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// It has ended.
    #[error("the sandbox of {0} has just ended")]
    Gone(String),
    /// The kernel let nobody in.
    #[error("cannot enter the sandbox of {name}")]
    Refused {
        /// Whose it is.
        name: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// The sandboxes of this user's runs, as far as they are still there.
///
/// # Errors
/// When a ledger cannot be read.
pub fn all() -> Result<Vec<Visit>, LedgerError> {
    let mut found = Vec::new();
    for run in fs::read_dir(ledger::base()).into_iter().flatten().flatten() {
        // With a driver that runs already a node's root is written down before the sandbox around it.
        let mut shared = None;
        for entry in ledger::read(&run.path().join("ledger.jsonl"))? {
            match entry {
                Entry::SharedRoot { path, .. } => shared = Some(path),
                Entry::Sandbox { name, init, .. } if init.runs() => {
                    let root = shared.take().unwrap_or_else(|| Layout::standard().root().to_owned());
                    found.push(Visit { name, init, root });
                }
                _ => {}
            }
        }
    }
    found.sort_by_key(|visit| visit.init.started);
    Ok(found)
}

impl Visit {
    /// What the ledger calls it: the id of a case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the node's root is in there.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Moves the caller into its namespaces; into that of its processes only what the caller then starts.
    ///
    /// To be called with a single thread: a namespace belongs to a thread.
    ///
    /// # Errors
    /// When it has ended, or the caller may not enter.
    pub fn enter(&self) -> Result<(), VisitError> {
        let gone = || VisitError::Gone(self.name.clone());
        let pid = Pid::from_raw(self.init.pid).ok_or_else(gone)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
        // Looked at only now: from here on the number cannot become another process's.
        if !self.init.runs() {
            return Err(gone());
        }
        let mut namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
        let user = |pid: &str| fs::metadata(format!("/proc/{pid}/ns/user")).map(|namespace| namespace.ino());
        // Nobody can enter the one he is in.
        if user(&self.init.pid.to_string()).ok() != user("self").ok() {
            namespaces |= CloneFlags::CLONE_NEWUSER;
        }
        setns(process, namespaces)
            .map_err(|errno| VisitError::Refused { name: self.name.clone(), source: errno.into() })
    }
}
