//! Undoing one ledger: waits for the run's processes to end, then detaches, removes and reports.
//!
//! Opens loop devices, and removes the run's own directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::dead::is_kept;
use super::ownership::{self, Owner, Surroundings};
use super::{JanitorError, Undone, preparations, shared};
use crate::cgroup;
use crate::ledger::{self, Entry, LedgerError, Life};
use crate::loop_device::table::{self, BoundLoop};
use crate::observe;
use crate::proxy;
use crate::wait::Deadline;

/// The time for the processes of a run to end.
const END: Duration = Duration::from_secs(20);

/// The time for a process that entered a sandbox from outside to leave it.
const SETTLE: Duration = Duration::from_secs(5);

/// The directories of all runs below `base`, dead or alive.
pub(super) fn runs(base: &Path) -> Result<Vec<PathBuf>, JanitorError> {
    let entries = match fs::read_dir(base) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|source| JanitorError::Runs { path: base.to_owned(), source })?,
    };
    ledger::check_private(base)?;
    let is_dir = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_dir).collect();
    dirs.sort();
    Ok(dirs)
}

/// Undoes the ledger in `dir`, whose lock the caller holds, and removes it if nothing is left.
pub(super) fn undo(dir: &Path) -> Result<Undone, LedgerError> {
    let path = dir.join("ledger.jsonl");
    let mut undone = Undone::default();
    // In this order: a living process could add to the ledger, or attach what has just been detached.
    let closed = close(&path, &mut undone)?;
    let entries = ledger::read(&path)?;
    if undone.left.is_empty() && same_boot(&entries) {
        await_processes(&entries, &mut undone);
        if undone.left.is_empty() {
            preparations::clean_up(dir, &entries, &mut undone);
            remove_cgroups(&entries, &mut undone);
            shared::undo_all(&entries, &mut undone);
            detach_loops(dir, &entries, &mut undone);
        }
    }
    if undone.left.is_empty() {
        // Files outlive a boot. Last, since a process that still ran could write another.
        remove_sockets(&entries, &mut undone);
        remove_scratch(dir, &entries, &mut undone);
    }
    if undone.left.is_empty() {
        match fs::remove_dir_all(dir) {
            Ok(()) => dir.parent().into_iter().for_each(ledger::leave),
            Err(error) => undone.left.push(format!("{}: {error}", dir.display())),
        }
    }
    drop(closed);
    Ok(undone)
}

/// Waits until no process of the run has its ledger open any more, and keeps it so.
fn close(path: &Path, undone: &mut Undone) -> Result<Option<File>, LedgerError> {
    let closed = Deadline::after(END).until("", || ledger::close(path).transpose());
    match closed {
        Ok(closed) => closed.map(Some),
        Err(_) => {
            let pids = running(&ledger::read(path)?);
            undone.left.push(still_running(&pids));
            Ok(None)
        }
    }
}

fn remove_cgroups(entries: &[Entry], undone: &mut Undone) {
    for entry in entries {
        let Entry::Cgroups { paths } = entry else { continue };
        let there: Vec<PathBuf> = paths.iter().filter(|path| path.exists()).cloned().collect();
        // The processes in there will be killed: a directory that only looks like a control group is none.
        if let Some(other) = there.iter().find(|path| !cgroup::is_cgroup(path)) {
            undone.left.push(format!("{}: not a control group", other.display()));
            continue;
        }
        match cgroup::remove(&there) {
            Ok(()) => undone.done.extend(there.iter().map(|path| format!("removed {}", path.display()))),
            Err(error) => undone.left.push(error.to_string()),
        }
    }
}

/// Removes sockets of the run, unless another process has put something in their place since.
fn remove_sockets(entries: &[Entry], undone: &mut Undone) {
    for entry in entries {
        let Entry::Socket { path } = entry else { continue };
        if !proxy::is_abandoned(path) {
            continue;
        }
        match fs::remove_file(path) {
            Ok(()) => undone.done.push(format!("removed {}", path.display())),
            Err(error) => undone.left.push(format!("{}: {error}", path.display())),
        }
    }
}

