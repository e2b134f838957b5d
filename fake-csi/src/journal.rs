//! The books on disk: an append-only log that several processes may share.
//!
//! A line is a transaction, written with one `write` under a file lock and synced. A process that dies in the middle
//! of a line leaves a torn end, which the next process to take the lock cuts off: that transaction did not happen.
//! A process reads the lines of others before each decision, so two nodes with one state directory see the same
//! books.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::books::{Books, Group, Node, Snapshot, Volume};

/// Bytes above which the log is rewritten.
const COMPACT_ABOVE: u64 = 16 << 20;

/// A change of the books. The names are the format on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Entry {
    Next(u64),
    Node(Node),
    Volume(Box<Volume>),
    VolumeGone(String),
    Snapshot(Box<Snapshot>),
    SnapshotGone(String),
    Group(Group),
    GroupGone(String),
    Departed(String),
    Held(PathBuf, String),
    Released(PathBuf),
}

/// A log that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error("cannot {verb} `{path}`")]
    Io {
        verb: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot parse line {line} of `{path}`")]
    Parse {
        path: PathBuf,
        line: u64,
        #[source]
        source: serde_json::Error,
    },
}

/// The books of a state directory.
#[derive(Debug)]
pub(crate) struct Journal {
    state: Mutex<State>,
    /// Holds a shared lock until the process ends: another process that gets the exclusive lock is the only user.
    _user: File,
    /// Whether no other process used the state directory when it was opened.
    pub(crate) alone: bool,
}

#[derive(Debug)]
struct State {
    path: PathBuf,
    file: File,
    lock: File,
    lock_path: PathBuf,
    read_to: u64,
    lines: u64,
    books: Books,
}

impl Journal {
    /// Opens the journal in `directory`, reads it and compacts it.
    pub(crate) fn open(directory: &Path) -> Result<Self, JournalError> {
        let users = directory.join("users");
        let user = open_lock(&users)?;
        let alone = flock(&user, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !alone {
            lock(&user, &users, FlockOperation::LockShared)?;
        }
        let path = directory.join("journal");
        let mut state = State::open(path, directory.join("lock"))?;
        state.locked(State::compact)?;
        if alone {
            lock(&user, &users, FlockOperation::LockShared)?;
        }
        Ok(Self { state: Mutex::new(state), _user: user, alone })
    }

    /// Reads the current books, with the changes of other processes.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Books) -> T) -> Result<T, JournalError> {
        self.transact(|books| Ok((Vec::new(), look(books))))
    }

    /// Decides on the current books and appends the decided entries, under the lock of all processes.
    pub(crate) fn transact<T, E: From<JournalError>>(
        &self,
        decide: impl FnOnce(&Books) -> Result<(Vec<Entry>, T), E>,
    ) -> Result<T, E> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.locked(|state| {
            let (entries, out) = decide(&state.books)?;
            if !entries.is_empty() {
                state.append(entries)?;
            }
            Ok(out)
        })
    }
}

impl State {
    fn open(path: PathBuf, lock_path: PathBuf) -> Result<Self, JournalError> {
        let file = open_log(&path)?;
        let lock = open_lock(&lock_path)?;
        Ok(Self { path, file, lock, lock_path, read_to: 0, lines: 0, books: Books::default() })
    }

