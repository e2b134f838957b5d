//! A driver's process group: started, watched, killed as a whole.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use contracts::event::{Lifecycle, Role};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{DriverError, interpreter};
use crate::cgroup::{self, Cgroup};
use crate::journal::Journal;

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// A signal killed it.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.signal(), status.code()) {
            (Some(signal), _) => Self::Signal(signal),
            (None, code) => Self::Status(code.unwrap_or_default()),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// The command of a driver's process and the environment it runs in.
pub(super) struct Start<'a> {
    pub(super) command: &'a [String],
    /// The working directory; `None` for the caller's.
    pub(super) directory: Option<PathBuf>,
    /// Variables beside those of the caller.
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) log: File,
    pub(super) limits: Option<&'a Cgroup>,
    /// Whether the trace records its start and its end.
    pub(super) is_recorded: bool,
}

#[derive(Debug)]
pub(super) struct Process {
    group: Pid,
    exit: watch::Receiver<Option<Exit>>,
}

impl Process {
    pub(super) fn start(
        Start { command, directory, env, log, limits, is_recorded }: Start<'_>,
        journal: &Journal,
    ) -> Result<Self, DriverError> {
        let (program, arguments) = command.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => match interpreter::missing(program, env) {
                Some(interpreter) => DriverError::NoInterpreter { program: program.to_owned(), interpreter },
                None => DriverError::NoCommand { program: program.to_owned() },
            },
            _ => DriverError::Start { program: program.to_owned(), source },
        };
        let errors = log.try_clone().map_err(failed)?;
        let entrances = limits.map(Cgroup::entrances).transpose().map_err(failed)?.unwrap_or_default();
        let mut command = tokio::process::Command::new(program);
        // SAFETY: between fork and exec only descriptors are written to, which is async-signal-safe.
        unsafe { command.pre_exec(move || cgroup::enter(&entrances)) };
        if let Some(directory) = &directory {
            command.current_dir(directory);
        }
        let mut child = command
            .args(arguments)
            .envs(env)
            .process_group(0)
            // TMPDIR names a directory of the machine. Without it, temporary files go to the sandbox's own /tmp.
            .env_remove("TMPDIR")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        let group = Pid::from_raw(child.id().expect("it has not been waited for yet").cast_signed());
        journal.with_actors(|actors| actors.drivers.insert(group.as_raw()));
        if is_recorded {
            journal.process(Role::Driver, Lifecycle::Start, None);
        }

        let (sender, exit) = watch::channel(None);
        let journal = journal.clone();
        tokio::spawn(async move {
            // A child that cannot be waited for was reaped by other code, so its exit status is lost.
            let ended = child.wait().await.map_or(Exit::Status(-1), Exit::from);
            if is_recorded {
                journal.process(Role::Driver, Lifecycle::Exit, Some(ended.to_string()));
            }
            sender.send_replace(Some(ended));
        });
        Ok(Self { group, exit })
    }

    pub(super) fn pid(&self) -> Pid {
        self.group
    }

    pub(super) fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    pub(super) fn exited(&self) -> impl Future<Output = Exit> + use<> {
        let mut exit = self.exit.clone();
        async move {
            match exit.wait_for(Option::is_some).await.map(|exit| *exit) {
                Ok(Some(exit)) => exit,
                // The task that waits has ended with the runtime, so the exit status is lost.
                _ => std::future::pending().await,
            }
        }
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    fn signal(&self, signal: Signal) {
        // Fails if no process of the group is left, and then there is nothing to kill.
        let _ = killpg(self.group, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Even if the driver itself has exited: its children may still run.
        self.kill();
    }
}
