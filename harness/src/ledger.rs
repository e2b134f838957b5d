//! The ledger of a run: the resources that no namespace contains, each recorded before it is used.
//!
//! A run owns a directory `<base>/<run-id>/` with two files: `alive`, locked for as long as the run lives, and
//! `ledger.jsonl`, where all processes of the run append. A run is alive if and only if the lock is held: the
//! janitor never undoes a live run, and the lock ends with its process.
//!
//! Processes of a run may go on for a moment after its end. So each process that has the ledger open holds a shared
//! lock on it, and the janitor holds it exclusively while it undoes the entries: then no process can add a line.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::census::process;
use crate::chore::Chore;
use crate::manifest::Secrets;
use crate::standing;

mod author;
mod debts;

pub use author::{Author, age};
pub use debts::{AtPath, Debts, DriverCall, OnNode};

/// One line of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "made", rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// The first line: the run, and the boot that it ran in.
    Run {
        id: String,
        /// The kernel's id of this boot. After another boot nothing of the run can exist.
        boot: String,
        /// The process that began it; `None` in older ledgers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<Author>,
    },
    /// A sandbox. Loop devices that a driver attached to files on its devices outlive it.
    Sandbox {
        /// The id of the case.
        name: String,
        /// Its keeper, which shares its mounts.
        keeper: Life,
        /// Its first process, which ends after all others in it.
        init: Life,
        /// Its mount namespace, as [`mount_namespace`] names it.
        mount_namespace: u64,
        /// The devices (`st_dev`) of its file systems.
        devices: Vec<u64>,
        /// The number of the newest disk attachment when the sandbox was made: an older one is not the sandbox's.
        since: Option<u64>,
    },
    /// A sandbox that stays after its case, to be looked at.
    #[serde(alias = "stays")]
    KeptSandbox {
        /// PID 1 of the sandbox.
        init: Life,
    },
    /// A loop device whose backing file is not on a device of a sandbox.
    Loop {
        number: u32,
        /// The device of the backing file's file system.
        device: u64,
        /// The backing file's inode.
        inode: u64,
        /// The number of this attachment.
        sequence: Option<u64>,
    },
    /// Control groups of a driver or a container.
    Cgroups {
        /// Their paths, which may not exist yet.
        paths: Vec<PathBuf>,
    },
    /// A node's root on the machine itself, which a driver outside of any sandbox shares.
    SharedRoot {
        path: PathBuf,
        /// The number of the newest disk attachment when the root was made.
        since: Option<u64>,
    },
    /// A driver that goes on running when the run has ended.
    Driver {
        socket: PathBuf,
        /// The socket of its controller service, if that has its own.
        controller: Option<PathBuf>,
        /// The files with the secrets for its calls.
        secrets: Secrets,
    },
    /// A call to a [`Driver`](Entry::Driver) with a lasting effect, or a call that has undone one.
    #[serde(alias = "asked")]
    DriverCall {
        #[serde(alias = "asked")]
        call: DriverCall,
    },
    /// A socket at a place that the user chose.
    Socket {
        /// Its path, which may not exist yet.
        path: PathBuf,
    },
    /// A directory that the run made for itself, for logs or the driver's unpacked image. It is removed with the run,
    /// unless it is [`Kept`](Entry::Kept).
    Scratch {
        /// Its path. The name contains the run's id, so it belongs to this run.
        path: PathBuf,
    },
    /// A command of the manifest is about to prepare something; `cleanup` undoes it.
    Prepared {
        id: String,
        cleanup: Chore,
    },
    CleanedUp {
        id: String,
    },
    /// The report names this directory: the janitor does not remove it.
    Kept {
        path: PathBuf,
    },
}

/// A process with its start time, since its number may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// Its number, outside of any sandbox.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl Life {
    /// The calling process, with its number in the mounted `/proc`.
    pub fn mine() -> Option<Life> {
        // Not `getpid`: in a new PID namespace, before its own `/proc` is mounted, the two differ.
        let pid = fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
        process::get(pid).map(|process| Life { pid, started: process.started })
    }

    /// Whether the process still runs. A zombie does not, however late its parent waits for it.
    pub fn runs(self) -> bool {
        process::get(self.pid).is_some_and(|process| process.started == self.started && !process.zombie)
    }
}

/// An id of the mount namespace at `/proc/<pid>/ns/mnt` (`self` for the caller's own): the kernel's unique id, or
/// on older kernels the inode number, which may be used again.
pub fn mount_namespace(pid: &str) -> io::Result<u64> {
    const NS_GET_MNTNS_ID: libc::Ioctl = 0x8008_b705_u32 as libc::Ioctl;
    let file = File::open(format!("/proc/{pid}/ns/mnt"))?;
    let mut id = 0u64;
    // SAFETY: NS_GET_MNTNS_ID writes one u64.
    match unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_MNTNS_ID, &raw mut id) } {
        0 => Ok(id),
        _ => Ok(file.metadata()?.ino()),
    }
}

