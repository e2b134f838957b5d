//! `volproof enter`: a shell in the namespaces of a sandbox, among its mounts and processes.
//!
//! The shell ends at the latest with the sandbox, because it is in the sandbox's PID namespace.

use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use clap::Args;
use harness::printable::printable;
use harness::sandbox::visit::{self, Found, Visit};
use nix::sys::signal::{SigHandler, Signal, signal};

use super::Exit;
use crate::terminal::note;
use runner::exit_code;
use testbed::failure::chain;

/// Look around in the sandbox of a case that was kept, or of what is played now.
///
/// `volproof run --keep` keeps the sandboxes of the cases that do not pass: mounts, processes and devices as they
/// were. What runs there is a shell in the node's root directory, and it sees what the driver sees.
#[derive(Debug, Args)]
#[command(
    after_help = "It exits with what the shell or the command exits with; 3 where no such sandbox is there; 2 where \
                  there are several, which it lists."
)]
pub(super) struct Flags {
    /// The case's id, or a part of it; needed where there is more than one sandbox
    #[arg(value_name = "CASE")]
    case: Option<String>,
    /// The id of its run; needed where several runs have kept it, or where the case is still running
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// What to run instead of a shell
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let Found { visits, unreadable } = visit::all().map_err(anyhow::Error::from)?;
    for error in &unreadable {
        let warning = format!("{}; what its run has kept is not listed", chain(error).join(": "));
        note!("warning: {}", printable(&warning));
    }
    let visit = choose(&visits, flags.case.as_deref(), flags.run.as_deref())?;
    visit.enter().map_err(anyhow::Error::from)?;
    if flags.command.is_empty() && std::io::stderr().is_terminal() {
        note!("in the sandbox of {}, which goes when its run does; `exit` leaves it", visit.name());
    }
    let shell = std::env::var("SHELL").ok().filter(|shell| std::path::Path::new(shell).is_file());
    let shell = vec![shell.unwrap_or_else(|| "/bin/sh".to_owned())];
    let words = if flags.command.is_empty() { &shell } else { &flags.command };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(visit.root());
    let unusable = |error: std::io::Error| {
        Exit::environment(format!("cannot run `{}` in there", words[0])).details([error.to_string()])
    };
    // Ctrl-C is for the shell: this process ignores the signal, and the shell gets the default handler back.
    ignore_interrupts(SigHandler::SigIgn).map_err(|error| unusable(error.into()))?;
    // SAFETY: between fork and exec only signal is called, which is async-signal-safe.
    unsafe { command.pre_exec(|| Ok(ignore_interrupts(SigHandler::SigDfl)?)) };
    let ended = command.status().map_err(unusable)?;
    if ended.signal() == Some(Signal::SIGKILL as i32) {
        note!("the sandbox of {} has ended", visit.name());
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

/// The sandbox to enter. The sandbox of a running case is chosen only by the id of its run: a shell in it delays the case,
/// and is killed when the case ends.
fn choose<'a>(all: &'a [Visit], case: Option<&str>, run: Option<&str>) -> Result<&'a Visit, Exit> {
    let mut named: Vec<&Visit> =
        all.iter().filter(|visit| case.is_none_or(|case| visit.name() == case)).collect();
    if named.is_empty() {
        named = all.iter().filter(|visit| case.is_some_and(|case| visit.name().contains(case))).collect();
    }
    let is_meant = |visit: &&&Visit| run.map_or(visit.waits(), |run| visit.run() == run);
    let found: Vec<&Visit> = named.iter().filter(is_meant).copied().collect();
    let nothing = |message: String| Err(Exit::new(exit_code::NOTHING_RAN, message));
    let Some(newest) = found.last() else {
        return match (case, run) {
            _ if all.is_empty() => nothing("there is no sandbox to enter".to_owned()).map_err(|exit| {
                exit.hint("`volproof run --keep CASE` keeps that of a case that does not pass")
            }),
            (_, None) if !named.is_empty() => nothing("no sandbox is kept: its case still runs".to_owned())
                .map_err(|exit| exit.details(list(&named)).hint("--run ID enters it all the same")),
            (Some(case), _) => nothing(format!("there is no sandbox of `{case}`"))
                .map_err(|exit| exit.details(list(&all.iter().collect::<Vec<_>>()))),
            (None, _) => nothing(format!("run `{}` has no sandbox", run.unwrap_or_default()))
                .map_err(|exit| exit.details(list(&all.iter().collect::<Vec<_>>()))),
        };
    };
    // If a run has repeated a case, the newest sandbox is chosen.
    if found.iter().any(|visit| (visit.name(), visit.run()) != (newest.name(), newest.run())) {
        let exit = Exit::usage("there is more than one sandbox: which one?").details(list(&found));
        return Err(exit.hint("name the case in full, and its run with --run ID"));
    }
    Ok(newest)
}

fn list(visits: &[&Visit]) -> Vec<String> {
    visits.iter().map(|visit| format!("there is: {visit}")).collect()
}
