//! What the kernel says about mounts, and who did it.
//!
//! Asks for the groups of processes, to find out to whom they belong; the events come from a [`Witness`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use nix::unistd::{Pid, getpgid};

use contracts::event::{Actor, EffectKind, Event, Irregular, Mount, MountDel};

use super::Announcement;
use crate::observe::{self, MountEvent, MountEventKind, MountWatch};
use crate::symbols::Symbols;

/// Where mount events come from.
pub trait Witness: Send {
    /// All events since the last time, in order. Events of a system call that has returned are in it.
    fn drain(&mut self) -> Vec<Seen>;
}

/// One mount event. The `by` of its mount is not filled in yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// A mount appeared.
    Added {
        mount: Mount,
        /// The process that did it, if that is known.
        pid: Option<i32>,
    },
    /// A mount is gone.
    Removed {
        /// Where it was.
        target: String,
        /// Its unique id.
        id: u64,
        /// The process that did it, if that is known.
        pid: Option<i32>,
        /// Which witness saw it.
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

/// A mount that came and went between two looks has no description, and nothing to be told of.
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

/// Who is who among the processes of a sandbox.
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
    known: BTreeMap<i32, Actor>,
}

impl Actors {
    /// Whose doing it is where neither node nor harness did it: the driver's, if it is alone with them.
    pub(super) fn driver(&self) -> Actor {
        if self.driver_is_outside { Actor::Unknown } else { Actor::Driver }
    }

    /// Whose process this is. A process that is dead already and was never seen is nobody's known.
    fn actor_of(&mut self, pid: Option<i32>) -> Actor {
        let Some(pid) = pid else {
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
    /// What the node did and has not announced yet.
    unclaimed: Vec<Unclaimed>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("mounts", &self.mounts.len()).finish_non_exhaustive()
    }
}

/// What is known about a mount event beside its process.
#[derive(Debug, Clone, Copy)]
struct Circumstances {
    /// Whether the witness named the process.
    certain: bool,
    /// Whether a call is under way that is reason enough for the driver.
    excused: bool,
    /// Whether it lies where the node puts volumes.
    contract: bool,
}

#[derive(Debug)]
struct Unclaimed {
    added: bool,
    target: PathBuf,
    by: Actor,
    /// Whether somebody else may as well have done it, with a reason.
    guess: bool,
}

impl Kernel {
    pub(super) fn new(witness: Option<Box<dyn Witness>>) -> Self {
        Self {
            actors: Actors::default(),
            witness,
            mounts: BTreeMap::new(),
            left_out: Vec::new(),
            unclaimed: Vec::new(),
        }
    }

