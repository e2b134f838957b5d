//! Processes that make no progress: stopped, or asleep in the kernel where no signal reaches them. Reads
//! `/proc`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use super::process::{self, Process};

/// A process with at least one thread that makes no progress.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stuck {
    name: String,
    pid: i32,
    /// The kernel function that it sleeps in; empty if it is stopped.
    asleep: Option<String>,
}

impl Stuck {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether a signal has stopped it, so that it waits for no processor and for no disk.
    pub fn is_stopped(&self) -> bool {
        self.asleep.is_none()
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, pid, asleep } = self;
        match asleep.as_deref() {
            None => write!(f, "stopped: {name}[{pid}]"),
            Some("") => write!(f, "asleep in the kernel: {name}[{pid}]"),
            Some(at) => write!(f, "asleep in the kernel: {name}[{pid}], in {at}"),
        }
    }
}

/// The kernel function that waits for the server of a FUSE file system.
const FUSE: &str = "request_wait_answer";

/// The processes of our PID namespace that make no progress at this moment. A process that waits for a disk is
/// briefly in that state, too: only one that is in two looks is stuck.
pub fn stuck() -> BTreeSet<Stuck> {
    among(process::ours())
}

/// The stuck processes in the sandbox of a keeper, seen from outside.
pub fn stuck_in_sandbox(keeper: i32) -> BTreeSet<Stuck> {
    let namespace = fs::read_link(format!("/proc/{keeper}/ns/pid_for_children"));
    namespace.map_or_else(|_| BTreeSet::new(), |namespace| among(process::of_namespace(&namespace)))
}

fn among(processes: Vec<Process>) -> BTreeSet<Stuck> {
    let mut found = BTreeSet::new();
    for process in processes {
        let threads = fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten();
        for thread in threads {
            // The file reads `0` where the kernel does not show it.
            let place = || fs::read_to_string(thread.path().join("wchan")).unwrap_or_default();
            let place = || place().trim_start_matches('0').to_owned();
            let asleep = match process::state(&thread.path()) {
                Some('T') => None,
                Some('D') => Some(place()),
                // No signal wakes this one either, once its request has been taken up.
                Some('S') => match place() {
                    place if place == FUSE => Some(place),
                    _ => continue,
                },
                _ => continue,
            };
            found.insert(Stuck { name: process.name.clone(), pid: process.pid, asleep });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;
    use crate::wait::Deadline;

    #[test]
    fn stopped_process_is_named_and_a_sleeping_one_is_not() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        let named = || stuck().into_iter().find(|stuck| stuck.pid == pid.as_raw());
        // While it is executed it may wait for its disk.
        let sleeps = || named().is_none().then_some(());
        Deadline::after(Duration::from_secs(10)).until("a sleeping process is stuck", sleeps).unwrap();
        kill(pid, Signal::SIGSTOP).unwrap();
        let seen = Deadline::after(Duration::from_secs(10)).until("no process is stopped", named);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen.unwrap().to_string(), format!("stopped: sleep[{pid}]"));
    }
}
