//! The processes of a run, recognised by a variable that they inherit and by their arguments.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable by which a test knows the processes it is responsible for: they inherit it.
pub(crate) const MARK: &str = "VOLPROOF_TEST_MARK";

/// A process of a marked run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its id in our namespace.
    pub pid: i32,
    pub role: Role,
}

/// The role of a process of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `volproof run`.
    Run,
    Janitor,
    /// The process of a case: the outer one or PID 1 of its sandbox.
    Worker,
    /// The process with the volume manager.
    Node,
    Driver,
    /// The server of a file system with faults.
    FaultFs,
    /// A process that one of them has started.
    Other,
}

impl Process {
    /// All living processes that carry a mark.
    pub fn marked(mark: &str) -> Vec<Process> {
        let wanted = format!("{MARK}={mark}");
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            // A dead process that was not reaped yet has no environment to read.
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables.find(|variable| *variable == wanted.as_bytes())?;
            let words = fs::read(entry.path().join("cmdline")).ok()?;
            Some(Process { pid, role: Role::of(&words) })
        })
        .collect()
    }

    /// SIGKILL. Says whether it was still there.
    pub fn kill(self) -> bool {
        kill(Pid::from_raw(self.pid), Signal::SIGKILL).is_ok()
    }
}

impl Role {
    fn of(words: &[u8]) -> Role {
        match words.split(|byte| *byte == 0).nth(1) {
            Some(b"run") => Role::Run,
            Some(b"__janitor") => Role::Janitor,
            Some(b"__worker") => Role::Worker,
            Some(b"__node") => Role::Node,
            Some(b"__fake-csi") => Role::Driver,
            Some(b"__faultfs") => Role::FaultFs,
            _ => Role::Other,
        }
    }
}
