//! The three processes of a sandbox: keeper, PID 1, worker. Creates namespaces and forks; mounts nothing.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getegid, geteuid, setpgid};

use super::{SandboxError, SandboxOptions, shared};
use crate::Layout;
use crate::ledger::{self, Ledger, Life};

/// The exit status of a sandbox whose run is gone.
pub const LOST_LIFELINE: i32 = 125;

/// Added to the number of the signal that ended the worker.
pub const SIGNALLED: i32 = 128;

/// The two processes that stay behind, as the outside knows them.
pub(super) struct Lives {
    pub(super) keeper: Life,
    pub(super) init: Life,
}

/// Leaves the caller waiting, makes the namespaces, and returns in the worker inside them.
pub(super) fn become_init(
    options: &SandboxOptions,
    shared: Option<&Layout>,
    ledger: Option<&Ledger>,
) -> Result<Lives, SandboxError> {
    let keeper = my_life()?;
    // First, so that this process cannot outlive the run if a later step fails.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| process("ask to die with the parent", e))?;
    if options.own_group {
        // A session leader cannot change its group, and does not need to.
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    }
    match shared {
        Some(_) => unshare(CloneFlags::CLONE_NEWPID)
            .map_err(|e| SandboxError::Namespaces { what: "PID", source: e.into() })?,
        None => create_namespaces(options.user_namespace)?,
    }
    // PDEATHSIG misses a parent that died before it was asked for; the end of this pipe misses nothing.
    let (alive, keep_alive) =
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| process("make the keeper's pipe", e))?;
    // SAFETY: `Sandbox::enter` has seen that this process has one thread, so the child may do anything.
    match unsafe { fork() }.map_err(|e| process("fork PID 1 of the sandbox", e))? {
        ForkResult::Parent { child } => keep(child, &keep_alive, shared, ledger),
        ForkResult::Child => {
            drop(keep_alive);
            fork_worker(options.lifeline.as_ref().map(AsFd::as_fd), alive, keeper)
        }
    }
}

/// A namespace belongs to a thread, and so does a fork.
pub(super) fn refuse_threads() -> Result<(), SandboxError> {
    let path = "/proc/self/task";
    let tasks = fs::read_dir(path).map_err(|source| SandboxError::Path { path: path.into(), source })?;
    match tasks.count() {
        1 => Ok(()),
        count => Err(SandboxError::Threads { count }),
    }
}

/// Ends this process if its run has ended already.
pub(super) fn refuse_to_outlive(lifeline: Option<&OwnedFd>) {
    let Some(lifeline) = lifeline else { return };
    let mut watched = [PollFd::new(lifeline.as_fd(), PollFlags::empty())];
    let polled = poll(&mut watched, PollTimeout::ZERO);
    if polled.is_ok() && watched[0].any().unwrap_or(false) {
        std::process::exit(LOST_LIFELINE);
    }
}

