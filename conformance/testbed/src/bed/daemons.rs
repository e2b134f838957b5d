//! Processes of the driver beside the one that it was started as: daemons that serve its volumes through FUSE, and programs
//! that it runs. Sends them signals, and touches no file of a volume: a look at one may hang.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::census::process::{self, Process};
use harness::cgroup::Cgroup;
use harness::observe;
use harness::wait::Deadline;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::JoinHandle;

use super::{Bed, Result, StepError};

/// The time for a killed process to end.
const ENDING: Duration = Duration::from_secs(5);

/// The name of the process of our own FUSE file systems.
const OURS: &str = "faultfs";

/// A watch for a program of the driver.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) found: JoinHandle<Option<Process>>,
    ends: Arc<AtomicBool>,
}

impl Watch {
    /// Ends it. The program that it has stopped meanwhile.
    pub(crate) async fn end(mut self) -> Option<Process> {
        self.ends.store(true, Ordering::Relaxed);
        (&mut self.found).await.ok().flatten()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

impl Bed {
    /// The processes of the driver, except the one that it was started as, that serve a FUSE file system.
    pub(crate) fn fuse_daemons(&self) -> Vec<Process> {
        let main = self.driver().try_lock().ok().and_then(|driver| driver.pid()).map(Pid::as_raw);
        let is_daemon = |process: &Process| {
            Some(process.pid) != main && process.name != OURS && !process.zombie && serves_fuse(process.pid)
        };
        self.members().into_iter().filter_map(process::get).filter(is_daemon).collect()
    }

    /// Continues a process that was stopped.
    pub(crate) fn let_go_on(&self, program: &Process) {
        signal(std::slice::from_ref(program), Signal::SIGCONT);
    }

    fn members(&self) -> Vec<i32> {
        members_of(self.cgroup())
    }

    /// Watches for the first program that the driver starts from now on, and stops it.
    pub(crate) fn stop_next_program(&self) -> Watch {
        let before: BTreeSet<i32> = self.members().into_iter().collect();
        let (cgroup, ends) = (self.cgroup.clone(), Arc::new(AtomicBool::new(false)));
        let is_over = Arc::clone(&ends);
        // On a thread without a pause: a program may run for a few milliseconds.
        let found = tokio::task::spawn_blocking(move || {
            while !is_over.load(Ordering::Relaxed) {
                let now = members_of(cgroup.as_deref());
                let new = now.into_iter().filter(|pid| !before.contains(pid));
                if let Some(program) = new.into_iter().find_map(stopped) {
                    return Some(program);
                }
            }
            None
        });
        Watch { found, ends }
    }

    /// Notes a process that was stopped, so that it is killed at the latest at the end of the case.
    pub(crate) fn remember_stopped(&self, program: &Process) {
        self.made.hung.borrow_mut().push(program.clone());
    }

    /// Stops daemons until they are killed, at the latest at the end of the case.
    pub(crate) fn stop_daemons(&self, daemons: &[Process]) -> Result {
        self.made.hung.borrow_mut().extend(daemons.iter().cloned());
        signal(daemons, Signal::SIGSTOP);
        let all_stopped = || daemons.iter().all(|daemon| has_stopped(daemon.pid)).then_some(());
        Deadline::after(ENDING)
            .until("a daemon of the driver that was stopped runs on", all_stopped)
            .map_err(|error| StepError::ours(&error))
    }

    /// Kills daemons, and returns when they have ended.
    pub(crate) fn kill_daemons(&self, daemons: &[Process]) -> Result {
        signal(daemons, Signal::SIGKILL);
        let all_ended = || daemons.iter().all(has_ended).then_some(());
        Deadline::after(ENDING)
            .until("a daemon of the driver that was killed runs on", all_ended)
            .map_err(|error| StepError::ours(&error))
    }

    /// Kills the daemons that the case has stopped: calls, and all that looks at a volume, would wait for them.
    pub(super) fn end_hung_daemons(&self) {
        signal(&self.made.hung.take(), Signal::SIGKILL);
    }
}

/// Whether a path is the mount point of a FUSE file system.
pub(crate) fn is_fuse(path: &Path) -> Result<bool> {
    let mounts = observe::snapshot().map_err(|error| StepError::ours(&error))?;
    let topmost = mounts.iter().rfind(|mount| mount.target == path);
    Ok(topmost.is_some_and(|mount| mount.fstype == "fuse" || mount.fstype.starts_with("fuse.")))
}

/// By the name of what is open alone: a file of a volume may not be looked at.
fn serves_fuse(pid: i32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|path| path.starts_with("/dev") && path.file_name().is_some_and(|name| name == "fuse"))
}

/// The processes of a control group; without one all of the sandbox.
fn members_of(cgroup: Option<&Cgroup>) -> Vec<i32> {
    match cgroup {
        Some(cgroup) => cgroup.members(),
        None => process::ours().iter().map(|process| process.pid).collect(),
    }
}

/// Stops a program. None if it ends before that, or has not begun: a child that is stopped before it becomes a program of its
/// own stops the parent that waits for that, which no program that hangs can do.
fn stopped(pid: i32) -> Option<Process> {
    let found = process::get(pid).filter(|found| !found.zombie)?;
    let command = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if command(pid) == command(found.parent) {
        return None;
    }
    signal(std::slice::from_ref(&found), Signal::SIGSTOP);
    let settled = || (has_stopped(pid) || has_ended(&found)).then_some(());
    Deadline::after(ENDING).until("", settled).ok()?;
    has_stopped(pid).then_some(found)
}

/// Whether all threads of a process have stopped: one that has not may still answer.
fn has_stopped(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = threads.map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next())
    });
    let first = states.next().is_some_and(|state| state == Some('T'));
    first && states.all(|state| state == Some('T'))
}

/// Whether a process and all its threads are gone, and with them what they had open.
fn has_ended(daemon: &Process) -> bool {
    let now = process::get(daemon.pid).filter(|now| now == daemon);
    let threads = || std::fs::read_dir(format!("/proc/{}/task", daemon.pid)).map_or(0, Iterator::count);
    now.is_none_or(|now| now.zombie && threads() < 2)
}

fn signal(daemons: &[Process], signal: Signal) {
    // The number of one that has ended may be another's.
    let same = daemons.iter().filter(|daemon| process::get(daemon.pid).is_some_and(|now| now == **daemon));
    for daemon in same {
        // One that has ended meanwhile needs no signal.
        let _ = kill(Pid::from_raw(daemon.pid), signal);
    }
}
