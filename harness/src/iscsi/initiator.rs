//! The initiator of this machine: its daemon, as a child, and the names of its disks. Runs `iscsid` and `iscsiadm`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::links::Links;
use super::{IscsiError, load};
use crate::facts;
use crate::guard::CloseError;
use crate::wait::Deadline;

/// Disks have no device without the first, and the daemon finds no module by itself.
const MODULES: [&str; 2] = ["sd_mod", "iscsi_tcp"];

/// The directory of the lock that `iscsiadm` takes.
const LOCKS: &str = "/run/lock/iscsi";

/// The name of the daemon's socket, as the kernel lists it.
const SOCKET: &str = "@ISCSIADM_ABSTRACT_NAMESPACE";

const SESSIONS: &str = "/sys/class/iscsi_session";

/// The time for the daemon to listen, and for a session to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The daemon, if this machine has one, and the links to the disks. Both end when it is dropped.
#[derive(Debug)]
pub struct Initiator {
    daemon: Option<Child>,
    _links: Links,
}

impl Initiator {
    /// Starts the daemon, with its output in this file.
    ///
    /// # Errors
    /// When the kernel has no initiator, or the daemon does not start.
    pub fn start(log: &Path) -> Result<Self, IscsiError> {
        load(&MODULES)?;
        let made = |source| IscsiError::Make { path: LOCKS.into(), source };
        fs::create_dir_all(LOCKS).map_err(made)?;
        let links = Links::keep().map_err(IscsiError::Links)?;
        let mut initiator = Self { daemon: None, _links: links };
        // A driver may bring one in its image.
        if let Some(program) = facts::program("iscsid") {
            initiator.daemon = Some(spawn(&program, log).map_err(IscsiError::Run)?);
            initiator.comes_up(log)?;
        }
        Ok(initiator)
    }

    fn comes_up(&mut self, log: &Path) -> Result<(), IscsiError> {
        let daemon = &mut self.daemon;
        let up_or_ended = || {
            let is_up = fs::read_to_string("/proc/net/unix").is_ok_and(|sockets| sockets.contains(SOCKET));
            let has_ended = daemon.as_mut().is_some_and(|daemon| !matches!(daemon.try_wait(), Ok(None)));
            (is_up || has_ended).then_some(is_up)
        };
        match Deadline::after(PATIENCE).until("it does not listen", up_or_ended) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let output = fs::read_to_string(log).unwrap_or_default();
                Err(IscsiError::Daemon { output: output.trim().to_owned() })
            }
            Err(late) => Err(IscsiError::Daemon { output: late.to_string() }),
        }
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // An error means that it has ended already.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn spawn(program: &Path, log: &Path) -> io::Result<Child> {
    let log = File::create(log)?;
    let mut command = Command::new(program);
    command.args(["--foreground", "--no-pid-file"]).stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log).spawn()
}

/// Ends the sessions with a target.
pub(super) fn log_out(iqn: &str) -> Result<(), CloseError> {
    let mut output = String::new();
    for session in sessions(iqn) {
        output += &ended(&session).unwrap_or_else(|error| error.to_string());
    }
    let all_ended = || sessions(iqn).is_empty().then_some(());
    // The daemon answers before the kernel has removed the last disk.
    let patience = if output.is_empty() { PATIENCE } else { Duration::ZERO };
    Deadline::after(patience).until("sessions are left", all_ended).map_err(|late| {
        let left: Vec<_> = sessions(iqn).iter().map(|path| path.display().to_string()).collect();
        let why = if output.is_empty() { late.to_string() } else { output.clone() };
        CloseError::Os {
            what: format!("log out of the iSCSI target `{iqn}`: `{}` is left", left.join("`, `")),
            source: io::Error::other(why),
        }
    })
}

/// The directories of the kernel's sessions with a target.
fn sessions(iqn: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(SESSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_with = |session: &PathBuf| {
        fs::read_to_string(session.join("targetname")).is_ok_and(|name| name.trim() == iqn)
    };
    all.filter(is_with).collect()
}

/// Ends a session. Returns what `iscsiadm` says if it fails.
fn ended(session: &Path) -> io::Result<String> {
    let program = facts::program("iscsiadm").unwrap_or_else(|| "iscsiadm".into());
    let name = session.file_name().unwrap_or_default().to_string_lossy();
    let number = name.trim_start_matches("session");
    let said = Command::new(program).args(["--mode", "session", "--sid", number, "--logout"]).output()?;
    match said.status.success() {
        true => Ok(String::new()),
        false => Ok(String::from_utf8_lossy(&said.stderr).trim().to_owned()),
    }
}
