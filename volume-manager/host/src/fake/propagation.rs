//! Mount propagation in the simulated kernel: peer groups and their masters. Touches nothing real.
//!
//! In the kernel a mount's master is one mount of a peer group. User space cannot see which one, so here the
//! master is the group.

use std::collections::{BTreeMap, BTreeSet};

use super::kernel::State;
use super::mount::MountId;
use super::tree::Ino;
use super::walk::At;
use crate::door::Propagation;
use crate::errno::{self, Errno};

pub(super) type GroupId = u64;

/// Peers: a mount made on one of them appears on all.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) members: BTreeSet<MountId>,
    /// The group this one receives from.
    pub(super) master: Option<GroupId>,
    /// Mounts without a group that receive from this one.
    slaves: BTreeSet<MountId>,
    /// Groups that receive from this one.
    subgroups: BTreeSet<GroupId>,
}

/// The mounts of one group that receive a new mount.
#[derive(Debug)]
pub(super) struct Audience {
    group: GroupId,
    /// The group that passes the mount on to this one; `None` for the first.
    master: Option<GroupId>,
    members: Vec<MountId>,
    slaves: Vec<MountId>,
}

/// The relation of a copy to its original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinship {
    /// Peer of a shared original; else slave of the same master, or private.
    Same,
    Peer,
    /// Slave without a group.
    Slave,
    /// Slave in a new group of its own.
    SharedSlave,
}

impl State {
    /// Changes the propagation of the mount at a place, and of all mounts on it if `recursive`.
    pub(super) fn set_propagation(
        &mut self,
        at: At,
        kind: Propagation,
        recursive: bool,
    ) -> Result<(), Errno> {
        if !self.is_mount_root(at) {
            return Err(Errno(errno::EINVAL));
        }
        let mounts = if recursive { self.tree(at.mount) } else { vec![at.mount] };
        for mount in mounts {
            self.change(mount, kind);
        }
        self.table_changed();
        Ok(())
    }

    fn change(&mut self, mount: MountId, kind: Propagation) {
        match kind {
            Propagation::Shared => self.share(mount),
            Propagation::Slave => {
                if let Some(group) = self.mount(mount).group {
                    let source = self.leave_group(mount).then_some(group);
                    let source = source.or(self.mount(mount).master);
                    self.set_master(mount, source);
                }
            }
            Propagation::Private | Propagation::Unbindable => {
                self.leave_group(mount);
                self.set_master(mount, None);
                self.mount_mut(mount).unbindable = kind == Propagation::Unbindable;
            }
        }
    }

    fn share(&mut self, mount: MountId) {
        self.mount_mut(mount).unbindable = false;
        if self.mount(mount).group.is_some() {
            return;
        }
        let master = self.mount(mount).master;
        self.set_master(mount, None);
        let id = self.next_group_id();
        self.groups.insert(id, Group { members: BTreeSet::from([mount]), master, ..Group::default() });
        if let Some(master) = master {
            self.group_mut(master).subgroups.insert(id);
        }
        self.mount_mut(mount).group = Some(id);
    }

    /// Makes every mount of a tree shared.
    pub(super) fn share_tree(&mut self, tree: MountId) {
        for mount in self.tree(tree) {
            self.share(mount);
        }
    }

    /// Removes a shared mount from its group, or a slave from its master. When the last peer leaves, its slaves
    /// and the mount itself become slaves of the group's master. `true` if the group still exists.
    pub(super) fn leave_group(&mut self, mount: MountId) -> bool {
        let Some(id) = self.mount_mut(mount).group.take() else {
            self.set_master(mount, None);
            return false;
        };
        let group = self.group_mut(id);
        group.members.remove(&mount);
        if !group.members.is_empty() {
            return true;
        }
        let gone = self.groups.remove(&id).expect("the group was changed above");
        if let Some(master) = gone.master {
            self.group_mut(master).subgroups.remove(&id);
        }
        for slave in gone.slaves {
            self.mount_mut(slave).master = None;
            self.set_master(slave, gone.master);
        }
        for subgroup in gone.subgroups {
            self.group_mut(subgroup).master = gone.master;
            if let Some(master) = gone.master {
                self.group_mut(master).subgroups.insert(subgroup);
            }
        }
        self.set_master(mount, gone.master);
        false
    }

