//! The fallback witness: mountinfo, read again whenever the kernel reports a change of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Mount, MountEvent, MountEventKind, MountId, ObserveError, mountinfo};

/// An open mountinfo: it remembers which state of the table its reader has seen.
#[derive(Debug)]
pub(super) struct Table(File);

impl Table {
    pub(super) fn open() -> Result<Table, ObserveError> {
        File::open("/proc/thread-self/mountinfo").map(Table).map_err(read)
    }

    /// Whether mounts or their flags have changed since the last call. The kernel does not report changes of propagation.
    pub(super) fn changed(&self) -> bool {
        let mut watched = [PollFd::new(self.0.as_fd(), PollFlags::POLLPRI)];
        matches!(poll(&mut watched, PollTimeout::ZERO), Ok(1))
    }

    pub(super) fn read(&mut self) -> Result<Vec<Mount>, ObserveError> {
        let mut bytes = Vec::new();
        self.0.rewind().and_then(|()| self.0.read_to_end(&mut bytes)).map_err(read)?;
        mountinfo::parse(&bytes)
    }
}

fn read(source: io::Error) -> ObserveError {
    ObserveError::Read { what: "/proc/thread-self/mountinfo", source }
}

/// The witness: the table as it was last read, and the mounts in it.
#[derive(Debug)]
pub(super) struct Poll {
    table: Table,
    known: BTreeMap<MountId, Mount>,
}

impl Poll {
    pub(super) fn start() -> Result<Poll, ObserveError> {
        let mut table = Table::open()?;
        let known = by_id(table.read()?, &BTreeMap::new());
        Ok(Poll { table, known })
    }

    pub(super) fn known(&self) -> &BTreeMap<MountId, Mount> {
        &self.known
    }

    pub(super) fn drain(&mut self) -> Result<Vec<MountEvent>, ObserveError> {
        // Read without asking whether it changed: poll is silent about propagation.
        let now = by_id(self.table.read()?, &self.known);
        let events = difference(&self.known, &now);
        self.known = now;
        Ok(events)
    }
}

/// The mounts of a table by their ids. The device that a mount is stays what it was when the mount was new: to look at the
/// target again would show the file below, where the mount is gone by then.
fn by_id(table: Vec<Mount>, known: &BTreeMap<MountId, Mount>) -> BTreeMap<MountId, Mount> {
    let complete = |mut mount: Mount| {
        match known.get(&mount.id).filter(|known| same_mount(known, &mount)) {
            Some(known) => mount.rdev = known.rdev,
            None => mount = super::with_rdev(mount),
        }
        (mount.id, mount)
    };
    table.into_iter().map(complete).collect()
}

/// The events between two tables: detached (youngest first), then moved and changed, then attached.
fn difference(before: &BTreeMap<MountId, Mount>, now: &BTreeMap<MountId, Mount>) -> Vec<MountEvent> {
    let mut events = Vec::new();
    for (id, old) in before.iter().rev() {
        // The kernel has reused an id for a new mount if it shows another file system or another part of it.
        if now.get(id).is_none_or(|new| !same_mount(old, new)) {
            events.push(event(MountEventKind::Detach, old));
        }
    }
    for (id, new) in now {
        match before.get(id).filter(|old| same_mount(old, new)) {
            Some(old) if old.target != new.target => {
                events.push(event(MountEventKind::Move { from: Some(old.target.clone()) }, new));
            }
            Some(old) if old != new => {
                events.push(event(MountEventKind::Change { before: Box::new(old.clone()) }, new));
            }
            _ => {}
        }
    }
    for (id, new) in now {
        if before.get(id).is_none_or(|old| !same_mount(old, new)) {
            events.push(event(MountEventKind::Attach, new));
        }
    }
    events
}

/// The root of a mount may be renamed, or get ` //deleted` behind its name, without the mount being another.
fn same_mount(a: &Mount, b: &Mount) -> bool {
    let stays = a.target == b.target && a.parent == b.parent;
    a.dev == b.dev && a.source == b.source && (a.root == b.root || stays)
}

fn event(kind: MountEventKind, mount: &Mount) -> MountEvent {
    MountEvent { kind, id: mount.id, pid: 0, mount: Some(mount.clone()) }
}

#[cfg(test)]
mod tests {
    use super::super::Device;
    use super::*;

    #[test]
    fn device_of_a_mount_stays_when_its_target_is_looked_at_after_the_end_of_the_mount() {
        let target = tempfile::NamedTempFile::new().unwrap();
        let line = format!("37 1 0:5 /loop3 {} rw - devtmpfs udev rw\n", target.path().display());
        let mut mount = mountinfo::parse(line.as_bytes()).unwrap().remove(0);
        mount.rdev = Some(Device::from_raw(0x703));
        let known = BTreeMap::from([(mount.id, mount)]);
        let now = by_id(mountinfo::parse(line.as_bytes()).unwrap(), &known);
        assert_eq!(difference(&known, &now), []);
        // One that is new is looked at.
        let new = by_id(mountinfo::parse(line.as_bytes()).unwrap(), &BTreeMap::new());
        assert!(new.values().all(|mount| mount.rdev.is_none()));
    }
}
