//! Mounts of the simulated kernel: attaching, copying, moving, unmounting. Touches nothing real.
//!
//! The rules are those of Linux 6.18 (`fs/namespace.c`); a differential test compares them with a real kernel.

use std::collections::BTreeSet;

use super::kernel::{FsId, State};
use super::propagation::{GroupId, Kinship};
use super::tree::Ino;
use super::walk::At;
use crate::errno::{self, Errno};

/// Never reused, unlike the kernel's short ids.
pub(super) type MountId = u64;

#[derive(Debug, Clone)]
pub(super) struct Mount {
    /// Its own id if it is detached.
    pub(super) parent: MountId,
    /// The mount point on the parent.
    pub(super) point: Ino,
    pub(super) fs: FsId,
    /// The directory or file within the file system that it shows.
    pub(super) root: Ino,
    pub(super) flags: MountFlags,
    /// The peer group of a shared mount.
    pub(super) group: Option<GroupId>,
    /// The group that a slave receives from. For a shared mount the group has it.
    pub(super) master: Option<GroupId>,
    pub(super) unbindable: bool,
    /// Number of descriptors and working directories on it, which make it busy.
    pub(super) holds: u32,
}

/// The flags of one mount, as in its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one flag of the kernel's")]
pub(super) struct MountFlags {
    pub(super) read_only: bool,
    pub(super) nosuid: bool,
    pub(super) nodev: bool,
    pub(super) noexec: bool,
    pub(super) noatime: bool,
    pub(super) nodiratime: bool,
    pub(super) relatime: bool,
}

impl Default for MountFlags {
    fn default() -> Self {
        Self {
            read_only: false,
            nosuid: false,
            nodev: false,
            noexec: false,
            noatime: false,
            nodiratime: false,
            relatime: true,
        }
    }
}

impl MountFlags {
    /// `false` if the option is no flag of a mount.
    pub(super) fn apply(&mut self, option: &str) -> bool {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "nosuid" => self.nosuid = true,
            "suid" => self.nosuid = false,
            "nodev" => self.nodev = true,
            "dev" => self.nodev = false,
            "noexec" => self.noexec = true,
            "exec" => self.noexec = false,
            "noatime" => (self.noatime, self.relatime) = (true, false),
            "nodiratime" => self.nodiratime = true,
            "diratime" => self.nodiratime = false,
            // In the kernel `noatime` wins over `relatime` in any order.
            "relatime" => self.relatime = !self.noatime,
            "atime" => (self.noatime, self.relatime) = (false, true),
            "strictatime" => (self.noatime, self.relatime) = (false, false),
            _ => return false,
        }
        true
    }

    pub(super) fn words(self) -> Vec<String> {
        let mut words = vec![if self.read_only { "ro" } else { "rw" }];
        let flags = [
            (self.nosuid, "nosuid"),
            (self.nodev, "nodev"),
            (self.noexec, "noexec"),
            (self.noatime, "noatime"),
            (self.nodiratime, "nodiratime"),
            (self.relatime, "relatime"),
        ];
        words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, word)| *word));
        words.into_iter().map(str::to_owned).collect()
    }
}

impl State {
    /// Makes a mount that is attached nowhere.
    pub(super) fn new_mount(&mut self, fs: FsId, root: Ino, flags: MountFlags) -> MountId {
        let id = self.next_mount_id();
        let mount = Mount {
            parent: id,
            point: root,
            fs,
            root,
            flags,
            group: None,
            master: None,
            unbindable: false,
            holds: 0,
        };
        self.fs_mut(fs).pin(root);
        self.put_mount(id, mount);
        id
    }

    /// Binds `source` on `target`, with what is mounted below it or without.
    pub(super) fn bind(&mut self, source: At, target: At, recursive: bool) -> Result<(), Errno> {
        self.can_carry(target)?;
        if self.mount(source.mount).unbindable {
            return Err(Errno(errno::EINVAL));
        }
        if self.fs_of(source.mount).is_dir(source.ino) != self.fs_of(target.mount).is_dir(target.ino) {
            return Err(Errno(errno::ENOTDIR));
        }
        let copy = if recursive {
            self.copy_tree(source, Kinship::Same)
        } else {
            self.copy_mount(source.mount, source.ino, Kinship::Same)
        };
        self.attach(copy, target, false).inspect_err(|_| self.discard(copy))
    }