    /// What happened since the last time; with each event, the stray it is, if it is one. A call that is
    /// under way for one of `volumes` is reason enough for a driver to touch that volume's paths.
    pub(super) fn drain(
        &mut self,
        symbols: &Symbols,
        volumes: &BTreeSet<String>,
    ) -> Vec<(Event, Option<Irregular>)> {
        let seen = self.witness.as_mut().map(|witness| witness.drain()).unwrap_or_default();
        let seen: Vec<Seen> = seen.into_iter().filter(|seen| !self.is_left_out(seen)).collect();
        seen.into_iter().map(|seen| self.judge(seen, symbols, volumes)).collect()
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

    /// Where node and driver have mounted something that is still there, the latest first.
    pub(super) fn mounted(&self) -> Vec<PathBuf> {
        let theirs = |mount: &&Mount| matches!(mount.by, Actor::Node | Actor::Driver);
        self.mounts.values().rev().filter(theirs).map(|mount| PathBuf::from(&mount.target)).collect()
    }

    fn judge(
        &mut self,
        seen: Seen,
        symbols: &Symbols,
        volumes: &BTreeSet<String>,
    ) -> (Event, Option<Irregular>) {
        let excuses = |target: &str| {
            let place = symbols.place(Path::new(target));
            place.map_or(!volumes.is_empty(), |place| volumes.contains(place.volume()))
        };
        let at = |target: &str| {
            // No call is a reason to cover, or to take away, all that the node has.
            let is_above = symbols.is_above_contract(Path::new(target));
            Circumstances {
                certain: true,
                excused: excuses(target) && !is_above,
                // Elsewhere a driver may do as it likes, and so may whoever else is on this machine: what goes with a
                // directory of theirs goes from our namespace, too.
                contract: is_above || symbols.is_contract(Path::new(target)),
            }
        };
        match seen {
            Seen::Added { mut mount, pid } => {
                let at = Circumstances { certain: pid.is_some(), ..at(&mount.target) };
                mount.by = self.actor_of(pid, at);
                self.mounts.insert(mount.id, mount.clone());
                let stray = self.stray(true, &mount.target, mount.by, at);
                (Event::MountAdd(mount), stray)
            }
            Seen::Removed { target, id, pid, seen_by } => {
                let at = Circumstances { certain: pid.is_some(), ..at(&target) };
                let by = self.actor_of(pid, at);
                self.mounts.remove(&id);
                let stray = self.stray(false, &target, by, at);
                (Event::MountDel(MountDel { target, id, by, seen_by }), stray)
            }
            Seen::Changed { mut mount } => {
                // Nobody is named for a change, and whoever made the mount is the likeliest.
                mount.by = self.mounts.get(&mount.id).map_or(Actor::Unknown, |known| known.by);
                self.mounts.insert(mount.id, mount.clone());
                (Event::MountChg(mount), None)
            }
            Seen::Lost(what) => (Event::Stray(Irregular { what, by: Actor::Unknown }), None),
        }
    }

    /// A process nobody knows is a child the driver has already reaped, if the driver has a reason to work. If it
    /// has none, a witness that names nobody, as that of a user namespace, leaves only the node.
    fn actor_of(&mut self, pid: Option<i32>, at: Circumstances) -> Actor {
        match self.actors.actor_of(pid) {
            Actor::Unknown if at.excused => Actor::Driver,
            Actor::Unknown if !at.certain && at.contract && self.actors.node.is_some() => Actor::Node,
            known => known,
        }
    }

    fn stray(&mut self, added: bool, target: &str, by: Actor, at: Circumstances) -> Option<Irregular> {
        let Circumstances { certain, excused, contract } = at;
        let guess = !certain && excused;
        match by {
            Actor::Harness => None,
            // Announced in a moment, or found unclaimed when the node is idle. A witness that names nobody
            // leaves it open whether it was the driver: then an announcement may follow, and need not.
            _ if by == Actor::Node || guess => {
                self.unclaimed.push(Unclaimed { added, target: target.into(), by, guess });
                None
            }
            Actor::Driver if excused || !contract => None,
            Actor::Unknown if !contract => None,
            // It may have been a child of the node that is gone: then an announcement follows.
            Actor::Unknown if self.actors.node.is_some() => {
                self.unclaimed.push(Unclaimed { added, target: target.into(), by, guess });
                None
            }
            _ => Some(irregular(added, target, by)),
        }
    }

    /// Whether the kernel reported what the node announces. Only mounts are reported at all.
    pub(super) fn claim(&mut self, said: &Announcement) -> bool {
        let added = match said.effect {
            EffectKind::Mount | EffectKind::Bind => true,
            EffectKind::Umount => false,
            _ => return true,
        };
        if self.witness.is_none() {
            return true;
        }
        let mine = |event: &Unclaimed| event.added == added && event.target == said.path;
        match self.unclaimed.iter().position(mine) {
            Some(at) => {
                self.unclaimed.remove(at);
                true
            }
            None => false,
        }
    }

    /// Whether the last that was heard of a path is that something is mounted there.
    pub(super) fn is_mounted(&self, target: &str) -> bool {
        self.mounts.values().any(|mount| mount.target == target)
    }

    pub(super) fn take_unclaimed(&mut self, symbols: &Symbols) -> Vec<Irregular> {
        let driver = self.actors.driver();
        // Whoever is gone was a child of the node's or of the driver's, and some mounts are the driver's alone.
        let by = |event: &Unclaimed| match event.by {
            Actor::Unknown if symbols.is_mounted_by_drivers(&event.target) => driver,
            by => by,
        };
        let tell = |event: Unclaimed| irregular(event.added, &event.target.to_string_lossy(), by(&event));
        self.unclaimed.drain(..).filter(|event| !event.guess).map(tell).collect()
    }

    pub(super) fn forget_unclaimed(&mut self) {
        self.unclaimed.clear();
    }
}

fn irregular(added: bool, target: &str, by: Actor) -> Irregular {
    let verb = if added { "mount" } else { "umount" };
    Irregular { what: format!("{verb} {target}"), by }
}
