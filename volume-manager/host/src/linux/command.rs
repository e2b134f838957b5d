//! Commands that stand for system calls: run one, keep all it said. Touches processes.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};

use crate::error::{Action, HostError, Result, ToolError};

/// A command that ran to its end.
#[derive(Debug)]
pub(crate) struct Ran {
    /// How it ended. `None`: somebody else reaped it, which only happens after it ended.
    pub(crate) status: Option<ExitStatus>,
    /// Both its streams, in the order it wrote them.
    pub(crate) output: String,
}

impl Ran {
    /// Whether it succeeded, as far as anybody knows: a child that a reaper took first counts as such.
    pub(crate) fn success(&self) -> bool {
        self.status.is_none_or(|status| status.success())
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// The error it is. `shown` is what the error says the arguments were.
    pub(crate) fn into_error(self, what: &str, program: &str, shown: &str) -> HostError {
        let status = self.status.map_or_else(|| "unknown status".to_owned(), |status| words(&status));
        let (code, output) = (self.code(), self.output);
        let (what, program, arguments) = (what.to_owned(), program.to_owned(), shown.to_owned());
        ToolError { what, status, code, program, arguments, output }.into()
    }
}

/// Runs a command to its end. Not found: the error ENOENT.
pub(crate) fn run(program: &str, arguments: &[String]) -> Result<Ran> {
    let failed = |error: io::Error| HostError::os(Action::Run, program, error);
    let (mut reader, writer) = io::pipe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the pipe's write ends until then, and the read would never end.
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).map_err(failed)?;
    let status = match child.wait() {
        Ok(status) => Some(status),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => None,
        Err(error) => return Err(failed(error)),
    };
    Ok(Ran { status, output: String::from_utf8_lossy(&output).into_owned() })
}

/// Runs a command that has to succeed.
pub(crate) fn must(what: &str, program: &str, arguments: &[String], shown: &str) -> Result<Ran> {
    let ran = run(program, arguments)?;
    if ran.success() { Ok(ran) } else { Err(ran.into_error(what, program, shown)) }
}

/// `exit status 32` or `signal: 9`.
fn words(status: &ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}
