//! FUSE mounts: starts and ends the daemon of one, and asks whether it answers.
//!
//! Nothing here waits without a limit for a daemon: it may hang.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::MntFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{KernelError, mount};
use crate::daemon::{READY, SUBCOMMAND};

/// The time for a daemon to answer a question that needs no disk.
const PATIENCE: Duration = Duration::from_secs(3);

/// The time for a daemon to end.
const ENDING: Duration = Duration::from_secs(5);

/// Starts a daemon that shows a directory at a path, and waits until it has mounted.
pub(crate) fn start(directory: &Path, at: &Path, lingers: bool) -> Result<(), KernelError> {
    let failed = |source: io::Error| KernelError::pair("serve", directory, at, source);
    let mut command = Command::new("/proc/self/exe");
    // The driver may be a subcommand itself.
    let own = std::env::args_os().skip(1);
    command.args(own.take_while(|argument| !argument.to_string_lossy().starts_with('-')));
    command.arg(SUBCOMMAND).args([directory, at]).args(lingers.then_some("--lingers"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let mut said = String::new();
    let read = BufReader::new(out.expect("it is a pipe")).read_line(&mut said);
    if said.trim() == READY {
        // Waited for, so that it leaves no zombie.
        std::thread::spawn(move || child.wait());
        return Ok(());
    }
    drop((read, child.kill(), child.wait()));
    let mut said = String::new();
    let _ = errors.expect("it is a pipe").read_to_string(&mut said);
    Err(failed(io::Error::other(said.trim().to_owned())))
}

/// Whether the file system at a path answers.
pub(crate) fn is_served(path: &Path) -> bool {
    measure(path).is_some()
}

/// A question to the file system of a device, and when it was asked.
type Question = ((u32, u32), Instant);

/// The questions without an answer.
static OPEN: Mutex<Vec<Question>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<Question>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the file system at a path how large it is. None if it does not answer in time.
pub(crate) fn measure(path: &Path) -> Option<rustix::fs::StatVfs> {
    let found = mount::look_at(path).ok()?;
    let device = (found.stx_dev_major, found.stx_dev_minor);
    let question = (device, Instant::now());
    {
        let mut open = open();
        if open.iter().any(|(other, asked)| *other == device && asked.elapsed() >= PATIENCE) {
            // It still waits for its daemon: another thread would wait beside the first.
            return None;
        }
        open.push(question);
    }
    let (sender, receiver) = mpsc::channel();
    let path = path.to_owned();
    // A thread whose question hangs is let go when the daemon is killed.
    std::thread::spawn(move || {
        let measured = rustix::fs::statvfs(&path);
        self::open().retain(|other| *other != question);
        // A late answer has no receiver any more.
        drop(sender.send(measured));
    });
    receiver.recv_timeout(PATIENCE).ok()?.ok()
}

/// Unmounts all mounts at a path of a FUSE file system. Those of a daemon that does not answer are detached also when
/// they are in use: each use of one fails or waits.
pub(crate) fn unmount_all(path: &Path) -> Result<(), KernelError> {
    while mount::is_mount_point(path)? {
        match mount::unmount_one(path, MntFlags::empty()) {
            Err(error) if error.errno() == Some(Errno::EBUSY as i32) && !is_served(path) => {
                mount::unmount_one(path, MntFlags::MNT_DETACH)?;
            }
            done => done?,
        }
    }
    Ok(())
}

/// Kills the daemons that show a directory at a path. With that each call that waits for one fails.
pub(crate) fn end(directory: &Path, at: &Path) -> Result<(), KernelError> {
    let end = Instant::now() + ENDING;
    loop {
        let found = daemons(directory, at);
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(KernelError::path("end the daemon of", at, io::Error::from(io::ErrorKind::TimedOut)));
        }
        for pid in found {
            // One that has ended meanwhile is gone.
            let _ = kill(pid, Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// By their command lines: they outlive the driver that has started them.
fn daemons(directory: &Path, at: &Path) -> Vec<Pid> {
    let mut wanted = Vec::new();
    for argument in [Path::new(SUBCOMMAND), directory, at] {
        wanted.extend_from_slice(argument.as_os_str().as_encoded_bytes());
        wanted.push(0);
    }
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_wanted = |process: &PathBuf| {
        // A zombie has no command line.
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        line.windows(wanted.len()).any(|part| part == wanted)
    };
    let pid = |process: PathBuf| process.file_name()?.to_str()?.parse().ok().map(Pid::from_raw);
    processes.map(|entry| entry.path()).filter(is_wanted).filter_map(pid).collect()
}
