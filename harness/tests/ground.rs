//! The ground under a case, on the real kernel: sandbox, janitor, ledger, loop devices, witnesses, census.
//!
//! A sandbox can only be entered by a process with one thread, and a process that is killed cannot report.
//! So this binary is its own helper: called with `--inside NAME` it does one thing, and the tests call it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, ExitCode, Output, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};

#[path = "ground/faults.rs"]
mod faults;
#[path = "ground/inside.rs"]
mod inside;
#[path = "ground/kill.rs"]
mod kill;
#[path = "ground/limits.rs"]
mod limits;
#[path = "ground/loops.rs"]
mod loops;
#[path = "ground/machine.rs"]
mod machine;
#[path = "ground/mounts.rs"]
mod mounts;
#[path = "ground/sandbox.rs"]
mod sandbox;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "--inside", what, ref more @ ..] => inside::main(what, more),
        [_, harness::janitor::SUBCOMMAND, dir] => harness::janitor::main(dir.as_ref()),
        [_, harness::fault_fs::SUBCOMMAND, settings] => harness::fault_fs::main(settings),
        _ => {
            let arguments = Arguments::from_args();
            let mut trials = sandbox::trials();
            trials.extend(machine::trials());
            trials.extend(loops::trials());
            trials.extend(limits::trials());
            trials.extend(mounts::trials());
            trials.extend(faults::trials());
            trials.extend(kill::trials());
            libtest_mimic::run(&arguments, trials).exit_code()
        }
    }
}

/// A test that needs root, and says so where there is none.
fn rooted(name: &'static str, body: fn() -> Result<(), Failed>) -> Trial {
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
fn told(what: &str, more: &[&str]) -> Result<String, Failed> {
    let Output { status, stdout, stderr } = helper(what, more).output()?;
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if status.success() { Ok(out.into_owned()) } else { Err(format!("{what}: {status}\n{out}{err}").into()) }
}
