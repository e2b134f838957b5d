//! The lines of all commands, fitted to the terminal that shows them, and none of them a command for GitHub's runner,
//! which reads all that a step prints. Writes to standard output and standard error.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use harness::lines::Changed;
use harness::printable::NoCommands;
use runner::report::wrap::{Fit, width_of};
use serde::Serialize;

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

/// The first failure to write to standard output. A pipe that its reader closes early is none.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// The reason why a part of the output is not where the user sent it, such as a full disk.
pub(crate) fn failure() -> Option<&'static io::Error> {
    FAILED.get()
}

/// Writes a line to standard output.
pub(crate) fn write_out(line: Arguments<'_>) {
    write_lines(format!("{line}\n").as_bytes());
}

/// Writes lines to standard output, fitted to its terminal.
pub(crate) fn write_lines(lines: &[u8]) {
    let mut out = out();
    note_failure(out.write_all(lines).and_then(|()| out.flush()));
}

/// Writes a text to standard output as it is, for a program that reads it.
pub(crate) fn write_text(text: &[u8]) {
    let mut out = io::stdout();
    note_failure(out.write_all(text).and_then(|()| out.flush()));
}

/// Writes a line of JSON to standard output.
pub(crate) fn write_json(value: &impl Serialize) {
    write_text((serde_json::to_string(value).expect(PLAIN) + "\n").as_bytes());
}

/// Writes JSON of several lines to standard output.
pub(crate) fn write_pretty_json(value: &impl Serialize) {
    write_text((serde_json::to_string_pretty(value).expect(PLAIN) + "\n").as_bytes());
}

const PLAIN: &str = "what is printed is made of texts and numbers";

fn note_failure(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // Only the first is reported.
        drop(FAILED.set(error));
    }
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
