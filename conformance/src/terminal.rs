//! The lines of all commands, fitted to the terminal that shows them. Writes to standard output and standard error.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::fd::AsFd;

use harness::lines::Changed;
use runner::report::wrap::{Fit, width_of};

/// Standard output, with each line fitted to its terminal.
pub(crate) fn out() -> Changed<io::Stdout, Fit> {
    fitted(io::stdout())
}

fn fitted<W: Write + AsFd>(stream: W) -> Changed<W, Fit> {
    let width = width_of(&stream);
    Changed::new(stream, Fit::to(width))
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