/// The ledger could not be written, read or trusted.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A file or directory of the ledger could not be used.
    #[error("cannot {verb} `{path}`")]
    Io {
        /// The step that failed.
        verb: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Other users could have written to the directory of all runs. The janitor carries out the entries of a ledger, so
    /// it uses none from there.
    #[error("cannot use `{path}` for ledgers: {reason}")]
    NotPrivate {
        path: PathBuf,
        /// Why others could write there.
        reason: &'static str,
    },
    /// A line is not an entry. Nothing is undone for a ledger that cannot be read.
    #[error("cannot understand line {line} of `{path}`")]
    Line {
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The defect of the line.
        #[source]
        source: serde_json::Error,
    },
}

/// A run that has begun: its directory, its lock and its ledger.
#[derive(Debug)]
pub struct Run {
    id: String,
    dir: PathBuf,
    /// The lock, held until the run ends. Programs that the run executes do not inherit it.
    alive: Flock<File>,
    ledger: Ledger,
}

/// The directory for the ledger of a new run. It does not exist yet: the janitor starts before it is made.
#[derive(Debug)]
pub struct RunDirectory {
    id: String,
    dir: PathBuf,
}

impl LedgerError {
    /// A hint for the user, if there is one.
    pub fn hint(&self) -> Option<String> {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};
        let LedgerError::Io { path, source, .. } = self else { return None };
        match source.kind() {
            PermissionDenied | ReadOnlyFilesystem if path.starts_with("/run") => Some(
                "each run keeps a ledger there of what has to be undone: make /run writable, in a container with \
                 `--tmpfs /run`"
                    .to_owned(),
            ),
            StorageFull => Some("each run keeps a ledger there of what has to be undone: make room".to_owned()),
            _ => None,
        }
    }
}

impl RunDirectory {
    /// A new place in the directory of this user's runs.
    pub fn choose() -> RunDirectory {
        RunDirectory::choose_in(&base())
    }

    /// A new place below `base`.
    pub fn choose_in(base: &Path) -> RunDirectory {
        let id = format!("{:x}-{:08x}", std::process::id(), random());
        RunDirectory { dir: base.join(&id), id }
    }

    /// The directory that will hold the ledger.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Run {
    /// Makes the run's directory and its ledger.
    pub fn begin(place: RunDirectory) -> Result<Run, LedgerError> {
        let RunDirectory { id, dir } = place;
        let base = dir.parent().unwrap_or(&dir);
        loop {
            let made =
                make_private(base).and_then(|()| make_private(&dir)).and_then(|()| check_private(base));
            match made {
                // Another run that ended has removed the directory of all runs, because it was empty: try again.
                Err(error) if is_gone(&error) => continue,
                made => made?,
            }
            // A sweep that looks between these two steps takes the empty directory for a dead run's and
            // removes it; then this run tries again.
            let Some(alive) = hold(&dir)? else { continue };
            let ledger = match Ledger::open(&dir.join("ledger.jsonl")) {
                Err(error) if is_gone(&error) => continue,
                opened => opened?,
            };
            let author = Some(Author::mine());
            ledger.record(&Entry::Run { id: id.clone(), boot: boot_id(), author })?;
            return Ok(Run { id, dir, alive, ledger });
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Lets go of the lock: from now on the run counts as dead, and its ledger may be undone.
    pub fn end(self) -> PathBuf {
        drop(self.alive);
        self.dir
    }
}

/// The directory of this user's runs. It is in memory if the machine has such a directory, since no resource in a
/// ledger outlives a boot.
pub fn base() -> PathBuf {
    if standing::is_root() {
        return PathBuf::from("/run/volproof");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_dir()) {
        Some(dir) => PathBuf::from(dir).join("volproof"),
        None => std::env::temp_dir().join(format!("volproof-{}", standing::outer_user())),
    }
}

/// Removes the directory of the runs if it is empty and lies among the temporary files.
pub(crate) fn leave(base: &Path) {
    if base.parent() == Some(&std::env::temp_dir()) {
        // Another run may have begun there: then it is not empty.
        let _ = fs::remove_dir(base);
    }
}

/// The directory of the logs of failed runs, below the user's cache.
pub const LOGS: &str = "logs";

/// Removes the directory of the logs of failed runs, and the cache around it, as far as they are empty.
pub(crate) fn leave_logs(logs: &Path) {
    if logs.file_name() == Some(LOGS.as_ref()) && fs::remove_dir(logs).is_ok() {
        let _ = logs.parent().map(fs::remove_dir);
    }
}

/// The prefix of the directories that a run makes for itself.
pub const SCRATCH: &str = "volproof-";

/// The file that marks a directory as made by volproof.
pub const MARK: &str = ".volproof";

/// The name of the directory of logs that a run makes for itself.
pub fn scratch_name(run: &str) -> String {
    format!("{SCRATCH}{run}")
}

/// The suffix of the directory for a run's unpacked image.
const IMAGE: &str = "-image";

/// The name of the directory for a run's unpacked image.
pub fn image_name(run: &str) -> String {
    format!("{SCRATCH}{run}{IMAGE}")
}

/// The run that made the directory of this name for itself; `None` for any other name.
pub(crate) fn run_of_scratch(name: &str) -> Option<&str> {
    let run = name.strip_prefix(SCRATCH)?;
    Some(run.strip_suffix(IMAGE).unwrap_or(run))
}

/// Whether a path has the name of a directory that a run makes for itself.
pub fn is_own(path: &Path, run: &str) -> bool {
    path.file_name()
        .is_some_and(|name| name == scratch_name(run).as_str() || name == image_name(run).as_str())
}

/// The id of the run that keeps its ledger at this path.
pub fn run_of(ledger: &Path) -> String {
    let directory = ledger.parent().and_then(Path::file_name).unwrap_or_default();
    directory.to_string_lossy().into_owned()
}

/// Makes a directory that only this user may use, unless there is one.
fn make_private(path: &Path) -> Result<(), LedgerError> {
    let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(path);
    made.map_err(|source| failed("create", path, source))?;
    check_private(path)
}

/// Refuses a directory of runs that is not this user's own: a link, another user's, or open to others.
pub(crate) fn check_private(base: &Path) -> Result<(), LedgerError> {
    let found = fs::symlink_metadata(base).map_err(|source| failed("look at", base, source))?;
    let refused = |reason| Err(LedgerError::NotPrivate { path: base.to_owned(), reason });
    if !found.is_dir() {
        refused("it is not a directory")
    } else if found.uid() != nix::unistd::geteuid().as_raw() {
        refused("it belongs to another user; remove it, or set XDG_RUNTIME_DIR to a directory of your own")
    } else if found.mode() & 0o022 != 0 {
        refused("others may write there; `chmod 700` it once you know what is in it")
    } else {
        Ok(())
    }
}

/// An open ledger, to which lines are only ever appended.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    /// Locked for as long as this, or a forked process's copy of it, is open.
    file: File,
}

impl Ledger {
    /// Opens a ledger for appending, and makes it if it is missing. Fails while the janitor undoes the ledger.
    pub fn open(path: &Path) -> Result<Ledger, LedgerError> {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(path);
        let file = file.map_err(|source| failed("open", path, source))?;
        file.try_lock_shared().map_err(|error| failed("share", path, error.into()))?;
        Ok(Ledger { path: path.to_owned(), file })
    }