    /// Removes a detached tree of mounts.
    fn discard(&mut self, tree: MountId) {
        // Children first: detaching a mount uses its parent.
        for mount in self.tree(tree).into_iter().rev() {
            self.detach(mount);
            self.drop_mount(mount);
        }
    }

    /// ENOENT for a place whose name was removed: nothing can be mounted on it.
    fn can_carry(&self, place: At) -> Result<(), Errno> {
        let linked = self.fs_of(place.mount).inode(place.ino).linked;
        if linked { Ok(()) } else { Err(Errno(errno::ENOENT)) }
    }

    /// Attaches a new mount after the kernel's checks.
    pub(super) fn graft(&mut self, mount: MountId, target: At) -> Result<(), Errno> {
        let new = self.mount(mount);
        let same = self.mount(target.mount).fs == new.fs && self.is_mount_root(target);
        let error = if self.can_carry(target).is_err() {
            errno::ENOENT
        } else if same {
            errno::EBUSY
        } else if self.fs(new.fs).is_dir(new.root) != self.fs_of(target.mount).is_dir(target.ino) {
            errno::ENOTDIR
        } else {
            return self.attach(mount, target, false);
        };
        self.drop_mount(mount);
        Err(Errno(error))
    }

    /// Moves a mount with all mounts on it.
    pub(super) fn move_mount(&mut self, from: At, to: At) -> Result<(), Errno> {
        let invalid = Err(Errno(errno::EINVAL));
        if !self.is_mount_root(from)
            || self.fs_of(from.mount).is_dir(from.ino) != self.fs_of(to.mount).is_dir(to.ino)
        {
            return invalid;
        }
        self.can_carry(to)?;
        let parent = self.mount(from.mount).parent;
        // A mount on a shared mount is also on the peers, and cannot be moved from one of them alone.
        if parent == from.mount || self.mount(parent).group.is_some() {
            return invalid;
        }
        let tree = self.tree(from.mount);
        if self.mount(to.mount).group.is_some() && tree.iter().any(|mount| self.mount(*mount).unbindable) {
            return invalid;
        }
        if tree.contains(&to.mount) {
            return Err(Errno(errno::ELOOP));
        }
        self.attach(from.mount, to, true)
    }

    /// Attaches a tree of mounts at a place, and copies of it at all places that receive it by propagation.
    fn attach(&mut self, tree: MountId, target: At, moving: bool) -> Result<(), Errno> {
        // The kernel checks first that the top of the tree can carry a mount: a copy may come to lie under one.
        let top = self.topmost(tree);
        self.can_carry(At { mount: top, ino: self.mount(top).root })?;
        let copies = if self.mount(target.mount).group.is_some() {
            let audience = self.audience(target, if moving { self.last_mount_id() + 1 } else { tree });
            self.share_tree(tree);
            self.propagate(tree, target.ino, &audience)
        } else {
            Vec::new()
        };
        if moving {
            self.detach(tree);
        }
        self.hang_on(tree, target);
        for (copy, place) in copies {
            self.tuck(copy, place);
        }
        self.table_changed();
        Ok(())
    }

    /// Attaches a copy at a place. A mount that is already there comes to lie on top of the copy.
    fn tuck(&mut self, copy: MountId, place: At) {
        let covered = self.child_at(place);
        if let Some(covered) = covered {
            self.detach(covered);
        }
        self.hang_on(copy, place);
        if let Some(covered) = covered {
            let top = self.topmost(copy);
            let root = self.mount(top).root;
            self.hang_on(covered, At { mount: top, ino: root });
        }
    }

    /// The top of the stack of mounts on the root of this one.
    fn topmost(&self, mount: MountId) -> MountId {
        let root = At { mount, ino: self.mount(mount).root };
        self.cross(root).mount
    }

    /// A detached copy of a mount that shows `root`.
    pub(super) fn copy_mount(&mut self, mount: MountId, root: Ino, kinship: Kinship) -> MountId {
        let old = self.mount(mount).clone();
        let copy = self.new_mount(old.fs, root, old.flags);
        self.relate(copy, mount, kinship);
        copy
    }

