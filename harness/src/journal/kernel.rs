//! What the kernel says about mounts, and who did it.
//!
//! Asks for the groups of processes, to find out to whom they belong; the events come from a [`Witness`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use nix::unistd::{Pid, getpgid};

use contracts::event::{Actor, Event, Mount, MountDel, MountsLost};
use contracts::witnessed::Unexplained;

use crate::observe::{self, MountEvent, MountEventKind, MountWatch};

/// A source of mount events.
pub trait Witness: Send {
    /// All events since the last time, in order. Events of a system call that has returned are in it.
    fn drain(&mut self) -> Vec<Seen>;
}

/// One mount event. The `by` of its mount is not filled in yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Added {
        mount: Mount,
        /// The process that did it, if that is known.
        pid: Option<i32>,
    },
    /// A mount is gone.
    Removed {
        target: String,
        id: u64,
        /// The process that did it, if that is known.
        pid: Option<i32>,
        /// The witness: `fanotify` or `poll`.
        seen_by: String,
    },
    /// A mount has other options or propagation now.
    Changed {
        /// The mount as it is now.
        mount: Mount,
    },
    /// The order cannot be vouched for any more, and why.
    Lost(String),
}

impl Witness for MountWatch {
    fn drain(&mut self) -> Vec<Seen> {
        let seen_by = self.witness();
        match MountWatch::drain(self) {
            Ok(events) => events.into_iter().flat_map(|event| seen(event, seen_by)).collect(),
            Err(error) => vec![Seen::Lost(error.to_string())],
        }
    }
}

/// A mount that came and went between two looks has no description and is left out.
fn seen(event: MountEvent, seen_by: observe::Witness) -> Vec<Seen> {
    let Some(mount) = event.mount else { return Vec::new() };
    let pid = Some(event.pid).filter(|pid| *pid != 0);
    let line = mount.line(Actor::Unknown, seen_by);
    let removed = |target: String| Seen::Removed { target, id: line.id, pid, seen_by: line.seen_by.clone() };
    match event.kind {
        MountEventKind::Attach => vec![Seen::Added { mount: line, pid }],
        MountEventKind::Detach => vec![removed(line.target.clone())],
        MountEventKind::Change { .. } => vec![Seen::Changed { mount: line }],
        MountEventKind::Move { from } => {
            let left = from.map(|from| removed(from.display().to_string()));
            left.into_iter().chain([Seen::Added { mount: line.clone(), pid }]).collect()
        }
    }
}

/// The roles of the processes in a sandbox.
#[derive(Debug, Default)]
pub struct Actors {
    /// The node's process; it is also the id of its group.
    pub node: Option<i32>,
    /// The process groups of the driver, dead ones too: a late child of theirs is still theirs.
    pub drivers: BTreeSet<i32>,
    /// Groups that belong to the harness beside its own.
    pub harness: BTreeSet<i32>,
    /// Whether the driver runs outside of the sandbox: a process that cannot be seen from in here is then its.
    pub driver_is_outside: bool,
    /// Whether the harness alone changes mounts now: a change of no named process is then its own.
    pub(super) harness_acts: bool,
    known: BTreeMap<i32, Actor>,
}

impl Actors {
    /// Whose doing it is where neither node nor harness did it: the driver's, if it is alone with them.
    pub(super) fn driver(&self) -> Actor {
        if self.driver_is_outside { Actor::Unknown } else { Actor::Driver }
    }

    /// Whose process this is. A process that is dead already and was never seen is unknown.
    fn actor_of(&mut self, pid: Option<i32>) -> Actor {
        let Some(pid) = pid else {
            if self.harness_acts {
                return Actor::Harness;
            }
            return if self.driver_is_outside { Actor::Driver } else { Actor::Unknown };
        };
        if Some(pid) == self.node {
            return Actor::Node;
        }
        if pid == std::process::id().cast_signed() {
            return Actor::Harness;
        }
        let found = group_of(pid).map(|group| self.of_group(group));
        // Numbers are used again, so what is alive is asked each time.
        match found {
            Some(actor) => {
                self.known.insert(pid, actor);
                actor
            }
            None => self.known.get(&pid).copied().unwrap_or(Actor::Unknown),
        }
    }

