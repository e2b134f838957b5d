//! Programs of the machine that a user runs in a container, at the terminal of the run. Changes a container's
//! configuration, starts a process in the container, and moves the terminal between groups of processes.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{Pid, getpid, setpgid};
use oci_spec::runtime::{Mount, MountBuilder, Process, Spec};

/// The descriptors of the user's terminal in a container: for input, output and errors.
pub const TERMINAL: [RawFd; 3] = [5, 6, 7];

/// The machine's directories of programs and libraries.
const PROGRAMS: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];

/// The machine's files and directories that many programs read.
const FILES: [&str; 5] =
    ["/etc/passwd", "/etc/group", "/etc/ld.so.cache", "/etc/alternatives", "/etc/terminfo"];

/// The variable for a container without `PATH`.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Adds the machine's programs to a container's mounts, in place of an image: read-only, and before its volumes.
///
/// # Errors
/// When a volume's mount point in a directory of programs cannot be created.
pub fn bring_programs(spec: &mut Spec) -> io::Result<()> {
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for mount in &mounts {
        create_mount_point(mount)?;
    }
    let present = PROGRAMS.iter().chain(&FILES).filter(|path| Path::new(path).exists());
    let programs: Vec<Mount> = present.map(|path| read_only(path)).collect();
    mounts.splice(0..0, programs);
    spec.set_mounts(Some(mounts));
    if let Some(process) = spec.process_mut() {
        add_variables(process);
    }
    Ok(())
}

fn read_only(path: &str) -> Mount {
    let options = ["rbind", "rro", "rprivate"].map(str::to_owned).to_vec();
    let mount = MountBuilder::default().destination(path).source(path).typ("bind").options(options);
    mount.build().expect("no field of a mount is required")
}

/// Creates the mount point of a volume in a directory of programs, which the container has read-only. The new directory
/// or file is in the sandbox's layer over the machine's files.
fn create_mount_point(mount: &Mount) -> io::Result<()> {
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

/// Adds `PATH`, `HOME` and `TERM`, where the container has no such variable.
fn add_variables(process: &mut Process) {
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

/// Runs a program to its end, and returns its exit code. At a terminal it is in the foreground: Ctrl-C reaches it
/// alone.
pub(super) fn run(words: &[String]) -> io::Result<u8> {
    let [program, arguments @ ..] = words else { return Err(io::ErrorKind::InvalidInput.into()) };
    let [input, output, errors] = TERMINAL.map(|number| {
        // SAFETY: a container that runs programs was started with these open, and nothing closes them.
        unsafe { BorrowedFd::borrow_raw(number) }
    });
    let is_terminal = input.is_terminal();
    let mut command = Command::new(program);
    command.args(arguments).stdin(copy(input)?).stdout(copy(output)?).stderr(copy(errors)?);
    // SAFETY: between fork and exec the closure makes only async-signal-safe system calls.
    unsafe { command.pre_exec(move || if is_terminal { Ok(enter_foreground()?) } else { Ok(()) }) };
    let ended = command.status()?;
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal)).unwrap_or_default();
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

fn copy(descriptor: BorrowedFd<'_>) -> io::Result<File> {
    descriptor.as_fd().try_clone_to_owned().map(File::from)
}

/// Puts this process back into the terminal's foreground, after a program in a container.
pub fn take_terminal_back() {
    if io::stdin().is_terminal() {
        // An error is ignored: when this process ends, its shell takes the foreground back anyway.
        let _ = set_foreground(nix::unistd::getpgrp());
    }
}

/// Puts this process into a group of its own, and that into the terminal's foreground.
fn enter_foreground() -> nix::Result<()> {
    let me = getpid();
    setpgid(me, me)?;
    set_foreground(me)
}

/// Puts a group of processes into the terminal's foreground. SIGTTOU, which would stop a process that does this from
/// the background, is ignored meanwhile.
fn set_foreground(group: Pid) -> nix::Result<()> {
    // SAFETY: `SigIgn` runs no code in this process.
    let before = unsafe { signal(Signal::SIGTTOU, SigHandler::SigIgn) }?;
    // An error is ignored: then the terminal belongs to another session, and the program runs in the background.
    // SAFETY: tcsetpgrp reads no memory of this process.
    let _ = unsafe { libc::tcsetpgrp(libc::STDIN_FILENO, group.as_raw()) };
    // SAFETY: the handler is the one that was installed before.
    unsafe { signal(Signal::SIGTTOU, before) }.map(drop)
}
