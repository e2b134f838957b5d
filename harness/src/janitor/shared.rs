//! Undoing what a run has left on the machine through a driver that was not its own: mounts below a node's root
//! that both share, and the loop devices behind them. Unmounts, detaches, and has the driver asked in between.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::{Undone, debts};
use crate::ledger::{Debts, Entry};
use crate::loop_device::LOOP_MAJOR;
use crate::loop_device::table::{self, BoundLoop};
use crate::observe::{self, Device, Mount};

/// A node's root on the machine, as the ledger names it.
struct Root<'a> {
    path: &'a Path,
    /// The newest attachment of any disk when it was made.
    since: Option<u64>,
}

/// Undoes every shared root of a ledger.
///
/// What the node made goes first, then the driver is asked to take back what it was asked for, and what is there
/// after that is taken from it: a driver that finds its mounts gone would be left with devices that are not in use.
pub(super) fn undo_all(entries: &[Entry], undone: &mut Undone) {
    let roots: Vec<Root<'_>> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::SharedRoot { path, since } => Some(Root { path, since: *since }),
            _ => None,
        })
        .collect();
    if roots.is_empty() {
        return;
    }
    let debts = Debts::of(entries);
    let of_driver: BTreeSet<&str> =
        debts.published.iter().chain(&debts.staged).map(|at| at.path.as_str()).collect();
    let mut devices = Vec::new();
    for root in &roots {
        let below = mounts_below(root.path);
        devices.push(devices_shown(&below));
        detach(&locks(root, &devices_shown(&below)), undone);
        let nodes = below.iter().filter(|mount| !is_of_driver(&mount.target, &of_driver));
        unmount(nodes.map(|mount| mount.target.clone()), undone);
    }
    debts::settle(entries, &debts, undone);
    for (root, shown) in roots.iter().zip(&devices) {
        unmount(mounts_below(root.path).into_iter().map(|mount| mount.target), undone);
        let behind = |bound: &BoundLoop| {
            is_younger(bound, root.since)
                && shown.contains(&Device { major: LOOP_MAJOR, minor: bound.number })
        };
        detach(&table::bound().into_iter().filter(behind).collect::<Vec<_>>(), undone);
        take_away(root.path, undone);
    }
}

/// The mounts below a root in our namespace, youngest first.
fn mounts_below(root: &Path) -> Vec<Mount> {
    let mut below = observe::snapshot().unwrap_or_default();
    below.retain(|mount| mount.target != root && mount.target.starts_with(root));
    below.sort_by_key(|mount| std::cmp::Reverse(mount.id));
    below
}

fn is_of_driver(target: &Path, of_driver: &BTreeSet<&str>) -> bool {
    of_driver.iter().any(|path| target.starts_with(path))
}

/// The devices that these mounts are, or whose file systems they show.
fn devices_shown(mounts: &[Mount]) -> BTreeSet<Device> {
    let by_name = |mount: &Mount| {
        // btrfs has a device number of its own.
        let minor = mount.source.strip_prefix("/dev/loop")?.parse().ok()?;
        Some(Device { major: LOOP_MAJOR, minor })
    };
    let of = |mount: &Mount| [mount.rdev, Some(mount.dev), by_name(mount)];
    mounts.iter().flat_map(of).flatten().filter(|device| device.major != 0).collect()
}

/// The loop devices by which the node keeps devices below the root open.
fn locks(root: &Root<'_>, shown: &BTreeSet<Device>) -> Vec<BoundLoop> {
    let is_lock = |bound: &BoundLoop| {
        is_younger(bound, root.since) && bound.over.is_some_and(|device| shown.contains(&device))
    };
    table::bound().into_iter().filter(is_lock).collect()
}

/// Whether an attachment is from after a moment. If that is unknown, it counts as a stranger's.
fn is_younger(bound: &BoundLoop, since: Option<u64>) -> bool {
    bound.sequence.zip(since).is_some_and(|(sequence, since)| sequence > since)
}

fn detach(loops: &[BoundLoop], undone: &mut Undone) {
    for bound in loops {
        match table::detach(bound) {
            Ok(()) => {
                undone.done.push(format!("detached loop{} ({})", bound.number, bound.backing.display()))
            }
            Err(reason) => undone.left.push(format!("loop{}: {reason}", bound.number)),
        }
    }
}

fn unmount(targets: impl Iterator<Item = PathBuf>, undone: &mut Undone) {
    for target in targets {
        match umount2(&target, MntFlags::UMOUNT_NOFOLLOW) {
            // In use: it goes with its last user, and is out of everybody's sight at once.
            Err(Errno::EBUSY) => drop(umount2(&target, MntFlags::MNT_DETACH)),
            Err(Errno::EINVAL | Errno::ENOENT) => continue,
            Err(errno) => {
                undone.left.push(format!("{}: {errno}", target.display()));
                continue;
            }
            Ok(()) => {}
        }
        undone.done.push(format!("unmounted {}", target.display()));
    }
}

/// Unmounts the root itself and removes its directory.
fn take_away(root: &Path, undone: &mut Undone) {
    let is_mounted = || observe::snapshot().unwrap_or_default().iter().any(|mount| mount.target == root);
    if is_mounted() {
        unmount(std::iter::once(root.to_owned()), undone);
    }
    match fs::remove_dir(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            undone.left.push(format!("{}: {error}", root.display()));
        }
        _ => {}
    }
}
