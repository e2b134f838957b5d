//! A file system whose files fail on order: with errors, late, never, or by writing less than they report.
//!
//! It shows the files of a directory, its *backing*, through FUSE. [`Rule`]s, armed and disarmed while it runs,
//! decide what goes wrong with which call; without a rule it is a plain mirror. It is served by a process of its
//! own, which can die and come back, so that a process that hangs on it can always be freed: by [`FaultFs::release`],
//! by closing it, or by the kernel when that process is gone. Starts that process, mounts and unmounts.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};

use crate::census::holders_of_mount;
use crate::guard::{self, CloseError, Guard};
use crate::observe;
use crate::wait::{Deadline, TimedOut};

mod control;
mod disk;
mod held;
mod inodes;
mod rule;
mod serve;
mod server;
mod write_log;

pub use control::{Client, ControlError, Status};
pub use disk::{FaultDisk, FaultDiskError};
pub use rule::{Fault, Operation, Rule, RuleId};
pub use serve::main;
pub use write_log::{Cut, Record, WriteLog, WriteLogError};

/// The hidden subcommand that [`main`] answers; its settings are its argument, as JSON.
pub const SUBCOMMAND: &str = "__faultfs";

/// The time for the serving process to mount, or to end after the unmount.
const START: Duration = Duration::from_secs(10);

/// The time for which a busy unmount is retried.
const BUSY: Duration = Duration::from_millis(500);

/// The source and the mount point of a fault file system.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct FaultFsOptions {
    /// The directory whose files it shows. They survive the serving process.
    pub backing: PathBuf,
    /// The directory it is mounted at.
    pub target: PathBuf,
    /// The socket on which it takes orders; at most 108 bytes.
    pub control: PathBuf,
    /// From which the rules with a chance roll their dice.
    pub seed: u64,
}

/// Why a fault file system could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FaultFsError {
    /// Its process could not be started.
    #[error("cannot start the process of the fault file system")]
    Start(#[source] io::Error),
    /// Its process ended instead of serving.
    #[error("cannot serve the fault file system: {0}")]
    Ended(String),
    /// It did not answer in time.
    #[error("cannot reach the fault file system")]
    Silent(#[from] TimedOut),
    /// A dead one could not be taken away before it comes back.
    #[error("cannot unmount `{target}`")]
    Unmount {
        target: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A mounted fault file system and its process.
#[derive(Debug)]
pub struct FaultFs {
    options: FaultFsOptions,
    child: Child,
    open: bool,
}

impl FaultFs {
    /// Mounts a new file system.
    pub fn start(options: FaultFsOptions) -> Result<FaultFs, FaultFsError> {
        let child = spawn(&options)?;
        Ok(FaultFs { options, child, open: true })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.options.target
    }

    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// To give it orders.
    pub fn control(&self) -> Client {
        Client::new(&self.options.control)
    }

    /// Arms a rule. Rules are asked in the order in which they were armed.
    pub fn arm(&self, rule: Rule) -> Result<RuleId, ControlError> {
        self.control().arm(rule)
    }

    /// Disarms every rule and answers every call that was left hanging, with EIO.
    pub fn release(&self) -> Result<(), ControlError> {
        let control = self.control();
        control.clear()?;
        control.release()
    }

    /// Kills the serving process. From now on every call fails with ENOTCONN; what hung on it fails, too.
    pub fn die(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Mounts it again after it died: the same files, no rules. Who had a file open has it no more.
    pub fn come_back(&mut self) -> Result<(), FaultFsError> {
        let failed = |errno: nix::Error| FaultFsError::Unmount {
            target: self.options.target.clone(),
            source: errno.into(),
        };
        umount2(&self.options.target, MntFlags::MNT_DETACH).map_err(failed)?;
        // It may have died by itself, and was not reaped yet.
        self.die().map_err(FaultFsError::Start)?;
        self.child = spawn(&self.options)?;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), CloseError> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        // No process may hang on it while it is asked to go. If it does not take the order it goes the hard way.
        let control = self.control().patience(Duration::from_secs(1));
        let _ = control.clear().and_then(|()| control.release());
        let target = self.options.target.clone();
        let attempt = || match umount2(&target, MntFlags::UMOUNT_NOFOLLOW) {
            Err(nix::Error::EBUSY) => None,
            done => Some(done),
        };
        let result = match Deadline::after(BUSY).until("", attempt) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) => Err(CloseError::Unmount { target: target.clone(), source: errno.into() }),
            Err(_) => Err(CloseError::Busy { target: target.clone(), holders: holders(&target) }),
        };
        if result.is_err() {
            // Says EBUSY, but aborts the connection: each waiting process is freed, even from an unkillable sleep.
            let _ = umount2(&target, MntFlags::MNT_FORCE);
            let _ = umount2(&target, MntFlags::MNT_DETACH);
        }
        let ended =
            Deadline::after(START).until_ended("the fault file system is still served", &mut self.child);
        if ended.is_err() {
            let _ = self.die();
        }
        let _ = std::fs::remove_file(&self.options.control);
        result
    }
}

impl Guard for FaultFs {
    fn close(mut self) -> Result<(), CloseError> {
        self.unmount()
    }
}

impl Drop for FaultFs {
    fn drop(&mut self) {
        let target = self.options.target.clone();
        guard::undo(target.display(), || self.unmount());
    }
}

fn holders(target: &Path) -> String {
    let mounts = observe::snapshot().unwrap_or_default();
    mounts.iter().rfind(|mount| mount.target == target).map(holders_of_mount).unwrap_or_default().to_string()
}

/// Starts the serving process and waits until it takes orders, which it does once it is mounted.
fn spawn(options: &FaultFsOptions) -> Result<Child, FaultFsError> {
    let _ = std::fs::remove_file(&options.control);
    let settings = serde_json::to_string(options).expect("paths and numbers are always JSON");
    let mut command = Command::new("/proc/self/exe");
    command.arg0("volproof-faultfs").args([SUBCOMMAND, &settings]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(FaultFsError::Start)?;
    let client = Client::new(&options.control);
    let ready =
        Deadline::after(START).until("the fault file system takes no orders", || match child.try_wait() {
            Ok(Some(status)) => Some(Err(status)),
            _ => client.status().ok().map(|_| Ok(())),
        });
    match ready {
        Ok(Ok(())) => Ok(child),
        Ok(Err(status)) => {
            let mut said = String::new();
            let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
            Err(FaultFsError::Ended(format!("{} ({status})", said.trim())))
        }
        Err(late) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(late.into())
        }
    }
}

/// Copies a file and keeps its holes: a disk image is mostly hole.
pub(crate) fn copy_sparse(from: &File, to: &File) -> io::Result<()> {
    use rustix::fs::SeekFrom;
    use std::os::unix::fs::FileExt;
    let length = from.metadata()?.len();
    to.set_len(0)?;
    to.set_len(length)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < length {
        let begin = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data from here to the end.
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(begin))?;
        at = begin;
        while at < end {
            let part = buffer.len().min((end - at) as usize);
            from.read_exact_at(&mut buffer[..part], at)?;
            to.write_all_at(&buffer[..part], at)?;
            at += part as u64;
        }
    }
    Ok(())
}
