//! The same configuration carried out by runc, where it is installed: a second opinion on our own way of doing it.
//!
//! runc makes the namespaces, the mounts and the user, and then executes this very binary inside, which answers
//! questions as the container of our own does. So the configuration gets three things that it lacks: what to
//! execute, the libraries it is linked with, and a name for its control groups. Writes a bundle into one directory.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::Pid;
use oci_spec::runtime::{Mount, MountBuilder, Process, Spec};

use super::{ContainerError, SUBCOMMAND};
use crate::cgroup;

/// What the process inside is called with.
pub(super) const ANSWER: &str = "answer";

/// Where this binary is inside.
const PROGRAM: &str = "/.volproof";

/// Where the loader and the libraries of a dynamic program are, on any machine with either layout.
const LIBRARIES: [&str; 3] = ["/lib", "/lib64", "/usr/lib"];

/// A bundle as runc wants it.
#[derive(Debug)]
pub(super) struct Bundle {
    directory: PathBuf,
    name: String,
}

impl Bundle {
    /// Writes one. The directory must exist, and is the bundle's own.
    pub(super) fn write(spec: &Spec, directory: &Path) -> Result<Self, ContainerError> {
        let name = name(directory);
        let failed = |source| ContainerError::Build { what: "write the bundle for runc".to_owned(), source };
        let rootfs = directory.join("rootfs");
        fs::create_dir_all(&rootfs).map_err(failed)?;
        let config = config(spec, &rootfs, &name).map_err(failed)?;
        let text = serde_json::to_vec(&config).expect("a configuration is a map with text keys");
        fs::write(directory.join("config.json"), text).map_err(failed)?;
        Ok(Self { directory: directory.to_owned(), name })
    }

    /// Runs it, in the foreground.
    pub(super) fn command(&self) -> Command {
        let mut command = self.runc();
        command.args(["run", "--preserve-fds", "1", "--bundle"]).arg(&self.directory);
        command.arg("--pid-file").arg(self.pid_file()).arg(&self.name);
        // SAFETY: it only copies a descriptor.
        unsafe { command.pre_exec(keep_socket) };
        command
    }

    /// The first process inside, once it runs.
    pub(super) fn first(&self) -> Option<Pid> {
        fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok().map(Pid::from_raw)
    }

    /// Has runc forget it, and remove its control groups.
    pub(super) fn forget(&self) {
        // It has forgotten it already if it ended by itself.
        let _ = self.runc().args(["delete", "--force", &self.name]).output();
    }

    fn runc(&self) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.directory.join("state"));
        command
    }

    fn pid_file(&self) -> PathBuf {
        self.directory.join("pid")
    }
}

/// Where the process inside has its socket. Standard input is not passed on: runc reads it itself, and would swallow
/// the questions.
pub(super) const SOCKET: i32 = 3;

/// Moves the socket there from standard input. For between fork and exec: it only makes system calls.
fn keep_socket() -> io::Result<()> {
    let done = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: standard input is open, and nothing of what will be executed uses the other number.
    done(unsafe { libc::dup2(libc::STDIN_FILENO, SOCKET) })?;
    // SAFETY: the path is a C string.
    let nothing = done(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })?;
    // SAFETY: both are open.
    done(unsafe { libc::dup2(nothing, libc::STDIN_FILENO) }).map(drop)
}

/// Where runc makes control groups for the bundle in this directory: to be written down before it is started.
pub fn groups(directory: &Path) -> Vec<PathBuf> {
    cgroup::everywhere(&name(directory))
}

/// What runc calls it: of this process and this directory, so that two never meet in the machine's control groups.
fn name(directory: &Path) -> String {
    let own = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let tail = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("volproof-{}-{}-{tail}", digits(&own.to_string_lossy()), std::process::id())
}

fn config(spec: &Spec, rootfs: &Path, name: &str) -> io::Result<Spec> {
    let mut spec = spec.clone();
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    mounts.push(read_only(&std::env::current_exe()?, PROGRAM));
    let libraries = LIBRARIES.into_iter().filter(|path| Path::new(path).is_dir());
    mounts.extend(libraries.map(|path| read_only(Path::new(path), path)));
    spec.set_mounts(Some(mounts));
    let mut process: Process = spec.process().clone().unwrap_or_default();
    process.set_args(Some([PROGRAM, SUBCOMMAND, ANSWER].map(str::to_owned).to_vec()));
    spec.set_process(Some(process));
    let mut root = spec.root().clone().unwrap_or_default();
    root.set_path(rootfs.to_owned());
    spec.set_root(Some(root));
    if let Some(mut linux) = spec.linux().clone() {
        linux.set_cgroups_path(Some(Path::new("/").join(name)));
        spec.set_linux(Some(linux));
    }
    Ok(spec)
}

fn read_only(source: &Path, destination: &str) -> Mount {
    let options = ["bind", "ro", "rprivate"].map(str::to_owned).to_vec();
    let mount = MountBuilder::default().destination(destination).typ("bind").source(source).options(options);
    mount.build().expect("everything it needs is given")
}
