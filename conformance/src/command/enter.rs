//! `volproof enter`: a shell in a sandbox, with what is mounted and what runs in there.
//!
//! It joins the namespaces and starts the shell there, so the shell dies with the sandbox at the latest.

use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use clap::Args;
use harness::sandbox::visit::{self, Visit};
use nix::sys::signal::{SigHandler, Signal, signal};

use super::Exit;
use runner::exit_code;

/// Look around in the sandbox of a case that was kept, or of what is played now.
///
/// `volproof run --keep` keeps the sandboxes of the cases that do not pass: mounts, processes and devices as they
/// were. What runs there is a shell in the node's root directory, and it sees what the driver sees.
#[derive(Debug, Args)]
#[command(
    after_help = "It exits with what the shell or the command exits with; 3 where no such sandbox is there."
)]
pub(super) struct Flags {
    /// The case's id, or a part of it; needed where there is more than one sandbox
    #[arg(value_name = "CASE")]
    case: Option<String>,
    /// What to run instead of a shell
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let all = visit::all().map_err(anyhow::Error::from)?;
    let visit = choose(&all, flags.case.as_deref())?;
    visit.enter().map_err(anyhow::Error::from)?;
    if flags.command.is_empty() && std::io::stderr().is_terminal() {
        eprintln!("in the sandbox of {}, which goes when its run does; `exit` leaves it", visit.name());
    }
    let shell = std::env::var("SHELL").ok().filter(|shell| std::path::Path::new(shell).is_file());
    let shell = vec![shell.unwrap_or_else(|| "/bin/sh".to_owned())];
    let words = if flags.command.is_empty() { &shell } else { &flags.command };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(visit.root());
    let unusable = |error: std::io::Error| {
        Exit::environment(format!("cannot run `{}` in there", words[0])).details([error.to_string()])
    };
    // The terminal's Ctrl-C is for the shell. It gets back what this process no longer minds.
    ignore_interrupts(SigHandler::SigIgn).map_err(|error| unusable(error.into()))?;
    // SAFETY: between fork and exec only signal is called, which is async-signal-safe.
    unsafe { command.pre_exec(|| Ok(ignore_interrupts(SigHandler::SigDfl)?)) };
    let ended = command.status().map_err(unusable)?;
    if ended.signal() == Some(Signal::SIGKILL as i32) {
        eprintln!("the sandbox of {} has ended", visit.name());
    }
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal)).unwrap_or_default();
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

fn ignore_interrupts(handler: SigHandler) -> nix::Result<()> {
    for interrupt in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: neither handler is a function of ours.
        unsafe { signal(interrupt, handler) }?;
    }
    Ok(())
}

/// The sandbox that is meant: the newest of a case that was repeated.
fn choose<'a>(all: &'a [Visit], asked: Option<&str>) -> Result<&'a Visit, Exit> {
    let exact = |visit: &&Visit| asked.is_none_or(|asked| visit.name() == asked);
    let part = |visit: &&Visit| asked.is_some_and(|asked| visit.name().contains(asked));
    let mut found: Vec<&Visit> = all.iter().filter(exact).collect();
    if found.is_empty() {
        found = all.iter().filter(part).collect();
    }
    let Some(newest) = found.last() else {
        let exit = |message: String| Exit::new(exit_code::NOTHING_RAN, message);
        return Err(match asked.filter(|_| !all.is_empty()) {
            Some(asked) => exit(format!("there is no sandbox of `{asked}`")).details(names(all.iter())),
            None => exit("there is no sandbox to enter".to_owned())
                .hint("`volproof run --keep CASE` keeps that of a case that does not pass"),
        });
    };
    if found.iter().any(|visit| visit.name() != newest.name()) {
        return Err(
            Exit::usage("there is more than one sandbox: which one?").details(names(found.into_iter()))
        );
    }
    Ok(newest)
}

fn names<'a>(visits: impl Iterator<Item = &'a Visit>) -> Vec<String> {
    let mut names: Vec<String> = visits.map(|visit| format!("there is: {}", visit.name())).collect();
    names.dedup();
    names
}
