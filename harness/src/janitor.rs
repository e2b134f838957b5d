//! The janitor of a run, and `sweep`: undoing what outlived its run.
//!
//! One janitor process per run sits on the end of a pipe whose other end only the run holds. However the run
//! ends, the pipe does, too; then the janitor waits until the run's sandboxes are gone, undoes what the ledger
//! names and removes it. It is in a session of its own and ignores what a terminal sends. If the janitor is
//! killed, the ledger stays, and [`sweep`] does the same later. Neither touches what a live run has made.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, signal};
use serde::{Deserialize, Serialize};

use crate::ledger::{self, Author, LedgerError, Run, RunDirectory};
use crate::wait::Deadline;

mod dead;
mod debts;
mod ownership;
mod preparations;
mod shared;
mod undo;

pub use dead::{Dead, Report, dead, dead_in, left_of, reports, reports_in};

/// The hidden subcommand that [`main`] answers; the run's directory is its argument.
pub const SUBCOMMAND: &str = "__janitor";

/// The file in which a janitor that gave up says why.
const LEFT: &str = "left";

/// The time to wait for the lock of a run that has just ended.
const LOCK: Duration = Duration::from_secs(10);

/// The time for which a run waits for its janitor at the end.
const FINISH: Duration = Duration::from_secs(60);

/// Why a janitor could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum JanitorError {
    /// It could not be started.
    #[error("cannot start `/proc/self/exe`, the janitor of this run")]
    Start(#[source] io::Error),
    #[error("cannot use the ledger")]
    Ledger(#[from] LedgerError),
    /// The directory of the runs.
    #[error("cannot read `{path}`")]
    Runs {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A pipe that ends with the run. Its write end must never leave the run's process.
#[derive(Debug)]
pub struct Lifeline {
    read: OwnedFd,
    _write: OwnedFd,
}

impl Lifeline {
    /// A new pipe, closed at `exec`.
    pub fn new() -> io::Result<Lifeline> {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        Ok(Lifeline { read, _write: write })
    }

    /// Another read end, to be given to a process that should notice the end of the run.
    pub fn reader(&self) -> io::Result<OwnedFd> {
        self.read.try_clone()
    }
}

#[derive(Debug)]
pub struct Janitor {
    child: Child,
}

impl Janitor {
    /// Starts the janitor of a run: this program again, with the subcommand that leads to [`main`].
    ///
    /// To be done before the run begins: one that is killed as soon as it has begun has its janitor by then.
    pub fn start(place: &RunDirectory, lifeline: &Lifeline) -> Result<Janitor, JanitorError> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("volproof-janitor").arg(SUBCOMMAND).arg(place.dir());
        command.stdin(lifeline.reader().map_err(JanitorError::Start)?);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: setsid and signal are async-signal-safe. Done before exec, so that there is no moment at
        // which a Ctrl-C ends the janitor.
        unsafe { command.pre_exec(leave_terminal) };
        Ok(Janitor { child: command.spawn().map_err(JanitorError::Start)? })
    }

    /// Ends the run: lets everything in it die, and returns what outlived it and was undone.
    pub fn finish(mut self, run: Run, lifeline: Lifeline) -> Result<Undone, JanitorError> {
        let dir = run.end();
        // Only now, so that the janitor that this wakes finds the lock free.
        drop(lifeline);
        let stdout = self.child.stdout.take();
        let ended = Deadline::after(FINISH).until_ended("the janitor is still at work", &mut self.child);
        if ended.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if dir.exists() {
            // It was killed, or could not undo everything: try once more, here, and say what is left.
            return undo_locked(&dir);
        }
        let line = stdout.and_then(|out| BufReader::new(out).lines().next()?.ok()).unwrap_or_default();
        Ok(serde_json::from_str(&line).unwrap_or_default())
    }
}

/// Runs between fork and exec.
fn leave_terminal() -> io::Result<()> {
    nix::unistd::setsid()?;
    for ignored in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGPIPE] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { signal(ignored, SigHandler::SigIgn) }?;
    }
    Ok(())
}

/// The janitor process: waits for the end of its standard input, then undoes the run in `dir`.
///
/// Prints its work as one line of JSON.
pub fn main(dir: &Path) -> ExitCode {
    let _ = nix::sys::prctl::set_name(c"volproof-janitr");
    let mut stdin = io::stdin().lock();
    // A byte means nothing; an error means that there is no pipe to wait for.
    while matches!(stdin.read(&mut [0; 64]), Ok(1..)) {}
    match undo_locked(dir) {
        Ok(undone) => {
            let line = serde_json::to_string(&undone).expect("lists of strings are always JSON");
            // The run may be gone, which is what a janitor is for.
            let _ = io::Write::write_all(&mut io::stdout(), format!("{line}\n").as_bytes());
            if undone.left.is_empty() {
                return ExitCode::SUCCESS;
            }
            // Beside the ledger, for a user who wonders why that is there.
            let _ = std::fs::write(dir.join(LEFT), undone.left.join("\n"));
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// The resources that were undone, and those that could not be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// One line each: "detached loop3 of case csi::block".
    pub done: Vec<String>,
    /// One line each, with the reason.
    pub left: Vec<String>,
}

/// A dead run whose ledger was undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    pub run: String,
    /// The process that began it; `None` in older ledgers.
    pub author: Option<Author>,
    /// The work of the janitor on it.
    pub undone: Undone,
}

/// Undoes the ledgers of this user's dead runs, and only those.
pub fn sweep() -> Result<Vec<Swept>, JanitorError> {
    sweep_in(&ledger::base())
}

/// Undoes the ledgers of the dead runs below `base`.
pub fn sweep_in(base: &Path) -> Result<Vec<Swept>, JanitorError> {
    let mut swept = Vec::new();
    for dir in undo::runs(base)? {
        let run = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let author = ledger::read(&dir.join("ledger.jsonl")).ok().and_then(|entries| dead::author(&entries));
        // One ledger that cannot be read stops nothing else.
        let undone = match ledger::hold(&dir) {
            Ok(None) => continue,
            Ok(Some(lock)) => {
                let undone = undo::undo(&dir);
                drop(lock);
                undone
            }
            Err(error) => Err(error),
        };
        let undone = undone.unwrap_or_else(|error| {
            let left =
                format!("{}; if nothing of it is left, remove `{}` by hand", chain(&error), dir.display());
            Undone { done: Vec::new(), left: vec![left] }
        });
        swept.push(Swept { run, author, undone });
    }
    Ok(swept)
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Undoes one run, once its lock is free.
fn undo_locked(dir: &Path) -> Result<Undone, JanitorError> {
    let lock = Deadline::after(LOCK).until("the run still holds its lock", || {
        // Removed: another sweep has undone it already.
        if dir.exists() { ledger::hold(dir).ok().flatten().map(Some) } else { Some(None) }
    });
    match lock {
        Ok(Some(_lock)) => Ok(undo::undo(dir)?),
        Ok(None) => Ok(Undone::default()),
        Err(late) => Ok(Undone { done: Vec::new(), left: vec![late.to_string()] }),
    }
}
