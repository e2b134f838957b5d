//! Mount events as the kernel reports them: mounts attached, moved, changed and detached, in order, with the process.
//!
//! With mount notifications (fanotify, Linux 6.15) an event can be read as soon as its system call has returned, is never
//! merged with another, and names the process. On older kernels [`MountWatch`] compares one reading of mountinfo with the
//! next: the order within a reading is guessed (detached before attached), and no process is named. Reads kernel tables
//! and changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use contracts::event::{Actor, Mount as MountLine, MountDel};

mod below;
mod fanotify;
mod mountinfo;
mod poll;
mod statmount;

pub use below::mode_below_mounts;
pub(crate) use mountinfo::parse as parse_mountinfo;
pub use statmount::MountId;

/// A mount, as the kernel described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's unique id; without statmount, mountinfo's, which is used again.
    pub id: MountId,
    /// The id of the mount it is mounted on.
    pub parent: MountId,
    /// The mount point.
    pub target: PathBuf,
    /// The directory of its file system that it shows.
    pub root: PathBuf,
    /// The type of its file system, with its sub-type (`fuse.sshfs`).
    pub fstype: String,
    /// The source in the mount table.
    pub source: String,
    /// Options of the mount.
    pub opts: String,
    /// Options of the file system.
    pub super_opts: String,
    /// The device of the file system.
    pub dev: Device,
    /// The device this mount *is*, when a device node was bound over a file.
    pub rdev: Option<Device>,
    /// Peer groups, as mountinfo shows them (`shared:1 master:2`).
    pub propagation: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

impl Device {
    /// From `st_dev` or `st_rdev`.
    pub fn from_raw(raw: u64) -> Device {
        Device { major: libc::major(raw), minor: libc::minor(raw) }
    }

    /// As `st_dev` has it.
    pub fn raw(self) -> u64 {
        libc::makedev(self.major, self.minor)
    }

    /// From `major:minor`.
    pub(crate) fn parse(text: &str) -> Option<Device> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Mount {
    /// The event of a trace for this mount.
    pub fn line(&self, by: Actor, witness: Witness) -> MountLine {
        MountLine {
            target: self.target.display().to_string(),
            root: self.root.display().to_string(),
            fstype: self.fstype.clone(),
            source: self.source.clone(),
            opts: self.opts.clone(),
            super_opts: self.super_opts.clone(),
            dev: self.dev.to_string(),
            rdev: self.rdev.map(|rdev| rdev.to_string()),
            propagation: self.propagation.clone(),
            id: self.id.0,
            by,
            seen_by: witness.to_string(),
            unnamed: false,
        }
    }

    /// The event of a trace for the end of this mount.
    pub fn gone(&self, by: Actor, witness: Witness) -> MountDel {
        MountDel {
            target: self.target.display().to_string(),
            id: self.id.0,
            by,
            seen_by: witness.to_string(),
            unnamed: false,
        }
    }
}

/// One change of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEvent {
    pub kind: MountEventKind,
    /// The changed mount.
    pub id: MountId,
    /// The process whose system call it was, in this PID namespace; 0 if that is not known.
    pub pid: i32,
    /// The mount: after the change, or for a detached one as it was last known. Absent for one that was
    /// detached again before it was looked at: its description died with it.
    pub mount: Option<Mount>,
}

/// The kinds of [`MountEvent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountEventKind {
    Attach,
    Detach,
    /// The same mount has another target.
    Move {
        /// The old target.
        from: Option<PathBuf>,
    },
    /// Options or propagation have changed.
    Change {
        before: Box<Mount>,
    },
}

/// The source of mount events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// The kernel's own notifications.
    Fanotify,
    /// Comparison of two readings of mountinfo.
    Poll,
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Witness::Fanotify => "fanotify",
            Witness::Poll => "poll",
        })
    }
}

