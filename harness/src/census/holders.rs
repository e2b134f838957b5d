//! Holders of a device or mount: the chain from it to the processes at its end.

use std::fmt;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags};

use super::process::{self, Process};
use crate::loop_device::{LOOP_MAJOR, table};
use crate::observe::{self, Device, Mount};

/// A holder of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A process that has it open, or whose working directory is in it.
    Process(Process),
    /// A mount of its file system; its holders follow.
    Mount {
        /// Type of the file system.
        fstype: String,
        /// The mount point.
        target: String,
        /// The processes that use the mount.
        held: Holders,
    },
    /// A loop device over it; its holders follow.
    Loop {
        /// The number of that device.
        number: u32,
        /// The processes, mounts and devices that use it.
        held: Holders,
    },
    /// A device of another driver is built on it, such as `dm-0`.
    Device(String),
}

/// All holders of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holders(pub Vec<Holder>);

impl Holders {
    /// Whether no holder is visible.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no visible holder");
        }
        for (index, holder) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{holder}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = match self {
            Holder::Process(process) => return write!(f, "{process}"),
            Holder::Device(name) => return f.write_str(name),
            Holder::Mount { fstype, target, held } => {
                write!(f, "{fstype} at {target}")?;
                held
            }
            Holder::Loop { number, held } => {
                write!(f, "loop{number}")?;
                held
            }
        };
        if held.is_empty() { Ok(()) } else { write!(f, " ← {held}") }
    }
}

/// All visible holders that keep loop device `number` attached.
pub fn holders_of_loop(number: u32) -> Holders {
    // Loop devices stack a handful deep at most; the limit ends the recursion if the table changes meanwhile.
    loop_holders(number, 8)
}

fn loop_holders(number: u32, depth: u32) -> Holders {
    let Some(depth) = depth.checked_sub(1) else { return Holders::default() };
    let device = Device { major: LOOP_MAJOR, minor: number };
    let node = format!("/dev/loop{number}");
    let mut holders: Vec<Holder> = opened_by(device).into_iter().map(Holder::Process).collect();
    let mounts = observe::snapshot().unwrap_or_default();
    // A file system on several devices has its own device number, and names one of them as its source.
    for mount in mounts.iter().filter(|mount| mount.dev == device || mount.source == node) {
        let target = mount.target.display().to_string();
        holders.push(Holder::Mount { fstype: mount.fstype.clone(), target, held: holders_of_mount(mount) });
    }
    for above in table::bound().iter().filter(|bound| bound.over == Some(device)) {
        holders.push(Holder::Loop { number: above.number, held: loop_holders(above.number, depth) });
    }
    if let Ok(others) = fs::read_dir(format!("/sys/block/loop{number}/holders")) {
        let names = others.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        holders.extend(names.map(Holder::Device));
    }
    Holders(holders)
}

/// The processes that work at or below a mount or have a file of it open.
pub fn holders_of_mount(mount: &Mount) -> Holders {
    // All paths are below `/`, and `/proc` is open in many processes: neither says who holds this mount.
    if mount.target == Path::new("/") || mount.target == Path::new("/proc") {
        return Holders::default();
    }
    let uses = |process: &Process| {
        process::open_paths(process.pid).iter().any(|path| path.starts_with(&mount.target))
    };
    Holders(process::all().into_iter().filter(uses).map(Holder::Process).collect())
}

/// The processes that have a device open, by any path.
fn opened_by(device: Device) -> Vec<Process> {
    let me = std::process::id() as i32;
    let mut found = Vec::new();
    for process in process::all() {
        if process.pid != me && has_open(process.pid, device) {
            found.push(process);
        }
    }
    found
}

fn has_open(pid: i32, device: Device) -> bool {
    let Ok(dir) = fs::File::open(format!("/proc/{pid}/fd")) else { return false };
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.flatten().any(|entry| {
        // Without asking the file system: a hung one would not answer.
        let flags = AtFlags::STATX_DONT_SYNC;
        let name = entry.file_name();
        rustix::fs::statx(dir.as_fd(), name.as_os_str(), flags, StatxFlags::TYPE).is_ok_and(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()) == rustix::fs::FileType::BlockDevice
                && (stat.stx_rdev_major, stat.stx_rdev_minor) == (device.major, device.minor)
        })
    })
}