    fn of_group(&self, group: i32) -> Actor {
        if Some(group) == self.node {
            Actor::Node
        } else if self.drivers.contains(&group) {
            Actor::Driver
        } else if self.harness.contains(&group) || Some(group) == group_of(std::process::id().cast_signed()) {
            Actor::Harness
        } else {
            Actor::Unknown
        }
    }
}

/// The process group of a process; none when it is gone.
fn group_of(pid: i32) -> Option<i32> {
    // Zero would be ourselves.
    let pid = Some(Pid::from_raw(pid)).filter(|pid| pid.as_raw() > 0)?;
    getpgid(Some(pid)).ok().map(Pid::as_raw)
}

/// The kernel's side of the journal.
pub(super) struct Kernel {
    pub(super) actors: Actors,
    witness: Option<Box<dyn Witness>>,
    mounts: BTreeMap<u64, Mount>,
    /// The directories of other nodes.
    left_out: Vec<PathBuf>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("mounts", &self.mounts.len()).finish_non_exhaustive()
    }
}

impl Kernel {
    pub(super) fn new(witness: Option<Box<dyn Witness>>) -> Self {
        Self { actors: Actors::default(), witness, mounts: BTreeMap::new(), left_out: Vec::new() }
    }

    /// Whether mounts are watched at all.
    pub(super) fn is_witnessed(&self) -> bool {
        self.witness.is_some()
    }

    /// The mount events since the last call, each with its process as far as it is known or likely.
    pub(super) fn drain(&mut self, unexplained: &Unexplained) -> Vec<Event> {
        let seen = self.witness.as_mut().map(|witness| witness.drain()).unwrap_or_default();
        let seen: Vec<Seen> = seen.into_iter().filter(|seen| !self.is_left_out(seen)).collect();
        seen.into_iter().map(|seen| self.attribute(seen, unexplained)).collect()
    }

    pub(super) fn leave_out(&mut self, directory: &Path) {
        self.left_out.push(directory.to_owned());
    }

    fn is_left_out(&self, seen: &Seen) -> bool {
        let target = match seen {
            Seen::Added { mount, .. } | Seen::Changed { mount } => &mount.target,
            Seen::Removed { target, .. } => target,
            Seen::Lost(_) => return false,
        };
        self.left_out.iter().any(|directory| Path::new(target).starts_with(directory))
    }

    /// The mount points of node and driver that still exist, the latest first.
    pub(super) fn mounted(&self) -> Vec<PathBuf> {
        let theirs = |mount: &&Mount| matches!(mount.by, Actor::Node | Actor::Driver);
        self.mounts.values().rev().filter(theirs).map(|mount| PathBuf::from(&mount.target)).collect()
    }

    fn attribute(&mut self, seen: Seen, unexplained: &Unexplained) -> Event {
        match seen {
            Seen::Added { mut mount, pid } => {
                mount.by = self.actor_of(pid, &mount.target, unexplained);
                mount.unnamed = pid.is_none();
                self.mounts.insert(mount.id, mount.clone());
                Event::MountAdd(mount)
            }
            Seen::Removed { target, id, pid, seen_by } => {
                let by = self.actor_of(pid, &target, unexplained);
                self.mounts.remove(&id);
                Event::MountDel(MountDel { target, id, by, seen_by, unnamed: pid.is_none() })
            }
            Seen::Changed { mut mount } => {
                // The kernel names no process for a change; the one that made the mount is the likeliest.
                mount.by = self.mounts.get(&mount.id).map_or(Actor::Unknown, |known| known.by);
                self.mounts.insert(mount.id, mount.clone());
                Event::MountChg(mount)
            }
            Seen::Lost(why) => Event::MountsLost(MountsLost { why }),
        }
    }

    /// An unknown process is a child the driver has already reaped, if the driver has a reason to work. If it has none,
    /// a witness without process ids, as that of a user namespace, leaves only the node.
    fn actor_of(&mut self, pid: Option<i32>, target: &str, unexplained: &Unexplained) -> Actor {
        match self.actors.actor_of(pid) {
            Actor::Unknown if unexplained.excuses(target) => Actor::Driver,
            Actor::Unknown
                if pid.is_none() && unexplained.is_contract(target) && self.actors.node.is_some() =>
            {
                Actor::Node
            }
            known => known,
        }
    }

    /// Whether the last that was heard of a path is that something is mounted there.
    pub(super) fn is_mounted(&self, target: &str) -> bool {
        self.mounts.values().any(|mount| mount.target == target)
    }
}
