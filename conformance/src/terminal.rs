//! The lines of all commands, fitted to the terminal that shows them. Writes to standard output and standard error.

use std::fmt::Arguments;
use std::io::{self, Write};

use runner::report::wrap::{Wrapped, width_of};

/// Standard output, with each line fitted to its terminal.
pub(crate) fn out() -> Wrapped<io::Stdout> {
    let out = io::stdout();
    let width = width_of(&out);
    Wrapped::new(out, width)
}

/// Writes a line to standard output. If that is closed, the exit code still says how the command ended.
pub(crate) fn write_out(line: Arguments<'_>) {
    let mut out = out();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Writes a line to standard error. If that is closed, the exit code still says how the command ended.
pub(crate) fn write_err(line: Arguments<'_>) {
    let err = io::stderr();
    let width = width_of(&err);
    let mut err = Wrapped::new(err, width);
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
