//! Runs a command to its end and keeps its output. Touches processes.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};

use crate::error::{Action, HostError, Result, ToolError};

/// A command that ran to its end.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None`: another part of this process reaped the child first.
    pub(crate) status: Option<ExitStatus>,
    /// Both streams, in the order they were written.
    pub(crate) output: String,
}

impl Ran {
    /// An unknown status counts as success.
    pub(crate) fn success(&self) -> bool {
        self.status.is_none_or(|status| status.success())
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// `shown` stands for the arguments in the error's text.
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
    // The command holds write ends of the pipe, which would keep the read below from ending.
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

/// Runs a command; a failing exit is an error.
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