    /// Runs `work` under the file lock, after reading the changes of other processes.
    fn locked<T, E: From<JournalError>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        lock(&self.lock, &self.lock_path, FlockOperation::LockExclusive)?;
        let out = self.catch_up().map_err(E::from).and_then(|()| work(self));
        lock(&self.lock, &self.lock_path, FlockOperation::Unlock)?;
        out
    }

    fn catch_up(&mut self) -> Result<(), JournalError> {
        let looked = self.file.metadata().and_then(|ours| Ok((ours, std::fs::metadata(&self.path)?)));
        let (ours, current) = looked.map_err(|source| failed("read", &self.path, source))?;
        if ours.ino() != current.ino() {
            // Another process has compacted the log. The new one contains everything from the old one.
            self.file = open_log(&self.path)?;
            (self.read_to, self.lines, self.books) = (0, 0, Books::default());
        }
        if current.len() == self.read_to {
            return Ok(());
        }
        let mut text = Vec::new();
        self.file
            .seek(SeekFrom::Start(self.read_to))
            .and_then(|_| self.file.read_to_end(&mut text))
            .map_err(|source| failed("read", &self.path, source))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            // A process died while writing. This process has the lock, so no other is writing now.
            self.file
                .set_len(self.read_to + whole as u64)
                .map_err(|source| failed("truncate", &self.path, source))?;
        }
        for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.lines += 1;
            let entries: Vec<Entry> = serde_json::from_slice(line).map_err(|source| JournalError::Parse {
                path: self.path.clone(),
                line: self.lines,
                source,
            })?;
            entries.into_iter().for_each(|entry| self.books.apply(entry));
        }
        self.read_to += whole as u64;
        Ok(())
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<(), JournalError> {
        let line = encode(&entries);
        // Synced, since an answered call must be true after a power cut too.
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|source| failed("append to", &self.path, source))?;
        self.read_to += line.len() as u64;
        self.lines += 1;
        entries.into_iter().for_each(|entry| self.books.apply(entry));
        if self.read_to > COMPACT_ABOVE { self.compact() } else { Ok(()) }
    }

    /// Rewrites the log as one line. The rename makes the new log valid.
    fn compact(&mut self) -> Result<(), JournalError> {
        let fresh = self.path.with_extension("new");
        let line = encode(&self.books.essence());
        let written = File::create(&fresh).and_then(|mut file| {
            file.write_all(&line)?;
            file.sync_all()
        });
        written.map_err(|source| failed("write", &fresh, source))?;
        std::fs::rename(&fresh, &self.path).map_err(|source| failed("replace", &self.path, source))?;
        self.file = open_log(&self.path)?;
        self.read_to = line.len() as u64;
        self.lines = 1;
        Ok(())
    }
}

impl Books {
    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Next(next) => self.next = next,
            Entry::Node(node) => drop(self.nodes.insert(node.name.clone(), node)),
            Entry::Volume(volume) => drop(self.volumes.insert(volume.id.clone(), *volume)),
            Entry::VolumeGone(id) => drop(self.volumes.remove(&id)),
            Entry::Snapshot(snapshot) => drop(self.snapshots.insert(snapshot.id.clone(), *snapshot)),
            Entry::SnapshotGone(id) => drop(self.snapshots.remove(&id)),
            Entry::Group(group) => drop(self.groups.insert(group.id.clone(), group)),
            Entry::GroupGone(id) => drop(self.groups.remove(&id)),
            Entry::Departed(id) => drop(self.departed.insert(id)),
            Entry::Held(path, node) => drop(self.held.insert(path, node)),
            Entry::Released(path) => drop(self.held.remove(&path)),
        }
    }

    /// The shortest log of these books.
    fn essence(&self) -> Vec<Entry> {
        let mut entries = vec![Entry::Next(self.next)];
        entries.extend(self.nodes.values().cloned().map(Entry::Node));
        entries.extend(self.volumes.values().cloned().map(|volume| Entry::Volume(Box::new(volume))));
        entries.extend(self.snapshots.values().cloned().map(|snapshot| Entry::Snapshot(Box::new(snapshot))));
        entries.extend(self.groups.values().cloned().map(Entry::Group));
        entries.extend(self.departed.iter().cloned().map(Entry::Departed));
        let held = self.held.iter().map(|(path, node)| Entry::Held(path.clone(), node.clone()));
        entries.extend(held);
        entries
    }
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut line = serde_json::to_vec(entries).expect("records have string keys and no numbers beyond JSON");
    line.push(b'\n');
    line
}

fn open_log(path: &Path) -> Result<File, JournalError> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
        .map_err(|source| failed("open", path, source))
}

fn open_lock(path: &Path) -> Result<File, JournalError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|source| failed("open", path, source))
}

fn lock(file: &File, path: &Path, operation: FlockOperation) -> Result<(), JournalError> {
    flock(file, operation).map_err(|errno| failed("lock", path, errno.into()))
}

fn failed(verb: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { verb, path: path.to_owned(), source }
}