    /// The descriptor that keeps the ledger open, for a process that does not use the ledger otherwise.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line and waits until it is on disk. A resource is recorded before it is used.
    pub fn record(&self, entry: &Entry) -> Result<(), LedgerError> {
        let mut line = serde_json::to_vec(entry).expect("numbers, strings and paths are always JSON");
        line.push(b'\n');
        // One write of a short line to an O_APPEND file: lines of several processes do not mix.
        (&self.file)
            .write_all(&line)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| failed("append to", &self.path, source))
    }
}

/// Locks a ledger so that no process can open it until the returned file is dropped. `None` if a process has it open.
pub(crate) fn close(path: &Path) -> Result<Option<File>, LedgerError> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    let file = opened.map_err(|source| failed("open", path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(failed("lock", path, source)),
    }
}

/// Reads a ledger. A last line without a newline was cut off by a crash and is left out: its resource was not used yet.
pub fn read(path: &Path) -> Result<Vec<Entry>, LedgerError> {
    let mut text = String::new();
    match File::open(path).and_then(|mut file| file.read_to_string(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        done => done.map_err(|source| failed("read", path, source))?,
    };
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|source| LedgerError::Line {
            path: path.to_owned(),
            line: index + 1,
            source,
        })
    };
    complete.lines().enumerate().map(parse).collect()
}

/// Takes the lock of the run in `dir`; `None` if the run is alive, or the directory gone.
pub fn hold(dir: &Path) -> Result<Option<Flock<File>>, LedgerError> {
    let path = dir.join("alive");
    let file = match OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("open", &path, source)),
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        // A sweep may have removed the file after it was opened here: then its lock protects nothing.
        Ok(lock) => Ok(fs::exists(&path).unwrap_or(false).then_some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(failed("lock", &path, errno.into())),
    }
}

/// Whether the run in `dir` holds its lock. Changes nothing.
pub fn is_alive(dir: &Path) -> bool {
    let Ok(file) = File::open(dir.join("alive")) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// The kernel's id of this boot.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness the process id alone distinguishes runs, as long as it is not used again.
    let _ = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    u32::from_ne_bytes(bytes)
}

fn is_gone(error: &LedgerError) -> bool {
    matches!(error, LedgerError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn failed(verb: &'static str, path: &Path, source: io::Error) -> LedgerError {
    LedgerError::Io { verb, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_write_of_a_ledger_has_a_hint() {
        let at = |path: &str, kind: io::ErrorKind| failed("create", Path::new(path), kind.into()).hint();
        let hint = at("/run/volproof", io::ErrorKind::PermissionDenied).unwrap();
        assert!(hint.contains("make /run writable"), "{hint}");
        assert!(at("/run/volproof/1", io::ErrorKind::ReadOnlyFilesystem).is_some());
        assert!(at("/tmp/volproof-0", io::ErrorKind::StorageFull).unwrap().contains("make room"));
        assert_eq!(at("/tmp/volproof-0", io::ErrorKind::NotADirectory), None);
    }
}
