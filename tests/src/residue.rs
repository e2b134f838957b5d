//! Possible leftovers of a run on this machine: mounts, bound loop devices, processes, files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process::{MARK, Process};

/// Everything a run might leave, as of one moment. The processes are those that carry a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residue {
    things: BTreeSet<String>,
}

impl Residue {
    /// Looks at the machine. `mark` names the processes that count: see [`Residue::mark`].
    pub fn see(mark: &str) -> Residue {
        let mut things = BTreeSet::new();
        things.extend(mounts());
        things.extend(loop_devices());
        things.extend(processes(mark));
        things.extend(control_groups());
        things.extend(files(mark));
        Residue { things }
    }

    /// The variable and the value that mark the processes of one run.
    pub fn mark() -> (&'static str, String) {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (MARK, format!("{}-{count}", std::process::id()))
    }

    /// The entries that were not there before.
    pub fn since(&self, before: &Residue) -> Vec<String> {
        self.things.difference(&before.things).cloned().collect()
    }
}

/// Looks again until nothing new is left, or the time is over. Returns the leftovers.
///
/// Call it when the run has ended: an entry that appears only after the first look, and is no process of the run, belongs
/// to other work on this machine. A killed run is not gone at once: the kernel takes its namespaces apart, and its janitor
/// has to wake. No time limit is promised for that.
///
/// An entry that another run had at the first look goes with that run at the latest, which may take longer.
pub fn settle(before: &Residue, mark: &str, patience: Duration) -> Vec<String> {
    let deadline = Instant::now() + patience;
    let mut left = Residue::see(mark).since(before);
    let others = others(mark);
    let may_be_theirs = || others.iter().any(|run| is_of_another(run, mark));
    while !left.is_empty() && (Instant::now() < deadline || may_be_theirs()) {
        std::thread::sleep(Duration::from_millis(50));
        let now = Residue::see(mark);
        left.retain(|thing| now.things.contains(thing));
        left.extend(processes(mark).into_iter().filter(|process| !before.things.contains(process)));
        left.sort();
        left.dedup();
    }
    left
}

/// The mounts of our own namespace.
fn mounts() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The target identifies a mount; its id differs each time.
    let target = |line: &str| line.split(' ').nth(4).map(|at| format!("mount {at}"));
    table.lines().filter_map(target).collect()
}

/// Loop devices with something behind them.
fn loop_devices() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let read = |file: &str| fs::read_to_string(device.path().join(file)).ok();
            let backing = read("loop/backing_file")?;
            // The sequence number distinguishes this attachment from a later one of the same device.
            let sequence = read("diskseq").unwrap_or_default();
            let name = device.file_name().to_string_lossy().into_owned();
            Some(format!("{name} over {} ({})", backing.trim(), sequence.trim()))
        })
        .collect()
}

/// Control groups of drivers, in both versions of them.
fn control_groups() -> Vec<String> {
    let tops = ["", "pids", "memory"].map(|top| Path::new("/sys/fs/cgroup").join(top));
    let all = tops.iter().flat_map(|top| fs::read_dir(top).into_iter().flatten().flatten());
    let groups = all.map(|entry| entry.path().display().to_string());
    groups.filter(|path| path.contains("/volproof-")).map(|path| format!("group {path}")).collect()
}

/// Processes that carry the mark.
fn processes(mark: &str) -> Vec<String> {
    Process::marked(mark).iter().map(|process| format!("process {}", process.pid)).collect()
}

/// Files in the directories that a run uses, or must not use.
fn files(mark: &str) -> Vec<String> {
    let mut files = Vec::new();
    for run in fs::read_dir("/run/volproof").into_iter().flatten().flatten() {
        if !is_of_another(&run.path(), mark) {
            files.push(format!("file {}", run.path().display()));
            list(&run.path(), &mut files);
        }
    }
    for directory in ["/var/lib/kubelet", "/var/lib/volproof"] {
        list(Path::new(directory), &mut files);
    }
    files
}

/// The ledgers of runs that are alive and do not carry the mark.
fn others(mark: &str) -> Vec<PathBuf> {
    let runs = fs::read_dir("/run/volproof").into_iter().flatten().flatten().map(|run| run.path());
    runs.filter(|run| is_of_another(run, mark)).collect()
}

/// Whether a run that is alive and does not carry the mark keeps its ledger here.
fn is_of_another(run: &Path, mark: &str) -> bool {
    let Ok(alive) = fs::metadata(run.join("alive")) else { return false };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // `1: FLOCK  ADVISORY  WRITE 512 fe:00:12345 0 EOF`
    let held = locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(4);
        let (pid, file) = (words.next()?, words.next()?);
        file.ends_with(&format!(":{}", alive.ino())).then(|| pid.parse::<i32>().ok())?
    });
    held.is_some_and(|holder| !Process::marked(mark).iter().any(|process| process.pid == holder))
}

fn list(directory: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        files.push(format!("file {}", entry.path().display()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&entry.path(), files);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The positive control of everything that is judged by residue.
    #[test]
    fn a_process_that_is_left_is_seen() {
        let (name, mark) = Residue::mark();
        let before = Residue::see(&mark);
        let mut left = Command::new("sleep").arg("60").env(name, &mark).spawn().expect("a process");
        let process = format!("process {}", left.id());
        // Other runs of the machine mount and unmount beside this test.
        let seen = || {
            let mut seen = Residue::see(&mark).since(&before);
            seen.retain(|line| line.starts_with("process "));
            seen
        };
        // A spawned process has no environment to be known by until its exec has gone all the way.
        let patience = Instant::now() + Duration::from_secs(10);
        while seen().is_empty() && Instant::now() < patience {
            std::thread::yield_now();
        }
        assert_eq!(seen(), [process]);
        left.kill().expect("it can be killed");
        left.wait().expect("it can be waited for");
        assert_eq!(settle(&before, &mark, Duration::from_secs(10)), Vec::<String>::new());
    }
}