    /// Copies a mount and the mounts on it below a place, without unbindable ones.
    pub(super) fn copy_tree(&mut self, source: At, kinship: Kinship) -> MountId {
        let copy = self.copy_mount(source.mount, source.ino, kinship);
        for (point, child) in self.children(source.mount) {
            if self.fs_of(source.mount).is_below(point, source.ino) && !self.mount(child).unbindable {
                let root = self.mount(child).root;
                let below = self.copy_tree(At { mount: child, ino: root }, kinship);
                self.hang_on(below, At { mount: copy, ino: point });
            }
        }
        copy
    }

    /// A mount and all mounts on it, parents before children.
    pub(super) fn tree(&self, mount: MountId) -> Vec<MountId> {
        let mut tree = vec![mount];
        let mut next = 0;
        while let Some(mount) = tree.get(next) {
            let children = self.children(*mount);
            tree.extend(children.into_iter().map(|(_, child)| child));
            next += 1;
        }
        tree
    }

    /// Unmounts the mount at a place: if it is not in use, or, if `lazy`, with all mounts on it.
    pub(super) fn unmount(&mut self, at: At, lazy: bool) -> Result<(), Errno> {
        let mount = at.mount;
        if !self.is_mount_root(at) || self.mount(mount).parent == mount {
            return Err(Errno(errno::EINVAL));
        }
        if !lazy && self.is_busy(mount) {
            return Err(Errno(errno::EBUSY));
        }
        let going = self.with_copies(&self.tree(mount));
        self.remove_mounts(&going);
        Ok(())
    }

    /// Whether a mount or one of its propagated copies is in use.
    fn is_busy(&self, mount: MountId) -> bool {
        let own = self.mount(mount);
        if self.has_children(mount) || own.holds > 0 {
            return true;
        }
        self.receivers(own.parent).into_iter().any(|receiver| {
            let copy = self.child_at(At { mount: receiver, ino: own.point });
            copy.is_some_and(|copy| {
                let children = self.children(copy);
                let covered = matches!(children[..], [(point, _)] if point == self.mount(copy).root);
                // A copy with mounts inside it is not unmounted with this one, and so may be in use.
                (children.is_empty() || covered) && self.mount(copy).holds > 0
            })
        })
    }

    /// The mounts to remove with these: also their propagated copies, except copies that contain a mount that
    /// stays.
    fn with_copies(&self, tree: &[MountId]) -> BTreeSet<MountId> {
        let mut going: BTreeSet<MountId> = tree.iter().copied().collect();
        for mount in tree {
            let own = self.mount(*mount);
            for receiver in self.receivers(own.parent) {
                going.extend(self.child_at(At { mount: receiver, ino: own.point }));
            }
        }
        let asked: BTreeSet<MountId> = tree.iter().copied().collect();
        loop {
            let stays = |mount: &MountId| !asked.contains(mount) && !self.only_holds(*mount, &going);
            let kept: Vec<MountId> = going.iter().copied().filter(stays).collect();
            if kept.is_empty() {
                return going;
            }
            for mount in kept {
                going.remove(&mount);
            }
        }
    }

    /// Whether all mounts strictly inside a mount, at any depth, are in the set.
    fn only_holds(&self, mount: MountId, going: &BTreeSet<MountId>) -> bool {
        let root = self.mount(mount).root;
        self.children(mount)
            .into_iter()
            .filter(|(point, _)| *point != root)
            .all(|(_, child)| self.tree(child).iter().all(|below| going.contains(below)))
    }

    /// Removes mounts. A mount on top of a removed one takes its place.
    pub(super) fn remove_mounts(&mut self, going: &BTreeSet<MountId>) {
        for mount in going {
            let left: Vec<_> =
                self.children(*mount).into_iter().filter(|(_, child)| !going.contains(child)).collect();
            for (_, child) in left {
                let mut bottom = *mount;
                while going.contains(&self.mount(bottom).parent) {
                    bottom = self.mount(bottom).parent;
                }
                let place = At { mount: self.mount(bottom).parent, ino: self.mount(bottom).point };
                self.detach(bottom);
                self.detach(child);
                self.hang_on(child, place);
            }
        }
        for mount in going {
            self.leave_group(*mount);
        }
        for mount in going {
            self.detach(*mount);
        }
        for mount in going {
            self.drop_mount(*mount);
        }
        self.table_changed();
    }

    /// Whether a place is the root of the mount that shows it.
    pub(super) fn is_mount_root(&self, at: At) -> bool {
        self.mount(at.mount).root == at.ino
    }
}
