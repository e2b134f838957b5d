//! A program that runs in a container for a user who wants to look around: at the terminal of the run, with the
//! programs of the machine. Changes a configuration, or starts one process.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{Pid, getpid, setpgid};
use oci_spec::runtime::{Mount, MountBuilder, Process, Spec};

/// The descriptors on which a container has the user's terminal: input, output and errors.
pub const TERMINAL: [RawFd; 3] = [5, 6, 7];

/// The directories of the machine that programs need.
const PROGRAMS: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];

/// The files that they look into.
const FILES: [&str; 5] =
    ["/etc/passwd", "/etc/group", "/etc/ld.so.cache", "/etc/alternatives", "/etc/terminfo"];

/// The `PATH` of a container that has none.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Gives a container the machine's programs in place of an image: read-only, and below its volumes.
///
/// # Errors
/// When the place for a volume among them cannot be made.
pub fn bring_programs(spec: &mut Spec) -> io::Result<()> {
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for mount in &mounts {
        make_place(mount)?;
    }
    let brought = PROGRAMS.iter().chain(&FILES).filter(|path| Path::new(path).exists());
    let brought: Vec<Mount> = brought.map(|path| read_only(path)).collect();
    mounts.splice(0..0, brought);
    spec.set_mounts(Some(mounts));
    if let Some(process) = spec.process_mut() {
        give_environment(process);
    }
    Ok(())
}

fn read_only(path: &str) -> Mount {
    let options = ["rbind", "rro", "rprivate"].map(str::to_owned).to_vec();
    let mount = MountBuilder::default().destination(path).source(path).typ("bind").options(options);
    mount.build().expect("it has all that a mount needs")
}

/// A volume that lies among the programs needs a place there, and in there nothing can be made. The machine that is
/// written to is the sandbox's.
fn make_place(mount: &Mount) -> io::Result<()> {
    let destination = mount.destination();
    if !PROGRAMS.iter().any(|programs| destination.starts_with(programs)) || destination.exists() {
        return Ok(());
    }
    let is_file = mount.source().as_ref().is_some_and(|source| source.is_file());
    match (is_file, destination.parent()) {
        (true, Some(parent)) => {
            std::fs::create_dir_all(parent)?;
            File::create(destination).map(drop)
        }
        _ => std::fs::create_dir_all(destination),
    }
}

fn give_environment(process: &mut Process) {
    let mut variables = process.env().clone().unwrap_or_default();
    let terminal = std::env::var("TERM").unwrap_or_else(|_| "dumb".to_owned());
    for variable in [PATH.to_owned(), "HOME=/".to_owned(), format!("TERM={terminal}")] {
        let name = variable.split_inclusive('=').next().unwrap_or_default();
        if !variables.iter().any(|known| known.starts_with(name)) {
            variables.push(variable);
        }
    }
    process.set_env(Some(variables));
}

/// Runs a program to its end. At a terminal it is in the foreground, so that Ctrl-C is for it alone.
pub(super) fn run(words: &[String]) -> io::Result<u8> {
    let [program, arguments @ ..] = words else { return Err(io::ErrorKind::InvalidInput.into()) };
    let [input, output, errors] = TERMINAL.map(|number| {
        // SAFETY: the parent that started this process with a terminal has opened these, and nothing closes them.
        unsafe { BorrowedFd::borrow_raw(number) }
    });
    let is_terminal = input.is_terminal();
    let mut command = Command::new(program);
    command.args(arguments).stdin(copy(input)?).stdout(copy(output)?).stderr(copy(errors)?);
    // SAFETY: between fork and exec only system calls are made that are async-signal-safe.
    unsafe { command.pre_exec(move || if is_terminal { Ok(come_to_the_front()?) } else { Ok(()) }) };
    let ended = command.status()?;
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal)).unwrap_or_default();
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

fn copy(descriptor: BorrowedFd<'_>) -> io::Result<File> {
    descriptor.as_fd().try_clone_to_owned().map(File::from)
}

/// Makes this process the terminal's foreground again, after a program in a container.
pub fn take_terminal_back() {
    if io::stdin().is_terminal() {
        // An error is ignored: the terminal's shell takes the foreground back when this process ends.
        let _ = foreground(nix::unistd::getpgrp());
    }
}

/// Makes the process the terminal's foreground, in a group of its own.
fn come_to_the_front() -> nix::Result<()> {
    let me = getpid();
    setpgid(me, me)?;
    foreground(me)
}

/// Gives the terminal to a group of processes. One in the background that does so is stopped by default.
fn foreground(group: Pid) -> nix::Result<()> {
    // SAFETY: neither handler is a function of ours.
    let before = unsafe { signal(Signal::SIGTTOU, SigHandler::SigIgn) }?;
    // An error is ignored: the terminal belongs to another session, and the program runs in the background.
    // SAFETY: it takes any two numbers.
    let _ = unsafe { libc::tcsetpgrp(libc::STDIN_FILENO, group.as_raw()) };
    // SAFETY: as above.
    unsafe { signal(Signal::SIGTTOU, before) }.map(drop)
}