fn create_namespaces(user_namespace: bool) -> Result<(), SandboxError> {
    let inner = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    if !user_namespace {
        return unshare(inner)
            .map_err(|e| SandboxError::Namespaces { what: "mount and PID", source: e.into() });
    }
    // The ids of outside, read before they become the overflow ids of an unmapped namespace.
    let (uid, gid) = (geteuid(), getegid());
    unshare(inner | CloneFlags::CLONE_NEWUSER)
        .map_err(|e| SandboxError::Namespaces { what: "user, mount and PID", source: e.into() })?;
    // An unprivileged process may map its group only after it gave up setgroups.
    write_map("/proc/self/setgroups", "deny")?;
    write_map("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write_map("/proc/self/gid_map", &format!("0 {gid} 1"))
}

fn write_map(file: &'static str, line: &str) -> Result<(), SandboxError> {
    fs::write(file, line).map_err(|source| SandboxError::IdMap { file, source })
}

/// The keeper: waits for PID 1 and ends as it did. What the sandbox shared with the machine it takes away. Until
/// then the ledger stays open.
fn keep(init: Pid, keep_alive: &OwnedFd, shared: Option<&Layout>, ledger: Option<&Ledger>) -> ! {
    let _ = prctl::set_name(c"volproof-keeper");
    let mut kept = vec![keep_alive.as_raw_fd()];
    kept.extend(ledger.map(|ledger| ledger.as_fd().as_raw_fd()));
    close_all_but(&mut kept);
    let code = loop {
        match waitpid(init, None) {
            Ok(WaitStatus::Exited(_, code)) => break code,
            Ok(WaitStatus::Signaled(_, signal, _)) => break SIGNALLED + signal as i32,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => break LOST_LIFELINE,
        }
    };
    shared.into_iter().for_each(shared::take_away);
    std::process::exit(code)
}

/// In PID 1: forks the worker and returns there; PID 1 itself stays behind and reaps.
fn fork_worker(
    lifeline: Option<BorrowedFd<'_>>,
    alive: OwnedFd,
    keeper: Life,
) -> Result<Lives, SandboxError> {
    // `/proc` is still that of the outer namespace.
    let init = my_life()?;
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| process("ask to die with the keeper", e))?;
    // Blocked before the fork: a worker that ends at once is still seen.
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&children), Some(&mut before))
        .map_err(|e| process("block SIGCHLD", e))?;
    let signals = SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(|e| process("watch for SIGCHLD", e))?;
    // Named before the fork, so that the worker never meets a nameless PID 1; it takes its own name back.
    let own_name = prctl::get_name().unwrap_or_default();
    let _ = prctl::set_name(c"volproof-init");
    // SAFETY: this process was forked from one with a single thread and has started none.
    match unsafe { fork() }.map_err(|e| process("fork the worker", e))? {
        ForkResult::Parent { child } => reap(child, lifeline, &alive, &signals),
        ForkResult::Child => {
            let _ = prctl::set_name(&own_name);
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)
                .map(|()| Lives { keeper, init })
                .map_err(|e| process("unblock SIGCHLD", e))
        }
    }
}

/// The name of the mount namespace we are in.
pub(super) fn mount_namespace() -> Result<u64, SandboxError> {
    ledger::mount_namespace("self")
        .map_err(|source| SandboxError::Path { path: "/proc/self/ns/mnt".into(), source })
}

fn my_life() -> Result<Life, SandboxError> {
    let source = || io::Error::from(io::ErrorKind::NotFound);
    Life::mine().ok_or_else(|| SandboxError::Path { path: "/proc/self".into(), source: source() })
}

/// PID 1: reaps orphaned processes, and ends with the worker, the keeper or the run.
///
/// Its end is the end of everything in the namespace, so there is nothing to tidy.
fn reap(worker: Pid, lifeline: Option<BorrowedFd<'_>>, keeper: &OwnedFd, signals: &SignalFd) -> ! {
    let mut kept = vec![keeper.as_raw_fd(), signals.as_raw_fd()];
    kept.extend(lifeline.map(|fd| fd.as_raw_fd()));
    close_all_but(&mut kept);
    loop {
        // No events asked for: only the end of a pipe wakes us, never a byte in it.
        let mut watched = vec![
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(keeper.as_fd(), PollFlags::empty()),
        ];
        watched.extend(lifeline.map(|fd| PollFd::new(fd, PollFlags::empty())));
        if poll(&mut watched, PollTimeout::NONE).is_err() {
            continue;
        }
        if watched[1..].iter().any(|end| end.any().unwrap_or(false)) {
            std::process::exit(LOST_LIFELINE);
        }
        while let Ok(Some(_)) = signals.read_signal() {}
        bury_all(worker);
    }
}

fn bury_all(worker: Pid) {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == worker => std::process::exit(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == worker => {
                std::process::exit(SIGNALLED + signal as i32)
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Closes every descriptor above stderr but these.
///
/// The worker's report ends when the last copy of its descriptor closes; one kept here would hide its death.
fn close_all_but(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept.iter().copied().filter(|fd| *fd >= 3) {
        if fd > first {
            close_range(first as u32, (fd - 1) as u32);
        }
        first = fd + 1;
    }
    close_range(first as u32, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the callers never return, so no code uses a descriptor that is closed here.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

fn process(what: &'static str, source: Errno) -> SandboxError {
    SandboxError::Process { what, source: io::Error::from(source) }
}
