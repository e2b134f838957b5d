//! One worker process, from its start to its end.
//!
//! The run holds the write end of the worker's lifeline. Whatever becomes of the run, the kernel closes it,
//! and the worker's whole sandbox dies.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use harness::container::TERMINAL;
use harness::load;
use harness::private;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::kept::Kept;
use crate::message::{Assignment, LIFELINE_FD, REPORT_FD, Said, TURNS_FD};

/// The time after its own deadline at which a worker is killed.
pub(super) const GRACE: Duration = Duration::from_secs(15);

/// The end of a worker.
#[derive(Debug)]
pub enum Ended {
    /// By itself. What it said last is what counts.
    Exited(ExitStatus),
    /// It was past its deadline and the grace after it, and was killed. These of its processes got nowhere.
    Hung(Vec<String>),
    /// The run gave it up.
    Cancelled,
    /// It has said everything, and its sandbox stays.
    Kept(Kept),
    /// The guest it ran in did not come up, or died: why.
    Lost(String),
    /// The guest it ran in had not come up when its time was over.
    Late(String),
}

/// Runs one worker to its end. Every line it says goes to `hear`; when `cancel` resolves, it is ended.
pub async fn run(assignment: &Assignment, hear: impl FnMut(Said), cancel: impl Future) -> io::Result<Ended> {
    run_in_turn(assignment, None, hear, cancel).await
}

/// As [`run`], for a worker that takes its cases from there.
pub(super) async fn run_in_turn(
    assignment: &Assignment,
    turns: Option<BorrowedFd<'_>>,
    mut hear: impl FnMut(Said),
    cancel: impl Future,
) -> io::Result<Ended> {
    let (child, lines, lifeline) = start(assignment, turns).await?;
    let mut worker = Kept::new(child, lifeline);
    let mut lines = BufReader::new(lines).lines();
    let deadline = load::limit_reached(assignment.limit() + GRACE);
    tokio::pin!(cancel, deadline);
    let mut ended = None;
    loop {
        tokio::select! {
            biased;
            line = lines.next_line() => match line? {
                // A line that is no message is a bug in the worker; the case then lacks its outcome.
                Some(line) => match serde_json::from_str(&line) {
                    Ok(Said::Kept) => return Ok(Ended::Kept(worker)),
                    Ok(said) => hear(said),
                    Err(_) => {}
                },
                None => break,
            },
            _ = &mut deadline, if ended.is_none() => { ended = Some(Ended::Hung(worker.stuck())); break }
            _ = &mut cancel, if ended.is_none() => { ended = Some(Ended::Cancelled); break }
        }
    }
    match ended {
        Some(ended) => worker.let_go().await.map(|()| ended),
        None => worker.ended().await.map(Ended::Exited),
    }
}

async fn start(
    assignment: &Assignment,
    turns: Option<BorrowedFd<'_>>,
) -> io::Result<(Child, pipe::Receiver, OwnedFd)> {
    let (report_read, report_write) = high_pipe()?;
    let (lifeline_read, lifeline_write) = high_pipe()?;
    let log = private::create(&assignment.orders.directory.join("worker.log"))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("__worker").stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
    // Driver and node inherit it.
    command.env("PATH", harness::facts::search_path());
    // A terminal's Ctrl-C is for the run alone: it ends its workers itself.
    command.process_group(0).kill_on_drop(true);
    let mut pairs = vec![(report_write.as_raw_fd(), REPORT_FD), (lifeline_read.as_raw_fd(), LIFELINE_FD)];
    let terminal = if assignment.task.needs_terminal() { terminal()? } else { vec![] };
    pairs.extend(terminal.iter().map(AsRawFd::as_raw_fd).zip(TERMINAL));
    pairs.extend(turns.map(|turns| (turns.as_raw_fd(), TURNS_FD)));
    // SAFETY: between fork and exec only dup2 is called, which is async-signal-safe, on descriptors that
    // live until the end of this function.
    unsafe { command.pre_exec(move || pairs.iter().try_for_each(|(from, to)| place(*from, *to))) };
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(&serde_json::to_vec(assignment).map_err(io::Error::other)?).await?;
    drop(stdin);
    fcntl(&report_read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((child, pipe::Receiver::from_owned_fd(report_read)?, lifeline_write))
}

fn place(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: dup2 takes any two numbers; the copy is meant to survive exec.
    match unsafe { libc::dup2(from, to) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A pipe whose descriptors are out of the way of the fixed ones and do not survive exec.
pub(super) fn high_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    Ok((high(&read)?, high(&write)?))
}

/// Copies of this process's input, output and errors.
fn terminal() -> io::Result<Vec<OwnedFd>> {
    Ok(vec![high(io::stdin())?, high(io::stdout())?, high(io::stderr())?])
}

fn high(descriptor: impl AsFd) -> io::Result<OwnedFd> {
    let raw = fcntl(descriptor, FcntlArg::F_DUPFD_CLOEXEC(10))?;
    // SAFETY: the descriptor was made one line above and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