    fn set_master(&mut self, mount: MountId, master: Option<GroupId>) {
        if let Some(old) = self.mount(mount).master
            && let Some(old) = self.groups.get_mut(&old)
        {
            old.slaves.remove(&mount);
        }
        self.mount_mut(mount).master = master;
        if let Some(new) = master {
            self.group_mut(new).slaves.insert(mount);
        }
    }

    pub(super) fn relate(&mut self, copy: MountId, original: MountId, kinship: Kinship) {
        let (group, master) = (self.mount(original).group, self.mount(original).master);
        match (kinship, group) {
            (Kinship::Same, None) => self.set_master(copy, master),
            (Kinship::Same | Kinship::Peer, Some(group)) => {
                self.group_mut(group).members.insert(copy);
                self.mount_mut(copy).group = Some(group);
            }
            (Kinship::Slave | Kinship::SharedSlave, _) => {
                self.set_master(copy, group.or(master));
                if kinship == Kinship::SharedSlave {
                    self.share(copy);
                }
            }
            (Kinship::Peer, None) => unreachable!("a tree is shared before it is copied to peers"),
        }
    }

    /// The other mounts that receive what is mounted on `mount`.
    pub(super) fn receivers(&self, mount: MountId) -> Vec<MountId> {
        let mut receivers = Vec::new();
        let mut groups: Vec<GroupId> = self.mount(mount).group.into_iter().collect();
        while let Some(id) = groups.pop() {
            let group = self.group(id);
            receivers.extend(group.members.iter().chain(&group.slaves).filter(|other| **other != mount));
            groups.extend(&group.subgroups);
        }
        receivers
    }

    /// The receivers of a mount at `target`. Called before the tree is shared: a mount that is moved may be among
    /// the receivers.
    ///
    /// Mounts that do not show the place receive nothing. Mounts with an id from `new` on belong to the tree
    /// itself, which may have joined the groups that are walked here.
    pub(super) fn audience(&self, target: At, new: MountId) -> Vec<Audience> {
        let mut audience = Vec::new();
        let mut todo: Vec<(GroupId, Option<GroupId>)> =
            self.mount(target.mount).group.map(|group| (group, None)).into_iter().collect();
        let listens =
            |mount: &&MountId| **mount < new && **mount != target.mount && self.shows(**mount, target);
        while let Some((id, master)) = todo.pop() {
            let group = self.group(id);
            audience.push(Audience {
                group: id,
                master,
                members: group.members.iter().filter(listens).copied().collect(),
                slaves: group.slaves.iter().filter(listens).copied().collect(),
            });
            todo.extend(group.subgroups.iter().map(|subgroup| (*subgroup, Some(id))));
        }
        audience
    }

    /// Copies a shared tree for each receiver, and returns the copies with their places.
    pub(super) fn propagate(
        &mut self,
        tree: MountId,
        point: Ino,
        audience: &[Audience],
    ) -> Vec<(MountId, At)> {
        let mut copies = Vec::new();
        // The copy that each group has received. A group without one passes on its master's.
        let mut had: BTreeMap<GroupId, MountId> = BTreeMap::new();
        for listeners in audience {
            let from_master = listeners.master.and_then(|master| had.get(&master)).copied();
            let mut original = from_master.unwrap_or(tree);
            let mut kinship = if from_master.is_some() { Kinship::SharedSlave } else { Kinship::Peer };
            for member in &listeners.members {
                original = self.copy_whole(original, kinship);
                kinship = Kinship::Peer;
                copies.push((original, At { mount: *member, ino: point }));
            }
            for slave in &listeners.slaves {
                let copy = self.copy_whole(original, Kinship::Slave);
                copies.push((copy, At { mount: *slave, ino: point }));
            }
            had.insert(listeners.group, original);
        }
        copies
    }

    fn copy_whole(&mut self, tree: MountId, kinship: Kinship) -> MountId {
        let root = self.mount(tree).root;
        self.copy_tree(At { mount: tree, ino: root }, kinship)
    }

    fn shows(&self, mount: MountId, target: At) -> bool {
        self.fs_of(mount).is_below(target.ino, self.mount(mount).root)
    }

    pub(super) fn group(&self, id: GroupId) -> &Group {
        self.groups.get(&id).expect("a group lives while it has members")
    }

    fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups.get_mut(&id).expect("a group lives while it has members")
    }

    /// The group a mount receives from.
    pub(super) fn master_of(&self, mount: MountId) -> Option<GroupId> {
        match self.mount(mount).group {
            Some(group) => self.group(group).master,
            None => self.mount(mount).master,
        }
    }
}
