//! Programs the guest runs by order: each in a process group of its own, with a deadline.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::descriptors::hand_over;
use crate::guest::Voice;
use crate::protocol::{Exit, Run, Told};

/// The time for a killed program to end before it counts as stuck.
const GRACE: Duration = Duration::from_secs(5);

/// The programs that run now, by the id of their order.
#[derive(Clone)]
pub(crate) struct Programs {
    voice: Voice,
    groups: Arc<Mutex<BTreeMap<u64, Pid>>>,
}

impl Programs {
    pub(crate) fn new(voice: Voice) -> Self {
        Self { voice, groups: Arc::default() }
    }

    /// Starts a program. Its end is reported later.
    pub(crate) fn start(&self, run: Run) {
        let programs = self.clone();
        thread::spawn(move || {
            let id = run.id;
            let exit = programs.run(run).unwrap_or_else(|error| Exit {
                id,
                error: Some(error.to_string()),
                ..Exit::default()
            });
            programs.groups.lock().unwrap_or_else(|p| p.into_inner()).remove(&id);
            programs.voice.tell(&Told::Exit(exit));
        });
    }

    /// Kills a program's whole group, if it still runs.
    pub(crate) fn kill(&self, id: u64) {
        if let Some(group) = self.groups.lock().unwrap_or_else(|p| p.into_inner()).get(&id) {
            let _ = killpg(*group, Signal::SIGKILL);
        }
    }

    fn run(&self, run: Run) -> io::Result<Exit> {
        run.makes.iter().try_for_each(fs::create_dir_all)?;
        let deadline = Instant::now() + Duration::from_millis(run.timeout_ms);
        let mut started = Started::spawn(&run)?;
        let group = Pid::from_raw(i32::try_from(started.child.id()).map_err(io::Error::other)?);
        self.groups.lock().unwrap_or_else(|p| p.into_inner()).insert(run.id, group);
        let pumps = started.outputs.drain(..).map(|(fd, from)| self.pump(run.id, fd, from)).collect();
        if let Some(mut stdin) = started.child.stdin.take() {
            // An error means that the program does not read its input; its exit code shows why.
            let _ = stdin.write_all(run.stdin.as_bytes());
        }
        Ok(self.wait(run.id, group, &mut started.child, deadline, pumps))
    }

    fn wait(
        &self,
        id: u64,
        group: Pid,
        child: &mut Child,
        deadline: Instant,
        pumps: Vec<JoinHandle<()>>,
    ) -> Exit {
        let mut exit = Exit { id, ..Exit::default() };
        let mut status = wait_until(child, deadline);
        if status.is_none() {
            exit.timed_out = true;
            // Tells the kernel log where every blocked task waits, before the evidence is killed.
            let _ = fs::write("/proc/sysrq-trigger", "w");
            let _ = killpg(group, Signal::SIGKILL);
            status = wait_until(child, Instant::now() + GRACE);
        }
        match status {
            Some(status) => {
                exit.code = status.code();
                exit.signal = status.signal();
                // All output is sent before the exit.
                for pump in pumps {
                    let _ = pump.join();
                }
            }
            None => exit.stuck = true,
        }
        exit
    }

    fn pump(&self, id: u64, fd: RawFd, mut from: impl Read + Send + 'static) -> JoinHandle<()> {
        let voice = self.voice.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 16 << 10];
            let mut held = Vec::new();
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                held.extend_from_slice(&buffer[..read]);
                // A letter whose other half comes with the next read waits for it.
                let whole = held.len() - cut_letter(&held);
                let data = String::from_utf8_lossy(&held[..whole]).into_owned();
                held.drain(..whole);
                voice.tell(&Told::Output { id, fd, data });
            }
        })
    }
}

/// The number of bytes at the end that begin an incomplete character.
fn cut_letter(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        _ => 0,
    }
}

/// Runs a program with the console as its terminal, until it ends.
pub(crate) fn on_the_console(program: &str) -> io::Result<ExitStatus> {
    let open = || File::options().read(true).write(true).open("/dev/ttyS0");
    let mut command = Command::new(program);
    command.env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin").env("HOME", "/root").env("TERM", "linux");
    command.current_dir("/root").stdin(open()?).stdout(open()?).stderr(open()?);
    // SAFETY: both are single system calls.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            if libc::ioctl(0, libc::TIOCSCTTY as _, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.status()
}

/// A program just started, and the ends of its pipes that are ours.
struct Started {
    child: Child,
    outputs: Vec<(RawFd, File)>,
    /// Held for as long as the program may live.
    _lifeline: Option<PipeWriter>,
}

impl Started {
    fn spawn(run: &Run) -> io::Result<Self> {
        let (program, arguments) = run.argv.split_first().ok_or_else(|| io::Error::other("no program"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).process_group(0);
        command.env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin").env("HOME", "/root").envs(&run.env);
        let mut outputs = Vec::new();
        let mut handed: Vec<(OwnedFd, RawFd)> = Vec::new();
        for fd in [1, 2].iter().chain(&run.also) {
            let (from, to) = io::pipe()?;
            outputs.push((*fd, File::from(OwnedFd::from(from))));
            handed.push((to.into(), *fd));
        }
        let mut lifeline = None;
        if let Some(fd) = run.lifeline {
            let (from, to) = io::pipe()?;
            handed.push((from.into(), fd));
            lifeline = Some(to);
        }
        hand_over(&mut command, handed);
        Ok(Self { child: command.spawn()?, outputs, _lifeline: lifeline })
    }
}

fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_not_cut_in_two() {
        assert_eq!(cut_letter("né".as_bytes()), 0);
        assert_eq!(cut_letter(&"né".as_bytes()[..2]), 1);
        assert_eq!(cut_letter(b"\xff\xfe"), 0);
    }
}
