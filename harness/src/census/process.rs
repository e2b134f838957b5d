//! The processes of a PID namespace, as its `/proc` shows them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A running process. Two are equal if they are the same process; the same number is not enough.
#[derive(Debug, Clone)]
pub struct Process {
    /// The process number in our namespace.
    pub pid: i32,
    /// Its name: at most 15 bytes.
    pub name: String,
    /// Start time in clock ticks since boot. A pid may be used again, but not with the same start time.
    pub started: u64,
    /// The pid of its parent, or of the process that it was reparented to.
    pub parent: i32,
    /// Whether it has ended and its parent has not waited for it.
    pub zombie: bool,
}

impl PartialEq for Process {
    fn eq(&self, other: &Process) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }
}

impl Eq for Process {}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.name, self.pid)?;
        if self.zombie { f.write_str(" (ended, not waited for)") } else { Ok(()) }
    }
}

/// Every process, by number. Threads of the kernel are left out.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<Process> = pids.filter_map(get).filter(|p| !is_kernel(p)).collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// The processes of our own PID namespace, by number. `/proc` may belong to a namespace around it and show more.
pub fn ours() -> Vec<Process> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let mine = namespace("self");
    let mut found = all();
    // If pid 1 of this `/proc` is in our namespace, all are. A zombie shows no namespace, so it cannot be compared.
    if namespace("1") != mine {
        found.retain(|process| namespace(&process.pid.to_string()) == mine);
    }
    found
}

/// The processes of a PID namespace, by number, without zombies: a zombie shows no namespace.
pub(super) fn of_namespace(namespace: &Path) -> Vec<Process> {
    let mut found = all();
    found.retain(|process| {
        fs::read_link(format!("/proc/{}/ns/pid", process.pid)).is_ok_and(|own| own == namespace)
    });
    found
}

/// One process, if it exists.
pub fn get(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = split(&stat)?;
    let name = head.split_once('(')?.1.to_owned();
    let mut fields = tail.split_ascii_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // `starttime` is the 22nd field; the parent was the fourth.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { pid, name, started, parent, zombie })
}

/// The state letter of a process or a thread, such as `D`; `of` is its directory in `/proc`.
pub(super) fn state(of: &Path) -> Option<char> {
    let stat = fs::read_to_string(of.join("stat")).ok()?;
    split(&stat)?.1.trim_start().chars().next()
}

/// Splits a `stat` line at the end of the name, which is in brackets and may itself contain brackets.
fn split(stat: &str) -> Option<(&str, &str)> {
    stat.rsplit_once(')')
}

/// Kernel threads have no command line and no executable. Neither has a zombie, so it is left out first.
fn is_kernel(process: &Process) -> bool {
    !process.zombie
        && fs::read(format!("/proc/{}/cmdline", process.pid)).is_ok_and(|line| line.is_empty())
        && fs::read_link(format!("/proc/{}/exe", process.pid)).is_err()
}

/// The paths of a process's open descriptors, working directory, root and executable.
pub(super) fn open_paths(pid: i32) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) {
        paths.extend(descriptors.flatten().filter_map(|fd| fs::read_link(fd.path()).ok()));
    }
    paths
        .extend(["cwd", "root", "exe"].iter().filter_map(|n| fs::read_link(format!("/proc/{pid}/{n}")).ok()));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_listed() {
        let me = get(std::process::id() as i32).unwrap();
        assert!(all().contains(&me));
        assert!(!me.zombie);
    }

    #[test]
    fn kernel_threads_are_not_listed() {
        assert!(!all().iter().any(|process| process.name == "kthreadd"));
    }
}
