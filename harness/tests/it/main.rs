//! The harness on the real kernel: the ground under a case, and the whole testbed on it.
//!
//! A sandbox can only be entered by a process with one thread, and a process that is killed cannot report. So this
//! binary is its own helper: called with `--inside NAME`, `__scene NAME` or `__run NAME` it does one thing, and the
//! tests call it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};

mod ground;
mod scenes;

fn main() -> ExitCode {
    if let Some(code) = harness::main() {
        return code;
    }
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "--inside", what, ref more @ ..] => ground::inside::main(what, more),
        [_, "__scene", name, ledger] => scenes::play(name, Path::new(ledger)),
        [_, "__run", name, base] => scenes::run(name, Path::new(base)),
        _ => {
            let trials = ground::trials().into_iter().chain(scenes::trials());
            libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
        }
    }
}

/// A test that needs root, and is skipped without it.
fn rooted(name: &str, body: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("{name}: ignored, because it needs root");
    }
    Trial::test(name, body).with_ignored_flag(!is_root)
}

/// This binary again, doing `what`.
fn helper(what: &str, more: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--inside", what]).args(more).stdin(Stdio::null());
    command
}

/// Runs a helper to its end and returns what it printed.
fn run_helper(what: &str, more: &[&str]) -> Result<String, Failed> {
    printed(what, helper(what, more))
}

/// Runs a process of this binary to its end and returns its standard output; what it printed is in the error, too.
fn printed(name: &str, mut process: Command) -> Result<String, Failed> {
    let Output { status, stdout, stderr } = process.output()?;
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if status.success() { Ok(out.into_owned()) } else { Err(format!("{name}: {status}\n{out}{err}").into()) }
}