/// Removes the directories of logs that the user did not ask for, and that no report names.
fn remove_scratch(dir: &Path, entries: &[Entry], undone: &mut Undone) {
    let run = dir.file_name().unwrap_or_default().to_string_lossy();
    for entry in entries {
        let Entry::Scratch { path } = entry else { continue };
        if is_kept(path, entries) {
            continue;
        }
        if !ledger::is_own(path, &run) {
            undone.left.push(format!("{}: not a directory of run {run}", path.display()));
            continue;
        }
        match fs::remove_dir_all(path) {
            Ok(()) => undone.done.push(format!("removed {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => undone.left.push(format!("{}: {error}", path.display())),
        }
        path.parent().into_iter().for_each(ledger::leave_logs);
    }
}

/// After another boot nothing that a ledger names exists any more, but for its files.
fn same_boot(entries: &[Entry]) -> bool {
    let boot = ledger::boot_id();
    !entries.iter().any(|entry| matches!(entry, Entry::Run { boot: then, .. } if *then != boot))
}

fn await_processes(entries: &[Entry], undone: &mut Undone) {
    // No process in a sandbox can keep it from ending, not even by waiting for a FUSE server that does not answer:
    // that server is in there, too, and its death ends the wait.
    let ended = || running(entries).is_empty().then_some(());
    if Deadline::after(END).until("", ended).is_err() {
        undone.left.push(still_running(&running(entries)));
    }
}

fn still_running(lives: &[Life]) -> String {
    let pids: Vec<String> = lives.iter().map(|life| life.pid.to_string()).collect();
    match pids.is_empty() {
        true => "a process of the run does not end".to_owned(),
        false => format!("processes {} of the run do not end", pids.join(", ")),
    }
}

/// The keepers and first processes of the run's sandboxes that still run.
fn running(entries: &[Entry]) -> Vec<Life> {
    let lives = entries.iter().flat_map(|entry| match entry {
        Entry::Sandbox { keeper, init, .. } => vec![*keeper, *init],
        _ => Vec::new(),
    });
    lives.filter(|life| life.runs()).collect()
}

fn detach_loops(dir: &Path, entries: &[Entry], undone: &mut Undone) {
    let deadline = Deadline::after(SETTLE);
    loop {
        let around = Surroundings { of_live_runs: devices_of_live_runs(dir), mounted: mounted_anywhere() };
        let all = table::bound();
        let with = |owner| table::lying_on(&all, |bound| ownership::owner(entries, &around, bound) == owner);
        for bound in with(Owner::Run) {
            match table::detach(&bound) {
                Ok(()) => {
                    undone.done.push(format!("detached loop{} ({})", bound.number, bound.backing.display()))
                }
                Err(reason) => undone.left.push(format!("loop{}: {reason}", bound.number)),
            }
        }
        // A process that entered the sandbox from outside may be about to leave it.
        let in_use = with(Owner::StillMounted);
        if !undone.left.is_empty() || in_use.is_empty() {
            return;
        }
        if deadline.passed() {
            let left = |bound: &BoundLoop| format!("loop{}: a process is still in the sandbox", bound.number);
            undone.left.extend(in_use.iter().map(left));
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The devices of the sandboxes that live, of every run but the one in `dir` that is alive. The number of one that
/// is over may be another's by now: the dead run's.
fn devices_of_live_runs(dir: &Path) -> BTreeSet<u64> {
    let siblings = dir.parent().and_then(|base| runs(base).ok()).unwrap_or_default();
    let live = siblings.iter().filter(|other| other.as_path() != dir && is_alive(other));
    let entries = live.flat_map(|other| ledger::read(&other.join("ledger.jsonl")).unwrap_or_default());
    entries
        .flat_map(|entry| match entry {
            Entry::Sandbox { devices, keeper, init, .. } if keeper.runs() || init.runs() => devices,
            _ => Vec::new(),
        })
        .collect()
}

/// Whether a process holds the lock of a run. Asked without taking it: a run that begins must not find it taken.
fn is_alive(dir: &Path) -> bool {
    // In doubt it is alive: then its devices are spared.
    !matches!(probe_lock(&dir.join("alive")), Ok(false))
}

/// Whether a file is locked, by the kernel's list of locks.
fn probe_lock(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path)?;
    let suffix = format!(":{}", metadata.ino());
    let locks = fs::read_to_string("/proc/locks")?;
    // `1: FLOCK  ADVISORY  WRITE 512 fe:00:12345 0 EOF`: device in hexadecimal, inode in decimal.
    Ok(locks.lines().any(|line| line.split_ascii_whitespace().nth(5).is_some_and(|id| id.ends_with(&suffix))))
}

/// The devices of all file systems that are mounted, for each mount namespace with a process in it.
fn mounted_anywhere() -> BTreeMap<u64, BTreeSet<u64>> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let mut found: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for pid in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let Ok(namespace) = ledger::mount_namespace(&pid) else { continue };
        if found.contains_key(&namespace) {
            continue;
        }
        // A process that has just ended shows nothing; another in its namespace may still.
        if let Ok(mounts) = observe::mounts_of(&pid) {
            let devices = mounts.iter().map(|mount| libc::makedev(mount.dev.major, mount.dev.minor));
            found.insert(namespace, devices.collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, Run, RunDirectory};

    #[test]
    fn late_ledger_entry_is_waited_for_and_undone() {
        let base = tempfile::tempdir().unwrap();
        let run = Run::begin(RunDirectory::choose_in(base.path())).unwrap();
        let late = Ledger::open(run.ledger().path()).unwrap();
        let dir = run.end();
        let scratch = base.path().join(ledger::scratch_name(&dir.file_name().unwrap().to_string_lossy()));
        let at_work = std::thread::spawn({
            let (dir, scratch) = (dir.clone(), scratch.clone());
            move || {
                // The janitor closes the ledger of the run that it undoes, so that no new writer can come.
                while ledger::hold(&dir).unwrap().is_some() {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(100));
                late.record(&Entry::Scratch { path: scratch.clone() }).unwrap();
                fs::create_dir(scratch).unwrap();
            }
        });
        let lock = loop {
            if let Some(lock) = ledger::hold(&dir).unwrap() {
                break lock;
            }
        };
        let undone = undo(&dir).unwrap();
        drop(lock);
        at_work.join().unwrap();
        assert_eq!(undone.done, [format!("removed {}", scratch.display())]);
        assert!(!dir.exists() && !scratch.exists());
    }

    #[test]
    fn entry_that_names_what_is_not_the_runs_is_not_carried_out() {
        let base = tempfile::tempdir().unwrap();
        let precious = base.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        for entry in
            [Entry::Scratch { path: precious.clone() }, Entry::Cgroups { paths: vec![precious.clone()] }]
        {
            let run = Run::begin(RunDirectory::choose_in(&base.path().join("runs"))).unwrap();
            run.ledger().record(&entry).unwrap();
            let undone = undo(&run.end()).unwrap();
            assert_eq!(undone.left.len(), 1, "{entry:?}: {undone:?}");
            assert!(precious.join("cgroup.procs").exists(), "{entry:?}");
        }
    }

    #[test]
    fn directory_of_runs_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let open = base.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        for planted in [&open, &link] {
            assert!(matches!(
                Run::begin(RunDirectory::choose_in(planted)),
                Err(LedgerError::NotPrivate { .. } | LedgerError::Io { .. })
            ));
            assert!(matches!(runs(planted), Err(JanitorError::Ledger(LedgerError::NotPrivate { .. }))));
        }
        fs::set_permissions(&open, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(Run::begin(RunDirectory::choose_in(&open)).is_ok());
    }

    #[test]
    fn unreadable_ledger_keeps_no_other_from_being_swept() {
        let base = tempfile::tempdir().unwrap();
        let begin = || Run::begin(RunDirectory::choose_in(base.path())).unwrap();
        let (bad, good) = (begin().end(), begin().end());
        fs::write(bad.join("ledger.jsonl"), "{\"made\":\"from_the_future\"}\n").unwrap();
        let swept = crate::janitor::sweep_in(base.path()).unwrap();
        assert_eq!(swept.len(), 2);
        assert!(bad.exists() && !good.exists());
        let left: Vec<_> = swept.iter().flat_map(|swept| &swept.undone.left).collect();
        assert!(left.len() == 1 && left[0].contains("line 1") && left[0].contains("by hand"), "{left:?}");
    }

    #[test]
    fn a_live_run_has_the_devices_of_its_living_sandboxes_only() {
        let base = tempfile::tempdir().unwrap();
        let begin = || Run::begin(RunDirectory::choose_in(base.path())).unwrap();
        let (dead, live) = (begin(), begin());
        let sandbox = |life, device| Entry::Sandbox {
            name: "case".into(),
            keeper: Life { pid: 0, started: 0 },
            init: life,
            mount_namespace: 7,
            devices: vec![device],
            since: None,
        };
        let alive = Life::mine().unwrap();
        for run in [&dead, &live] {
            let offset = if run.id() == dead.id() { 0 } else { 10 };
            run.ledger().record(&sandbox(alive, 41 + offset)).unwrap();
            run.ledger().record(&sandbox(Life { started: alive.started + 1, ..alive }, 42 + offset)).unwrap();
        }
        assert_eq!(devices_of_live_runs(&dead.end()), BTreeSet::from([51]));
    }

    #[test]
    fn closed_run_takes_no_new_ledger() {
        let base = tempfile::tempdir().unwrap();
        let run = Run::begin(RunDirectory::choose_in(base.path())).unwrap();
        let path = run.ledger().path().to_owned();
        assert!(ledger::close(&path).unwrap().is_none(), "the run has it open");
        run.end();
        let closed = ledger::close(&path).unwrap();
        assert!(closed.is_some());
        Ledger::open(&path).unwrap_err();
    }
}
