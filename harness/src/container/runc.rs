//! Runs a container's configuration with runc, where it is installed, to check our own container code against it.
//!
//! runc makes the namespaces, the mounts and the user, and then executes this binary inside, which answers questions as
//! our own container does. For that the configuration also gets the binary, the libraries it is linked with, and a name
//! for its control groups. Writes a bundle into one directory.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::Pid;
use oci_spec::runtime::{Mount, MountBuilder, Process, Spec};

use super::{ContainerError, SUBCOMMAND};
use crate::cgroup;

/// The argument of the process inside.
pub(super) const ANSWER: &str = "answer";

/// The path of this binary inside.
const PROGRAM: &str = "/.volproof";

/// The directories with the loader and the libraries of a dynamic program, on machines with merged and with split `/usr`.
const LIBRARIES: [&str; 3] = ["/lib", "/lib64", "/usr/lib"];

/// A bundle for runc: a directory with `config.json` and a root.
#[derive(Debug)]
pub(super) struct Bundle {
    directory: PathBuf,
    name: String,
}

impl Bundle {
    /// Writes a bundle into an existing, empty directory.
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

    /// The command that runs the bundle in the foreground.
    pub(super) fn command(&self) -> Command {
        let mut command = self.runc();
        command.args(["run", "--preserve-fds", "1", "--bundle"]).arg(&self.directory);
        command.arg("--pid-file").arg(self.pid_file()).arg(&self.name);
        // SAFETY: `keep_socket` makes system calls only.
        unsafe { command.pre_exec(keep_socket) };
        command
    }

    /// The first process inside, once the container runs.
    pub(super) fn first(&self) -> Option<Pid> {
        fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok().map(Pid::from_raw)
    }

    /// Deletes the container from runc's books, with its control groups.
    pub(super) fn forget(&self) {
        // An error is ignored: runc has deleted a container that ended by itself.
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

/// The descriptor of the socket inside. It is not standard input, because runc reads that itself and would swallow the
/// questions.
pub(super) const SOCKET: i32 = 3;

/// Moves the socket from standard input to [`SOCKET`]. Runs between fork and exec, so it makes system calls only.
fn keep_socket() -> io::Result<()> {
    let done = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: standard input is open, and no descriptor that runc needs has the number `SOCKET`.
    done(unsafe { libc::dup2(libc::STDIN_FILENO, SOCKET) })?;
    // SAFETY: the path is a C string.
    let null = done(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })?;
    // SAFETY: both are open.
    done(unsafe { libc::dup2(null, libc::STDIN_FILENO) }).map(drop)
}

/// The control groups that runc makes for the bundle in this directory. The ledger gets them before runc starts.
pub fn groups(directory: &Path) -> Vec<PathBuf> {
    cgroup::everywhere(&name(directory))
}

/// The container's name for runc, from this process and the directory: no two containers share a control group.
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
