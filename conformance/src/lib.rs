//! The promises a storage driver makes, one case each, and the `volproof` command that checks them.
//!
//! This crate is the command line, with `play`, `compare`, `check` and `watch`. The testbed of a case is in [`testbed`], the
//! cases are in [`cases`], and [`runner`] runs and judges them.
//!
//! [`main`] is the whole command. A driver's own tests can be the same program: a test target with
//! `harness = false` whose `main` calls [`test`].

#![warn(missing_docs)]

// Nothing in it is called by its name: each case registers itself when this program is linked.
use cases as _;
use std::ffi::OsString;
use std::process::ExitCode;

mod check;
mod command;
pub mod compare;
mod embed;
mod play;
mod terminal;
mod watch;

pub use embed::test;

/// Answers the command line, and the hidden commands that a run gives to itself.
///
/// To be called first thing in `main`, while there is one thread: a worker unshares its namespaces, and a
/// namespace belongs to a thread.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match hidden(arguments.get(1..).unwrap_or_default()) {
        Some(code) => code,
        None => command::main(arguments, None),
    }
}

/// The commands that a run gives to itself.
fn hidden(arguments: &[OsString]) -> Option<ExitCode> {
    // In a guest the kernel and mount(8) call this program by other names.
    let name = std::env::args_os().next().unwrap_or_default();
    if let Some(code) = vm_images::guest::applet(name.as_ref(), arguments) {
        return Some(code);
    }
    match arguments.first()?.to_str()? {
        "__worker" => Some(runner::worker::main(play::perform)),
        "__guest" => Some(command::guest(arguments.get(1).and_then(|word| word.to_str()))),
        _ => harness::main(),
    }
}
