//! The lines of all commands, fitted to the terminal that shows them, and none of them a command for GitHub's runner,
//! which reads all that a step prints. Writes to standard output and standard error.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::fd::AsFd;

use harness::lines::Changed;
use harness::printable::NoCommands;
use runner::report::wrap::{Fit, width_of};

/// A stream for people.
pub(crate) type Lines<W> = Changed<Changed<W, Option<NoCommands>>, Fit>;

/// Standard output, with each line fitted to its terminal.
pub(crate) fn out() -> Lines<io::Stdout> {
    fitted(io::stdout())
}

fn fitted<W: Write + AsFd>(stream: W) -> Lines<W> {
    let width = width_of(&stream);
    let is_read_by_github = std::env::var_os("GITHUB_ACTIONS").is_some();
    Changed::new(Changed::new(stream, is_read_by_github.then_some(NoCommands)), Fit::to(width))
}

/// Writes a line to standard output. If that is closed, the exit code still says how the command ended.
pub(crate) fn write_out(line: Arguments<'_>) {
    let mut out = out();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Writes a line to standard error. If that is closed, the exit code still says how the command ended.
pub(crate) fn write_err(line: Arguments<'_>) {
    let mut err = fitted(io::stderr());
    drop(writeln!(err, "{line}").and_then(|()| err.flush()));
}

/// A line on standard output, as `println!` has it.
macro_rules! say {
    ($($line:tt)*) => { $crate::terminal::write_out(format_args!($($line)*)) };
}

/// A line on standard error, as `eprintln!` has it.
macro_rules! note {
    ($($line:tt)*) => { $crate::terminal::write_err(format_args!($($line)*)) };
}

pub(crate) use {note, say};
