//! The promises a storage driver makes, one case each, and the `volproof` command that checks them.
//!
//! A case is an async function with [`#[case]`](macros::case) above it; its doc comment is the sentence it
//! proves. It is given a [`Cx`](cx::Cx), with which it asks for volumes and pods, spoils calls, kills the node
//! or the driver, and compares everything that was seen with a story. The attribute puts it into
//! [`case::CASES`], so that a new case touches one file. What it [needs](need::Need) stands above its body:
//! whether it can run is decided before anything is started, and a skip says who is the reason.
//!
//! The [runner] knows cases, lanes and reporters. Each case runs in a [worker], a process of its own that is
//! the root of its own namespaces; the run holds its lifeline. What the worker sees after the case, unasked,
//! becomes [findings](finding::Finding), each told once in a run. The runner emits [events](event::Event) and
//! [reporters](report) render them: the terminal, JSON, JUnit, HTML, annotations. [Exit codes](exit_code)
//! are an interface.
//!
//! [`main`] is the whole command. A driver's own tests can be the same program: a test target with
//! `harness = false` whose `main` calls [`test`].

#![warn(missing_docs)]

// `#[case]` names this crate by its name, also in its own files.
extern crate self as conformance;

use std::ffi::OsString;
use std::process::ExitCode;

pub mod case;
mod cases;
mod check;
mod command;
pub mod compare;
pub mod cx;
pub mod embed;
pub mod event;
pub mod exit_code;
pub mod failure;
pub mod finding;
pub mod need;
mod play;
pub mod prelude;
pub mod report;
pub mod runner;
pub mod select;
mod watch;
pub mod worker;

pub use embed::test;
pub use failure::{Failure, Result};

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
        "__worker" => Some(worker::main()),
        "__guest" => Some(command::guest(arguments.get(1).and_then(|word| word.to_str()))),
        _ => harness::main(),
    }
}
