//! Dead runs, as listed before anything is undone, and the report directories of runs that have ended. Looks only,
//! but for [`Report::remove`].

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{JanitorError, undo};
use crate::census::Census;
use crate::ledger::{self, Author, Debts, Entry};

/// A run that has ended without its janitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    pub run: String,
    /// The process that began it; `None` if its ledger cannot be read or is older.
    pub author: Option<Author>,
    /// The resources that are left of it, one line each.
    pub left: Vec<String>,
    /// Why its ledger cannot be read.
    pub unreadable: Option<String>,
}

/// This user's dead runs. Changes nothing.
///
/// # Errors
/// When the directory of all runs cannot be read, or is not private.
pub fn dead() -> Result<Vec<Dead>, JanitorError> {
    dead_in(&ledger::base())
}

/// As [`dead`], of the runs below `base`.
///
/// # Errors
/// As [`dead`].
pub fn dead_in(base: &Path) -> Result<Vec<Dead>, JanitorError> {
    let mut found = Vec::new();
    for dir in undo::runs(base)? {
        if ledger::is_alive(&dir) {
            continue;
        }
        let run = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let path = dir.join("ledger.jsonl");
        let dead = match ledger::read(&path) {
            Ok(entries) => Dead { run, author: author(&entries), left: left_of(&entries), unreadable: None },
            Err(error) => Dead { run, author: None, left: vec![], unreadable: Some(super::chain(&error)) },
        };
        found.push(dead);
    }
    Ok(found)
}

/// The process that began the run of a ledger.
pub(super) fn author(entries: &[Entry]) -> Option<Author> {
    entries.iter().find_map(|entry| match entry {
        Entry::Run { author, .. } => author.clone(),
        _ => None,
    })
}

/// The resources of a ledger that the machine still has.
pub fn left_of(entries: &[Entry]) -> Vec<String> {
    let mut things = Vec::new();
    for entry in entries {
        match entry {
            Entry::Sandbox { name, devices, init, .. } => {
                if init.runs() {
                    things.push(format!("processes of {name}"));
                }
                let loops = Census::of(devices).map(|census| census.loops().to_vec()).unwrap_or_default();
                things.extend(loops.iter().map(|bound| format!("loop{} of {name}", bound.number)));
            }
            Entry::Loop { number, .. } => things.push(format!("loop{number}")),
            Entry::SharedRoot { path, .. } if path.exists() => {
                things.push(format!("the mounts at {}", path.display()));
            }
            Entry::Cgroups { paths } => {
                let there = paths.iter().filter(|path| path.exists());
                things.extend(there.map(|path| format!("the control group {}", path.display())));
            }
            Entry::Socket { path } if path.exists() => things.push(format!("the socket {}", path.display())),
            Entry::Scratch { path } if path.exists() && !is_kept(path, entries) => {
                things.push(format!("the directory {}", path.display()));
            }
            _ => {}
        }
    }
    let owed = super::preparations::owed(entries);
    things.extend(owed.iter().map(|chore| format!("what {} undoes", chore.key)));
    let debts = Debts::of(entries);
    things.extend(debts.volumes.iter().map(|volume| format!("volume {volume} of the driver")));
    things
}

/// Whether a directory outlives its run.
pub(super) fn is_kept(path: &Path, entries: &[Entry]) -> bool {
    entries.iter().any(|entry| matches!(entry, Entry::Kept { path: kept } if kept == path))
}

/// A report directory that a run made for itself and left, since something in it was worth reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The report directory.
    pub path: PathBuf,
    /// The time since the last write into it.
    pub age: Duration,
    /// The size of its files.
    pub bytes: u64,
}

impl Report {
    /// Removes it with all that is in it.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)?;
        self.path.parent().into_iter().for_each(ledger::leave_logs);
        Ok(())
    }
}

/// The report directories of this user's ended runs in these directories, the oldest first.
pub fn reports<P: AsRef<Path>>(directories: &[P]) -> Vec<Report> {
    reports_in(directories, &ledger::base())
}

/// As [`reports`], of the runs below `base`.
pub fn reports_in<P: AsRef<Path>>(directories: &[P], base: &Path) -> Vec<Report> {
    let entries = directories.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
    let mut found: Vec<Report> = entries.filter_map(|entry| report(entry.path(), base)).collect();
    found.sort_by_key(|report| std::cmp::Reverse(report.age));
    found
}