/// Why mounts cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// A table or a notification could not be read.
    #[error("cannot read {what}")]
    Read {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// The kernel has no such notification, or not for this user.
    #[error("cannot watch mounts by {what}")]
    Watch {
        /// The refused call.
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// A line of mountinfo was not as documented.
    #[error("cannot understand the mountinfo line `{line}`")]
    Line { line: String },
    #[error("cannot vouch for the order of mounts: the kernel's queue overflowed")]
    Overflow,
}

/// A watch over the mounts of the caller's mount namespace.
///
/// Any thread may drain it. Drained events are in the kernel's order, and each is returned once.
#[derive(Debug)]
pub struct MountWatch {
    eye: Mutex<Eye>,
    witness: Witness,
}

#[derive(Debug)]
enum Eye {
    Fanotify(fanotify::Fanotify),
    Poll(poll::Poll),
}

impl MountWatch {
    /// Starts watching with the best witness this kernel and this user have.
    pub fn start() -> Result<MountWatch, ObserveError> {
        MountWatch::start_with(Witness::Fanotify).or_else(|_| MountWatch::start_with(Witness::Poll))
    }

    /// Starts watching with this witness.
    pub fn start_with(witness: Witness) -> Result<MountWatch, ObserveError> {
        let eye = match witness {
            Witness::Fanotify => Eye::Fanotify(fanotify::Fanotify::start()?),
            Witness::Poll => Eye::Poll(poll::Poll::start()?),
        };
        Ok(MountWatch { eye: Mutex::new(eye), witness })
    }

    /// The source that it uses.
    pub fn witness(&self) -> Witness {
        self.witness
    }

    /// Everything that happened since the last call, in order. Never waits.
    ///
    /// A system call that has returned is in it. Attached mounts are described as they are now.
    pub fn drain(&self) -> Result<Vec<MountEvent>, ObserveError> {
        match &mut *self.eye() {
            Eye::Fanotify(eye) => eye.drain(),
            Eye::Poll(eye) => eye.drain(),
        }
    }

    /// Drains, and compares the known mounts with the kernel's list.
    ///
    /// The second list has the differences that the events do not explain: it is empty unless the watch missed an event.
    pub fn checkpoint(&self) -> Result<(Vec<MountEvent>, Vec<Missed>), ObserveError> {
        match &mut *self.eye() {
            Eye::Fanotify(eye) => eye.checkpoint(),
            Eye::Poll(eye) => Ok((eye.drain()?, Vec::new())),
        }
    }

    /// All mounts known at the last look, by id.
    pub fn mounts(&self) -> BTreeMap<MountId, Mount> {
        match &*self.eye() {
            Eye::Fanotify(eye) => eye.known().clone(),
            Eye::Poll(eye) => eye.known().clone(),
        }
    }

    /// The mount with this id, if it is in the table.
    pub fn get(&self, id: MountId) -> Option<Mount> {
        match &*self.eye() {
            Eye::Fanotify(eye) => eye.known().get(&id).cloned(),
            Eye::Poll(eye) => eye.known().get(&id).cloned(),
        }
    }

    /// The mounts at exactly this path, the topmost last.
    pub fn at(&self, target: &Path) -> Vec<Mount> {
        let mounts = self.mounts();
        mounts.into_values().filter(|mount| mount.target == target).collect()
    }

    fn eye(&self) -> std::sync::MutexGuard<'_, Eye> {
        // A panic elsewhere cannot leave the tables half written: every step replaces whole entries.
        self.eye.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this kernel lists and describes mounts by unique ids.
pub fn has_statmount() -> bool {
    statmount::list().is_ok()
}

/// Every mount of the caller's namespace now: with unique ids, where the kernel has them.
pub fn snapshot() -> Result<Vec<Mount>, ObserveError> {
    match fanotify::describe_all() {
        Ok(mounts) => Ok(mounts),
        Err(_) => Ok(poll::Table::open()?.read()?.into_iter().map(with_rdev).collect()),
    }
}

/// The mounts that a process sees, in the order of its table; `thread-self` stands for the caller.
///
/// # Errors
/// When the process has ended, or a line of its table is not as documented.
pub fn mounts_of(process: &str) -> Result<Vec<Mount>, ObserveError> {
    let table = std::fs::read(format!("/proc/{process}/mountinfo"));
    parse_mountinfo(&table.map_err(|source| ObserveError::Read { what: "the mounts of a process", source })?)
}

/// A difference between the events and the kernel's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missed {
    /// The kernel lists a mount that no event announced.
    Unannounced(MountId),
    /// A mount is gone without an event.
    Vanished(MountId),
}

/// Completes a mount that shows a single file with the device it is, if it is one.
///
/// Only device nodes on local file systems are asked: a network or FUSE file system may not answer.
fn with_rdev(mut mount: Mount) -> Mount {
    let asks = ["devtmpfs", "tmpfs", "ext4", "xfs", "btrfs", "overlay"];
    if mount.root.as_os_str() != "/" && asks.contains(&mount.fstype.as_str()) {
        let metadata = std::fs::symlink_metadata(&mount.target).ok();
        mount.rdev = metadata.filter(is_device).map(|m| Device::from_raw(m.rdev()));
    }
    mount
}

fn is_device(metadata: &std::fs::Metadata) -> bool {
    let kind = metadata.file_type();
    kind.is_block_device() || kind.is_char_device()
}
