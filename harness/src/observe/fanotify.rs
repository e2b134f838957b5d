//! The first witness: the kernel's mount notifications, resolved by `statmount` as they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use super::poll::Table;
use super::statmount::Statmount;
use super::{Missed, Mount, MountEvent, MountEventKind, MountId, ObserveError, statmount};
use crate::notification::{Group, Notification, array, notifications};

const FAN_REPORT_MNT: u32 = 0x4000;
const FAN_MARK_MNTNS: u32 = 0x110;
const FAN_MNT_ATTACH: u64 = 0x0100_0000;
const FAN_MNT_DETACH: u64 = 0x0200_0000;
const INFO_TYPE_MNT: u8 = 7;
/// More than one notification takes.
const ROOM: usize = 256;

/// A notification group on the caller's mount namespace, and every mount it knows of.
#[derive(Debug)]
pub(super) struct Fanotify {
    group: Group,
    table: Table,
    known: BTreeMap<MountId, Mount>,
    /// The kernel's very words about each of them: comparing those costs next to nothing.
    words: BTreeMap<MountId, Box<[u8]>>,
    statmount: Statmount,
    /// The buffer for notifications.
    inbox: Box<[u8]>,
    /// The newest mount that existed before this watch.
    eldest: MountId,
    /// The table has changed, and it is not known yet whether the notifications explain that.
    suspect: bool,
}

/// A notification as it was read.
struct Notice {
    mask: u64,
    pid: i32,
    id: MountId,
}

impl Notice {
    /// Whether the mount is gone, and not only elsewhere.
    fn is_end(&self) -> bool {
        self.mask & (FAN_MNT_ATTACH | FAN_MNT_DETACH) == FAN_MNT_DETACH
    }
}

impl Fanotify {
    pub(super) fn start() -> Result<Fanotify, ObserveError> {
        let group = open_group()?;
        mark_namespace(&group)?;
        let table = Table::open()?;
        table.changed();
        // Listed after the mark: a mount that is attached in between is listed and notified, and never missed.
        let mut eye = Fanotify {
            group,
            table,
            known: BTreeMap::new(),
            words: BTreeMap::new(),
            statmount: Statmount::new(),
            inbox: vec![0; 64 << 10].into(),
            eldest: MountId(0),
            suspect: false,
        };
        for id in statmount::list().map_err(unlistable)? {
            let found = eye.describe(id)?;
            eye.known.extend(found.map(|mount| (id, mount)));
            eye.eldest = eye.eldest.max(id);
        }
        Ok(eye)
    }

    pub(super) fn known(&self) -> &BTreeMap<MountId, Mount> {
        &self.known
    }

    pub(super) fn drain(&mut self) -> Result<Vec<MountEvent>, ObserveError> {
        // Asked before the notifications are read: a later change is seen by a later call.
        self.suspect |= self.table.changed();
        let mut events = self.read_events()?;
        // The kernel does not notify of a remount, and looking for it costs a microsecond a mount. So the mounts that are
        // not older than this watch are looked at when something else has happened, unless they are many, and all of them
        // when nothing has.
        if self.suspect && events.is_empty() {
            self.suspect = false;
            events.extend(self.changes(MountId(0))?);
        } else if self.suspect && self.known.len() <= 256.max(64 * events.len()) {
            events.extend(self.changes(MountId(self.eldest.0 + 1))?);
        }
        Ok(events)
    }

    pub(super) fn checkpoint(&mut self) -> Result<(Vec<MountEvent>, Vec<Missed>), ObserveError> {
        let mut events = self.read_events()?;
        events.extend(self.changes(MountId(0))?);
        let listed = statmount::list().map_err(unlistable)?;
        let unannounced =
            listed.iter().filter(|id| !self.known.contains_key(*id)).copied().map(Missed::Unannounced);
        let vanished = self.known.keys().filter(|id| listed.binary_search(*id).is_err()).copied();
        let missed: Vec<Missed> = unannounced.chain(vanished.map(Missed::Vanished)).collect();
        Ok((events, missed))
    }

