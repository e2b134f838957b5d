//! Hidden subcommands: the processes of a run are this binary, executed again.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::{container, driver, fault_fs, janitor, node};

/// Runs the hidden subcommand in the first argument to its end and returns its exit code. Returns `None` at once
/// for any other command line.
///
/// Call it at the beginning of `main`, while there is a single thread, and return its answer.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let name = arguments.next()?;
    let rest: Vec<OsString> = arguments.collect();
    let first = || rest.first().cloned().unwrap_or_default();
    match name.to_str()? {
        "__node" => Some(node::child_main(&first().to_string_lossy())),
        "__fake-csi" => Some(fake_csi::main(std::iter::once(program).chain(rest))),
        fault_fs::SUBCOMMAND => Some(fault_fs::main(&first().to_string_lossy())),
        container::SUBCOMMAND => Some(container::main()),
        driver::rooted::SUBCOMMAND => Some(driver::rooted::main(&first().to_string_lossy())),
        janitor::SUBCOMMAND => Some(janitor::main(first().as_ref())),
        _ => None,
    }
}
