//! Transient scopes of systemd: a helper process of a mount made in one outlives the node's own process (07 §2).
//! Touches processes.

use std::sync::OnceLock;

use super::command::{self, Ran};
use crate::error::Result;
use crate::mount_command::MountCommand;
use crate::options::{MountSpec, Scope};

pub(super) static SYSTEMD: Systemd = Systemd::new(command::run);

type Run = fn(&str, &[String]) -> Result<Ran>;

/// Makes mount commands, in a scope where systemd runs.
pub(super) struct Systemd {
    run: Run,
    runs: OnceLock<bool>,
}

impl Systemd {
    const fn new(run: Run) -> Self {
        Self { run, runs: OnceLock::new() }
    }

    /// The command for a mount: in a scope of its own if the spec asks for one and systemd runs.
    pub(super) fn mount(&self, spec: &MountSpec) -> MountCommand {
        let mount = MountCommand::mount(spec);
        match spec.scope {
            Scope::Systemd if self.runs() => mount.in_systemd_scope(&spec.target),
            _ => mount,
        }
    }

    /// Whether systemd makes scopes here. Tried once, since each try starts a process.
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

    /// The commands of two mounts of each scope, and the probes that were run for them.
    fn commands_and_probes(run: Run) -> (Vec<String>, Vec<String>) {
        let systemd = Systemd::new(run);
        let mut commands = Vec::new();
        for scope in [Scope::Plain, Scope::Systemd, Scope::Plain, Scope::Systemd] {
            let options = crate::options::MountOptions::new(["soft"]);
            let spec = MountSpec { scope, ..MountSpec::new("server:/x", "/t", "cifs").with_options(options) };
            let command = systemd.mount(&spec);
            commands.push(format!("{} {}", command.program, command.arguments.join(" ")));
            if scope == Scope::Plain && commands.len() == 1 {
                assert!(ASKED.with_borrow(Vec::is_empty), "no probe before the first mount with a scope");
            }
        }
        (commands, ASKED.take())
    }

    #[test]
    fn mounts_with_a_scope_run_in_systemd_after_one_probe() {
        let (commands, asked) = commands_and_probes(|program, arguments| {
            ask(program, arguments);
            ended(0)
        });
        assert_eq!(commands, [MOUNT, SCOPED, MOUNT, SCOPED]);
        assert_eq!(asked, [PROBE]);
    }

    #[test]
    fn mounts_are_plain_after_one_failed_probe() {
        let refuses: Run = |program, arguments| {
            ask(program, arguments);
            ended(1)
        };
        let missing: Run = |program, arguments| {
            ask(program, arguments);
            Err(HostError::os(Action::Run, program, errno::Errno(errno::ENOENT)))
        };
        for run in [refuses, missing] {
            assert_eq!(commands_and_probes(run), (vec![MOUNT.to_owned(); 4], vec![PROBE.to_owned()]));
        }
    }
}