fn report(path: PathBuf, base: &Path) -> Option<Report> {
    let run = ledger::run_of_scratch(path.file_name()?.to_str()?)?.to_owned();
    let found = fs::symlink_metadata(&path).ok()?;
    // The name alone says nothing in a directory where everybody may make one.
    let is_ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw();
    if !is_ours || !has_mark(&path) || ledger::is_alive(&base.join(&run)) {
        return None;
    }
    let (newest, bytes) = measure(&path);
    let age = newest.and_then(|newest| newest.elapsed().ok()).unwrap_or_default();
    Some(Report { path, age, bytes })
}

/// Whether the file that says whose a directory is lies in it, or in its directory of cases.
fn has_mark(path: &Path) -> bool {
    let is_file = |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    is_file(path.join(ledger::MARK)) || is_file(path.join("cases").join(ledger::MARK))
}

/// When something was written last below a directory, and how much there is.
fn measure(top: &Path) -> (Option<std::time::SystemTime>, u64) {
    let (mut newest, mut bytes, mut todo) = (None, 0, vec![top.to_owned()]);
    while let Some(path) = todo.pop() {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        newest = newest.max(found.modified().ok());
        if found.is_dir() {
            todo.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else {
            bytes += found.len();
        }
    }
    (newest, bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::ledger::{Run, RunDirectory};

    #[test]
    fn only_marked_directories_of_ended_runs_are_reports() {
        let (base, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let make = |name: &str, mark: &str| {
            let path = tmp.path().join(name);
            fs::create_dir_all(path.join("cases")).unwrap();
            fs::write(path.join(mark), "12345").unwrap();
            path
        };
        let (old, new) = (make("volproof-1-old", "cases/.volproof"), make("volproof-2-new", ".volproof"));
        make("volproof-3-unmarked", "results.json");
        make("other-4", ".volproof");
        symlink(&old, tmp.path().join("volproof-5-link")).unwrap();
        let alive = Run::begin(RunDirectory::choose_in(base.path())).unwrap();
        let running = make(&ledger::scratch_name(alive.id()), ".volproof");
        let image = make(&ledger::image_name(alive.id()), ".volproof");

        let of = || reports_in(&[tmp.path()], base.path());
        let paths = |found: Vec<Report>| found.into_iter().map(|report| report.path).collect::<Vec<_>>();
        let mut found = paths(of());
        found.sort();
        assert_eq!(found, [old.clone(), new]);
        assert_eq!(of().iter().find(|report| report.path == old).unwrap().bytes, 5);
        alive.end();
        assert!(paths(of()).contains(&running) && paths(of()).contains(&image));
        of().iter().for_each(|report| report.remove().unwrap());
        assert_eq!(of(), []);
        assert!(tmp.path().join("volproof-3-unmarked").exists());
    }

    #[test]
    fn dead_run_is_listed_with_its_author_and_stays() {
        let base = tempfile::tempdir().unwrap();
        let alive = Run::begin(RunDirectory::choose_in(base.path())).unwrap();
        let dead = Run::begin(RunDirectory::choose_in(base.path())).unwrap();
        let (id, socket) = (dead.id().to_owned(), base.path().join("alive.sock"));
        fs::write(&socket, "").unwrap();
        dead.ledger().record(&Entry::Socket { path: socket.clone() }).unwrap();
        let dir = dead.end();
        let unreadable = base.path().join("9-unreadable");
        fs::create_dir(&unreadable).unwrap();
        fs::write(unreadable.join("ledger.jsonl"), "{\"made\":\"from_the_future\"}\n").unwrap();

        let mut found = dead_in(base.path()).unwrap();
        found.sort_by_key(|dead| dead.unreadable.is_some());
        assert_eq!(found.len(), 2, "{} is alive: {found:?}", alive.id());
        assert_eq!((found[0].run.as_str(), found[0].left.len()), (id.as_str(), 1));
        let author = found[0].author.as_ref().unwrap();
        assert_eq!((author.pid, author.user), (std::process::id(), nix::unistd::geteuid().as_raw()));
        assert!(found[1].unreadable.as_ref().unwrap().contains("line 1"), "{found:?}");
        assert!(dir.join("ledger.jsonl").exists() && socket.exists() && !unreadable.join("alive").exists());
    }
}
