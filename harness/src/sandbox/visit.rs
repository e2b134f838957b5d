//! Looking around in a sandbox from outside: finds it in the ledgers and joins its namespaces. Makes nothing.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Layout;
use crate::ledger::{self, Author, Entry, LedgerError, Life};

/// A sandbox that `volproof enter` may join.
#[derive(Debug, Clone)]
pub struct Visit {
    name: String,
    init: Life,
    root: PathBuf,
    run: String,
    author: Option<Author>,
    waits: bool,
}

/// Why a sandbox could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The sandbox has ended.
    #[error("the sandbox of {0} has just ended")]
    Gone(String),
    /// The kernel refused to enter a namespace.
    #[error("cannot enter the sandbox of {name}")]
    Refused {
        /// The id of its case.
        name: String,
        #[source]
        source: io::Error,
    },
}

/// The sandboxes in all ledgers.
#[derive(Debug, Default)]
pub struct Found {
    /// The existing sandboxes: kept ones first, and the oldest of them first.
    pub visits: Vec<Visit>,
    /// Ledgers that cannot be read: what their runs have is not listed.
    pub unreadable: Vec<LedgerError>,
}

/// The existing sandboxes of this user's runs.
///
/// # Errors
/// When other users can write to the directory of all runs: its ledgers cannot be trusted.
pub fn all() -> Result<Found, LedgerError> {
    all_in(&ledger::base())
}

fn all_in(base: &Path) -> Result<Found, LedgerError> {
    let mut found = Found::default();
    if base.exists() {
        ledger::check_private(base)?;
    }
    for run in fs::read_dir(base).into_iter().flatten().flatten() {
        match ledger::read(&run.path().join("ledger.jsonl")) {
            Ok(entries) => found.visits.extend(of_run(&run.file_name().to_string_lossy(), entries)),
            Err(error) => found.unreadable.push(error),
        }
    }
    found.visits.sort_by_key(|visit| (!visit.waits, visit.init.started));
    Ok(found)
}

/// The sandboxes of one run.
fn of_run(run: &str, entries: Vec<Entry>) -> Vec<Visit> {
    let mut visits: Vec<Visit> = Vec::new();
    let mut author = None;
    // With a driver that runs already a node's root is written down before the sandbox around it.
    let mut shared = None;
    for entry in entries {
        match entry {
            Entry::Run { author: began, .. } => author = began,
            Entry::SharedRoot { path, .. } => shared = Some(path),
            // A sandbox that has claimed another file system has two entries.
            Entry::Sandbox { init, .. } if visits.iter().any(|visit| visit.init == init) => {}
            Entry::Sandbox { name, init, .. } if init.runs() => {
                let root = shared.take().unwrap_or_else(|| Layout::standard().root().to_owned());
                // The sandbox of a play can be entered from the beginning.
                let waits = name.starts_with(PLAYING);
                visits.push(Visit { name, init, root, run: run.to_owned(), author: author.clone(), waits });
            }
            Entry::KeptSandbox { init } => {
                visits.iter_mut().filter(|visit| visit.init == init).for_each(|visit| visit.waits = true);
            }
            _ => {}
        }
    }
    visits
}

/// The prefix of the name of a sandbox in which `play` runs.
pub const PLAYING: &str = "playing ";

impl Visit {
    /// The name in the ledger: the id of a case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of its run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Whether the sandbox is kept for the user: its case has ended, or it is that of a play.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The node's root in the sandbox.
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
        // A process cannot enter the user namespace it is in.
        if user(&self.init.pid.to_string()).ok() != user("self").ok() {
            namespaces |= CloneFlags::CLONE_NEWUSER;
        }
        setns(process, namespaces)
            .map_err(|errno| VisitError::Refused { name: self.name.clone(), source: errno.into() })
    }
}

impl fmt::Display for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.waits { "to be looked at" } else { "still running" };
        write!(f, "{}  run {}, {state}", self.name, self.run)?;
        match &self.author {
            Some(author) => write!(f, ", pid {}, begun {} ago", author.pid, author.age()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Run, RunDirectory};

    fn sandbox(name: &str) -> Entry {
        let mine = Life::mine().unwrap();
        let (name, devices) = (name.to_owned(), vec![]);
        Entry::Sandbox { name, keeper: mine, init: mine, mount_namespace: 1, devices, since: None }
    }

    #[test]
    fn unreadable_ledger_hides_no_other_and_kept_sandboxes_come_first() {
        let base = tempfile::tempdir().unwrap();
        let bad = base.path().join("0-bad");
        fs::create_dir(&bad).unwrap();
        fs::write(bad.join("ledger.jsonl"), "{\"made\":\"from_the_future\"}\n").unwrap();
        let [running, keeping, playing] = ["a", "a", "playing manifests"].map(|name| {
            let run = Run::begin(RunDirectory::choose_in(base.path())).unwrap();
            run.ledger().record(&sandbox(name)).unwrap();
            run
        });
        keeping.ledger().record(&Entry::KeptSandbox { init: Life::mine().unwrap() }).unwrap();
        let gone = Run::begin(RunDirectory::choose_in(base.path())).unwrap();
        let Entry::Sandbox { name, keeper, mount_namespace, devices, since, .. } = sandbox("gone") else {
            panic!()
        };
        let init = Life { pid: 1, started: u64::MAX };
        gone.ledger()
            .record(&Entry::Sandbox { name, keeper, init, mount_namespace, devices, since })
            .unwrap();

        let found = all_in(base.path()).unwrap();
        assert_eq!(found.unreadable.len(), 1);
        assert_eq!(found.visits.len(), 3, "{found:?}");
        assert_eq!((found.visits[2].run(), found.visits[2].waits()), (running.id(), false));
        let first: Vec<&str> = found.visits[..2].iter().map(Visit::run).collect();
        assert!(first.contains(&keeping.id()) && first.contains(&playing.id()), "{first:?}");
        let line = found.visits[2].to_string();
        let pid = std::process::id();
        assert!(
            line.starts_with(&format!("a  run {}, still running, pid {pid}, begun ", running.id())),
            "{line}"
        );
    }
}
