//! `cargo xtask conformance`: builds volproof and becomes `volproof run`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::flags::Conformance;
use crate::packages::{self, Wanted};
use crate::workspace::{NOT_PREPARED, build_volproof};

/// Builds, then replaces this process: Ctrl-C, the terminal and the exit code are volproof's own.
pub(crate) fn run(flags: Conformance) -> Result<ExitCode> {
    let (args, no_install) = without_ours(flags.args, flags.no_install);
    if let Err(code) = packages::prepare(no_install, in_guests(&args).then_some(Wanted::ForGuests))? {
        return Ok(code);
    }
    let Some(volproof) = build_volproof()? else { return Ok(ExitCode::from(NOT_PREPARED)) };
    let error = Command::new(&volproof)
        .arg("run")
        .args(args)
        // The line that runs a failed case again names the command the person typed.
        .env("VOLPROOF_AGAIN", "cargo xtask conformance")
        .exec();
    Err(error).with_context(|| format!("cannot run `{}`", volproof.display()))
}

/// Whether the cases will run in guests.
fn in_guests(args: &[OsString]) -> bool {
    args.iter().zip(args.iter().skip(1)).any(|(flag, value)| flag == "--tier" && value == "vm")
        || args.iter().any(|arg| arg == "--tier=vm")
}

/// `--no-install` is ours wherever it stands before `--`; everything else is volproof's.
fn without_ours(args: Vec<OsString>, mut no_install: bool) -> (Vec<OsString>, bool) {
    let mut theirs = Vec::new();
    let mut args = args.into_iter();
    for arg in args.by_ref() {
        if arg == "--no-install" {
            no_install = true;
        } else if arg == "--" {
            theirs.push(arg);
            break;
        } else {
            theirs.push(arg);
        }
    }
    theirs.extend(args);
    (theirs, no_install)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(args: &[&str]) -> (Vec<OsString>, bool) {
        without_ours(args.iter().map(OsString::from).collect(), false)
    }

    #[test]
    fn no_install_is_taken_out_wherever_it_stands() {
        assert_eq!(split(&["--tier", "host", "--no-install"]), (vec!["--tier".into(), "host".into()], true));
        assert_eq!(split(&["csi::*"]), (vec!["csi::*".into()], false));
    }

    #[test]
    fn guests_are_prepared_for_only_where_they_are_asked_for() {
        let asked = |line: &str| in_guests(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(asked("--tier vm csi::*") && asked("--tier=vm"));
        assert!(!asked("--tier host vm"));
    }

    #[test]
    fn behind_two_dashes_nothing_is_ours() {
        assert_eq!(split(&["--", "--no-install"]), (vec!["--".into(), "--no-install".into()], false));
    }
}
