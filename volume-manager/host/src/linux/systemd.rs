//! Transient scopes of systemd, in which what a mount's helper leaves running outlives the node's own process
//! (07 §2). Touches processes.

use std::sync::OnceLock;

use super::command::{self, Ran};
use crate::error::Result;
use crate::mount_command::MountCommand;
use crate::options::{MountSpec, Scope};

/// The one of this machine.
pub(super) static SYSTEMD: Systemd = Systemd::new(command::run);

/// Runs a command to its end.
type Run = fn(&str, &[String]) -> Result<Ran>;

/// Who is asked for scopes.
pub(super) struct Systemd {
    run: Run,
    runs: OnceLock<bool>,
}

impl Systemd {
    const fn new(run: Run) -> Self {
        Self { run, runs: OnceLock::new() }
    }

    /// The command for a mount, in a scope of its own if that was asked for and can be had.
    pub(super) fn mount(&self, spec: &MountSpec) -> MountCommand {
        let mount = MountCommand::mount(spec);
        match spec.scope {
            Scope::Systemd if self.runs() => mount.in_systemd_scope(&spec.target),
            _ => mount,
        }
    }

    /// Whether scopes can be made here. Asked once: the answer is a process.
    fn runs(&self) -> bool {
        *self.runs.get_or_init(|| {
            let arguments = ["--description=Kubernetes systemd probe", "--scope", "true"].map(str::to_owned);
            (self.run)("systemd-run", &arguments).is_ok_and(|ran| ran.success())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;
    use crate::errno;
    use crate::error::{Action, HostError};

    const PROBE: &str = "systemd-run --description=Kubernetes systemd probe --scope true";
    const MOUNT: &str = "mount -t cifs -o soft server:/x /t";
    const SCOPED: &str = "systemd-run --description=Kubernetes transient mount for /t --scope -- mount -t cifs -o soft server:/x /t";

    thread_local! {
        static ASKED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn ask(program: &str, arguments: &[String]) {
        ASKED.with_borrow_mut(|asked| asked.push(format!("{program} {}", arguments.join(" "))));
    }

    fn ended(code: i32) -> Result<Ran> {
        Ok(Ran { status: Some(ExitStatus::from_raw(code << 8)), output: String::new() })
    }

    /// What two mounts of each scope are made with, and what was asked before.
    fn told(run: Run) -> (Vec<String>, Vec<String>) {
        let systemd = Systemd::new(run);
        let mut commands = Vec::new();
        for scope in [Scope::Plain, Scope::Systemd, Scope::Plain, Scope::Systemd] {
            let options = crate::options::MountOptions::new(["soft"]);
            let spec = MountSpec { scope, ..MountSpec::new("server:/x", "/t", "cifs").with_options(options) };
            let command = systemd.mount(&spec);
            commands.push(format!("{} {}", command.program, command.arguments.join(" ")));
            if scope == Scope::Plain && commands.len() == 1 {
                assert!(ASKED.with_borrow(Vec::is_empty), "nobody wants to know yet");
            }
        }
        (commands, ASKED.take())
    }

    #[test]
    fn where_systemd_runs_it_is_asked_once_and_has_the_mounts_that_want_it() {
        let (commands, asked) = told(|program, arguments| {
            ask(program, arguments);
            ended(0)
        });
        assert_eq!(commands, [MOUNT, SCOPED, MOUNT, SCOPED]);
        assert_eq!(asked, [PROBE]);
    }

    #[test]
    fn where_it_refuses_or_is_not_there_mounts_are_plain_and_it_is_not_asked_again() {
        let refuses: Run = |program, arguments| {
            ask(program, arguments);
            ended(1)
        };
        let missing: Run = |program, arguments| {
            ask(program, arguments);
            Err(HostError::os(Action::Run, program, errno::Errno(errno::ENOENT)))
        };
        for run in [refuses, missing] {
            assert_eq!(told(run), (vec![MOUNT.to_owned(); 4], vec![PROBE.to_owned()]));
        }
    }
}