    fn read_events(&mut self) -> Result<Vec<MountEvent>, ObserveError> {
        let mut events = Vec::new();
        loop {
            let length = match (&self.group).read(&mut self.inbox) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(events),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(ObserveError::Read { what: "mount notifications", source }),
            };
            let notices = notices(&self.inbox[..length])?;
            let gone: BTreeSet<MountId> =
                notices.iter().filter(|notice| notice.is_end()).map(|n| n.id).collect();
            for notice in notices {
                let is_over = gone.contains(&notice.id);
                events.extend(self.take(notice, is_over)?);
            }
            // There was room for another notification, so this was the last.
            if length + ROOM <= self.inbox.len() {
                return Ok(events);
            }
        }
    }

    /// Books one notification. An attachment that was listed at the start is no news, and one that is known to be over
    /// has no description any more.
    fn take(&mut self, notice: Notice, is_over: bool) -> Result<Option<MountEvent>, ObserveError> {
        let Notice { mask, pid, id } = notice;
        if mask & FAN_MNT_ATTACH == 0 {
            let mount = self.known.remove(&id);
            self.words.remove(&id);
            return Ok(Some(MountEvent { kind: MountEventKind::Detach, id, pid, mount }));
        }
        let mount = if is_over { None } else { self.describe(id)? };
        let before = self.known.get(&id).cloned();
        // The mount is gone already: its description is kept for the notification of its end.
        if let Some(mount) = &mount {
            self.known.insert(id, mount.clone());
        }
        let kind = match (mask & FAN_MNT_DETACH != 0, before) {
            (true, before) => MountEventKind::Move { from: before.map(|mount| mount.target) },
            (false, None) => MountEventKind::Attach,
            (false, Some(_)) => return Ok(None),
        };
        Ok(Some(MountEvent { kind, id, pid, mount }))
    }

    /// Asks about every known mount from this one on whether it is still as it was.
    fn changes(&mut self, from: MountId) -> Result<Vec<MountEvent>, ObserveError> {
        let mut events = Vec::new();
        for (id, known) in self.known.range_mut(from..) {
            // Gone: its notification is on the way.
            let Some(answer) = self.statmount.ask(*id).map_err(unresolvable)? else { continue };
            if self.words.get(id).is_some_and(|words| **words == *answer.words()) {
                continue;
            }
            self.words.insert(*id, answer.words().into());
            let now = super::with_rdev(answer.mount());
            // A parent that moved takes its children along, and the kernel does not notify of those.
            if now != *known {
                let before = std::mem::replace(known, now.clone());
                let kind = if before.target == now.target {
                    MountEventKind::Change { before: Box::new(before) }
                } else {
                    MountEventKind::Move { from: Some(before.target) }
                };
                events.push(MountEvent { kind, id: *id, pid: 0, mount: Some(now) });
            }
        }
        Ok(events)
    }

    /// The current description of a mount; `None` if it is gone.
    fn describe(&mut self, id: MountId) -> Result<Option<Mount>, ObserveError> {
        let Some(answer) = self.statmount.ask(id).map_err(unresolvable)? else { return Ok(None) };
        self.words.insert(id, answer.words().into());
        Ok(Some(super::with_rdev(answer.mount())))
    }
}

fn open_group() -> Result<Group, ObserveError> {
    // Root of a user namespace may not have an endless queue; 16384 events between two looks will do, and
    // an overflow is an error of its own.
    Group::open(FAN_REPORT_MNT | libc::FAN_UNLIMITED_QUEUE, FAN_MARK_MNTNS)
        .or_else(|_| Group::open(FAN_REPORT_MNT, FAN_MARK_MNTNS))
        .map_err(|source| ObserveError::Watch { what: "fanotify_init", source })
}

fn mark_namespace(group: &Group) -> Result<(), ObserveError> {
    let namespace = File::open("/proc/thread-self/ns/mnt")
        .map_err(|source| ObserveError::Watch { what: "/proc/thread-self/ns/mnt", source })?;
    group
        .mark(0, FAN_MNT_ATTACH | FAN_MNT_DETACH, namespace.as_raw_fd(), None)
        .map_err(|source| ObserveError::Watch { what: "fanotify_mark", source })
}

/// Every mount of the caller's namespace.
pub(super) fn describe_all() -> Result<Vec<Mount>, ObserveError> {
    let mut statmount = Statmount::new();
    let mut all = Vec::new();
    for id in statmount::list().map_err(unlistable)? {
        let answer = statmount.ask(id).map_err(unresolvable)?;
        all.extend(answer.map(|answer| super::with_rdev(answer.mount())));
    }
    Ok(all)
}

fn unresolvable(source: io::Error) -> ObserveError {
    ObserveError::Read { what: "a mount by statmount", source }
}

fn unlistable(source: io::Error) -> ObserveError {
    ObserveError::Read { what: "the mounts by listmount", source }
}

/// The notifications about mounts in a buffer.
fn notices(bytes: &[u8]) -> Result<Vec<Notice>, ObserveError> {
    let mut found = Vec::new();
    for event in notifications(bytes) {
        let Notification { mask, pid, .. } = event;
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            return Err(ObserveError::Overflow);
        }
        let id = event.record(INFO_TYPE_MNT).and_then(|record| array(record, 8));
        found.extend(id.map(|id| Notice { mask, pid, id: MountId(u64::from_ne_bytes(id)) }));
    }
    Ok(found)
}
