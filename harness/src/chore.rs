//! A command of the manifest that prepares or cleans up. Runs it in a process group of its own; its failure is not the
//! driver's fault.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::wait::Deadline;

/// A command of a manifest, with everything that it needs to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chore {
    /// Its key in the manifest, `per_case.cleanup`.
    pub key: String,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// The file for its output.
    pub log: PathBuf,
    pub within: Duration,
}

/// Why a command has not done its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoreError {
    #[error("{key} of the manifest {ended}: `{command}`")]
    Failed {
        key: String,
        ended: Ended,
        command: String,
        /// The last lines it printed.
        tail: Vec<String>,
    },
    #[error("cannot start {key} of the manifest: `{command}`")]
    Start {
        key: String,
        command: String,
        #[source]
        source: io::Error,
    },
}

/// The end of a command that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exit(ExitStatus),
    /// The command was killed after this time.
    Late(Duration),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => write!(f, "ended with signal {signal}"),
                (None, code) => write!(f, "ended with status {}", code.unwrap_or_default()),
            },
            Self::Late(within) => write!(f, "did not end within {} s", within.as_secs_f64()),
        }
    }
}

impl ChoreError {
    /// The last lines that the command printed.
    pub fn tail(&self) -> &[String] {
        match self {
            Self::Failed { tail, .. } => tail,
            Self::Start { .. } => &[],
        }
    }

    /// A hint for the user, in one line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Failed { ended: Ended::Late(_), .. } => {
                "if it only needs longer: `prepare` below [timeouts]"
            }
            Self::Failed { .. } => "the driver has no part in it: run the command by hand, and mend it",
            Self::Start { .. } => {
                "a path is relative to the directory of the manifest; a name without `/` is looked up in PATH"
            }
        }
    }
}

/// The number of last lines that are shown: they explain most failures, and fit a terminal.
const TAIL: usize = 10;

/// The pause between two looks at a command.
const GLANCE: Duration = Duration::from_millis(10);

impl Chore {
    /// Runs it to its end, in a process group of its own, and kills that at its limit. What it leaves to run in the
    /// background stays.
    ///
    /// # Errors
    /// When it cannot be started, fails, or takes too long.
    pub fn run(&self) -> Result<(), ChoreError> {
        let start = |source| ChoreError::Start { key: self.key.clone(), command: self.line(), source };
        let failed = |ended| {
            let (key, command) = (self.key.clone(), self.line());
            ChoreError::Failed { key, ended, command, tail: self.last_words() }
        };
        let mut child = self.spawn().map_err(start)?;
        let group = Pid::from_raw(child.id().cast_signed());
        let deadline = Deadline::after(self.within);
        loop {
            match child.try_wait().map_err(start)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(failed(Ended::Exit(status))),
                None if deadline.passed() => {
                    // A group that is gone needs no signal.
                    let _ = killpg(group, Signal::SIGKILL);
                    let _ = child.wait();
                    return Err(failed(Ended::Late(self.within)));
                }
                None => std::thread::sleep(GLANCE),
            }
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let (program, arguments) = self.command.split_first().map_or(("", &[][..]), |(p, a)| (p, a));
        let log = fs::File::options().create(true).append(true).open(&self.log)?;
        Command::new(program)
            .args(arguments)
            .envs(&self.env)
            .env_remove("TMPDIR")
            .current_dir(&self.directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }

    /// The command line, quoted for a shell.
    pub fn line(&self) -> String {
        let quoted = |word: &String| match word.contains(char::is_whitespace) || word.is_empty() {
            true => format!("'{word}'"),
            false => word.clone(),
        };
        self.command.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    fn last_words(&self) -> Vec<String> {
        let said = fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<String> = said.lines().map(str::to_owned).collect();
        lines[lines.len().saturating_sub(TAIL)..].to_vec()
    }
}
