//! The errors of a sandbox, with hints.

use std::io;
use std::path::PathBuf;

use crate::ledger::LedgerError;

/// Why a sandbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A namespace belongs to a thread, so there may be only one.
    #[error("cannot enter a sandbox with {count} threads running")]
    Threads {
        /// Their number.
        count: usize,
    },
    /// The kernel refused the namespaces.
    #[error("cannot create {what} namespaces")]
    Namespaces {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// The caller could not be made root of its user namespace.
    #[error("cannot write `{file}`")]
    IdMap {
        /// The file that takes the mapping.
        file: &'static str,
        #[source]
        source: io::Error,
    },
    /// A process could not be started or watched.
    #[error("cannot {what}")]
    Process {
        /// The step that failed.
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// The sandbox could not be written down in the run's ledger.
    #[error("cannot write the sandbox down")]
    Ledger(#[from] LedgerError),
    /// A driver that should run already does not answer.
    #[error("cannot reach the driver at `{socket}`")]
    Driver {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A driver that runs already sees other mounts than ours.
    #[error("cannot share `{root}` with the driver: process {pid} does not see what is mounted there")]
    Unseen { pid: i32, root: PathBuf },
    /// A mount was refused.
    #[error("cannot mount {what} at `{target}`")]
    Mount {
        /// The file system that should have been mounted.
        what: &'static str,
        target: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A directory or its description could not be made or read.
    #[error("cannot prepare `{path}`")]
    Path {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl SandboxError {
    /// A hint for the user, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            SandboxError::Namespaces { what, source } => namespaces_hint(what, source),
            SandboxError::IdMap { .. } => Some(
                "allow user namespaces: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or run as root",
            ),
            SandboxError::Mount { what: "proc", source, .. } if denied(source) => Some(
                "in a container parts of /proc are covered: start it with `--privileged` or `--security-opt systempaths=unconfined`",
            ),
            SandboxError::Mount { source, .. } if denied(source) => Some(
                "run as root with CAP_SYS_ADMIN (in a container: `--privileged`), or allow user namespaces: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
            ),
            SandboxError::Mount { what: "a private root", source, .. }
                if source.raw_os_error() == Some(libc::EINVAL) =>
            {
                Some(
                    "`/` is no mount point, as in a chroot: bind the directory to itself before you enter it (`mount --bind DIR DIR`)",
                )
            }
            SandboxError::Driver { .. } => {
                Some("start the driver first; `--socket` is for one that runs already")
            }
            SandboxError::Unseen { .. } => Some(
                "start the driver in the machine's mount namespace, or name a directory in its manifest that it shares: `shared_dir = \"/var/lib/kubelet\"`",
            ),
            SandboxError::Threads { .. }
            | SandboxError::Ledger(_)
            | SandboxError::Process { .. }
            | SandboxError::Mount { .. }
            | SandboxError::Path { .. } => None,
        }
    }
}

fn namespaces_hint(what: &str, source: &io::Error) -> Option<&'static str> {
    match source.raw_os_error() {
        Some(libc::EPERM) if what.starts_with("user") => {
            Some("allow user namespaces: `sysctl -w kernel.unprivileged_userns_clone=1`, or run as root")
        }
        Some(libc::EPERM) => {
            Some("run as root with CAP_SYS_ADMIN; in a container: `--privileged` or `--cap-add SYS_ADMIN`")
        }
        Some(libc::ENOSPC) => {
            Some("raise the limit: `sysctl -w user.max_user_namespaces=15000 user.max_mnt_namespaces=15000`")
        }
        _ => None,
    }
}

fn denied(source: &io::Error) -> bool {
    matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}
