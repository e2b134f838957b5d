//! The simulated kernel's state, and the handle its users share. Touches nothing real.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::Devices;
use super::mount::{Mount, MountFlags, MountId};
use super::propagation::{Group, GroupId};
use super::tree::{Filesystem, Ino, Node, ROOT};
use super::walk::At;
use crate::errno::Errno;
use crate::file::FileKind;
use crate::mount_table::{DeviceNumber, MountTable};

/// Never reused.
pub(super) type FsId = u64;

/// A kernel in memory: mounts, trees, devices. Clones are handles on the same kernel, so that a manager's host
/// and a driver act on one machine.
///
/// Its methods are the driver's system calls: they announce nothing, fail with an [`Errno`] and take effect at
/// once. Delays and faults are ordered at the [`super::FakeHost`].
#[derive(Debug, Clone)]
pub struct FakeKernel {
    state: Arc<Mutex<State>>,
}

impl Default for FakeKernel {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeKernel {
    /// A machine with a private root on `/dev/vda`, and with `null` and `zero` in `/dev`.
    pub fn new() -> Self {
        Self { state: Arc::new(Mutex::new(State::boot())) }
    }

    /// The state for one step. A poisoned lock is ignored: no step leaves the state half changed.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct State {
    filesystems: BTreeMap<FsId, Used>,
    mounts: BTreeMap<MountId, Mount>,
    /// The mounts by the device of their file system.
    by_device: BTreeMap<DeviceNumber, BTreeSet<MountId>>,
    /// The mount at each mount point: an inode of a parent mount.
    children: BTreeMap<(MountId, Ino), MountId>,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) devices: Devices,
    root: MountId,
    next_mount: MountId,
    next_group: GroupId,
    next_fs: FsId,
    pub(super) table: Option<MountTable>,
    /// Number of changes of the table.
    pub(super) table_changes: u64,
    pub(super) selinux: bool,
    /// Targets of mounts that asked for a systemd scope.
    pub(super) scoped: Vec<PathBuf>,
}

/// A file system with the number of mounts and descriptors that use it.
#[derive(Debug)]
struct Used {
    fs: Filesystem,
    users: u32,
}

impl State {
    fn boot() -> Self {
        let mut state = Self {
            filesystems: BTreeMap::new(),
            mounts: BTreeMap::new(),
            by_device: BTreeMap::new(),
            children: BTreeMap::new(),
            groups: BTreeMap::new(),
            devices: Devices::default(),
            root: 0,
            next_mount: 1,
            next_group: 1,
            next_fs: 1,
            table: None,
            table_changes: 0,
            selinux: false,
            scoped: Vec::new(),
        };
        let vda = DeviceNumber::new(254, 0);
        let disk = state.add_fs(Filesystem::new("ext4", OsStr::new("/dev/vda"), vda, 0o755));
        state.root = state.new_mount(disk, ROOT, MountFlags::default());
        let dev = state.create_at(ROOT, "dev", Node::empty_dir(), 0o755);
        let number = state.anonymous_device();
        let nodes = state.add_fs(Filesystem::new("devtmpfs", OsStr::new("udev"), number, 0o755));
        let mount = state.new_mount(nodes, ROOT, MountFlags::default());
        let root = state.root;
        state.hang_on(mount, At { mount: root, ino: dev });
        for (name, minor) in [("null", 3), ("zero", 5)] {
            let node = Node::Device(FileKind::CharDevice, DeviceNumber::new(1, minor));
            state.fs_mut(nodes).create(ROOT, OsStr::new(name), node, 0o666).expect("an empty directory");
        }
        state
    }

    pub(super) fn reboot(&mut self) {
        for (device, _) in self.loops() {
            self.detach_loop(&device).ok();
        }
        self.devices.unclaim();
        let of_the_system =
            |mount: &Mount| self.fs(mount.fs).fs_type == "devtmpfs" && mount.parent == self.root;
        let going = self.mounts().filter(|(id, mount)| *id != self.root && !of_the_system(mount));
        let going = going.map(|(id, _)| id).collect();
        self.remove_mounts(&going);
    }

    fn create_at(&mut self, dir: Ino, name: &str, node: Node, mode: u32) -> Ino {
        let fs = self.mount(self.root).fs;
        self.fs_mut(fs).create(dir, OsStr::new(name), node, mode).expect("an empty directory")
    }

    /// A device number for a file system without a device.
    pub(super) fn anonymous_device(&self) -> DeviceNumber {
        DeviceNumber::new(0, u32::try_from(self.next_fs).unwrap_or(u32::MAX) + 20)
    }

    pub(super) fn add_fs(&mut self, fs: Filesystem) -> FsId {
        let id = self.next_fs;
        self.next_fs += 1;
        self.filesystems.insert(id, Used { fs, users: 0 });
        id
    }

    pub(super) fn fs(&self, id: FsId) -> &Filesystem {
        &self.filesystems.get(&id).expect("a file system lives while something shows it").fs
    }

    pub(super) fn fs_mut(&mut self, id: FsId) -> &mut Filesystem {
        &mut self.filesystems.get_mut(&id).expect("a file system lives while something shows it").fs
    }

    pub(super) fn users(&self, id: FsId) -> u32 {
        self.filesystems.get(&id).map_or(0, |used| used.users)
    }

    pub(super) fn filesystems(&self) -> impl Iterator<Item = (FsId, &Filesystem)> {
        self.filesystems.iter().map(|(id, used)| (*id, &used.fs))
    }

    pub(super) fn keep_fs(&mut self, id: FsId) {
        self.filesystems.get_mut(&id).expect("a user's file system exists").users += 1;
    }

    /// Removes a user. A file system in memory ends with its last user; one on a device or a server stays.
    pub(super) fn release_fs(&mut self, id: FsId) {
        let used = self.filesystems.get_mut(&id).expect("a user's file system exists until it is released");
        used.users -= 1;
        let elsewhere = used.fs.device.is_some() || used.fs.fs_type.starts_with("nfs");
        if used.users == 0 && !elsewhere {
            self.filesystems.remove(&id);
        }
    }

    /// Removes a file system whose device is gone or has been formatted anew.
    pub(super) fn discard_fs(&mut self, id: FsId) {
        if self.users(id) == 0 {
            self.filesystems.remove(&id);
        } else {
            self.fs_mut(id).device = None;
        }
    }

    pub(super) fn root_mount(&self) -> MountId {
        self.root
    }

    pub(super) fn mount(&self, id: MountId) -> &Mount {
        self.mounts.get(&id).expect("a place names a mount that exists")
    }

    pub(super) fn mount_mut(&mut self, id: MountId) -> &mut Mount {
        self.mounts.get_mut(&id).expect("a place names a mount that exists")
    }

    pub(super) fn mount_exists(&self, id: MountId) -> bool {
        self.mounts.contains_key(&id)
    }

    /// The mounts of a device's file system, in the order they were made.
    pub(super) fn mounts_of(&self, device: DeviceNumber) -> impl Iterator<Item = (MountId, &Mount)> {
        let mounts = self.by_device.get(&device).into_iter().flatten();
        mounts.map(|id| (*id, self.mount(*id)))
    }

    /// All mounts, in the order they were made.
    pub(super) fn mounts(&self) -> impl Iterator<Item = (MountId, &Mount)> {
        self.mounts.iter().map(|(id, mount)| (*id, mount))
    }

    pub(super) fn put_mount(&mut self, id: MountId, mount: Mount) {
        self.keep_fs(mount.fs);
        self.by_device.entry(self.fs(mount.fs).dev).or_default().insert(id);
        self.mounts.insert(id, mount);
    }

    /// Removes a detached mount.
    pub(super) fn drop_mount(&mut self, id: MountId) {
        self.leave_group(id);
        if let Some(mount) = self.mounts.remove(&id) {
            let device = self.fs(mount.fs).dev;
            if let Some(mounts) = self.by_device.get_mut(&device) {
                mounts.remove(&id);
                if mounts.is_empty() {
                    self.by_device.remove(&device);
                }
            }
            self.fs_mut(mount.fs).unpin(mount.root);
            self.release_fs(mount.fs);
        }
    }

    pub(super) fn next_mount_id(&mut self) -> MountId {
        self.next_mount += 1;
        self.next_mount - 1
    }

    pub(super) fn last_mount_id(&self) -> MountId {
        self.next_mount - 1
    }

    pub(super) fn next_group_id(&mut self) -> GroupId {
        self.next_group += 1;
        self.next_group - 1
    }

    /// The mounts on a mount, each with its mount point.
    pub(super) fn children(&self, mount: MountId) -> Vec<(Ino, MountId)> {
        let all = (mount, 0)..=(mount, Ino::MAX);
        self.children.range(all).map(|((_, point), child)| (*point, *child)).collect()
    }

    pub(super) fn has_children(&self, mount: MountId) -> bool {
        self.children.range((mount, 0)..=(mount, Ino::MAX)).next().is_some()
    }

    pub(super) fn child_at(&self, at: At) -> Option<MountId> {
        // Few inodes are mount points.
        if !self.is_point(self.mount(at.mount).fs, at.ino) {
            return None;
        }
        self.children.get(&(at.mount, at.ino)).copied()
    }

    /// Whether an inode is a mount point, through any parent mount.
    pub(super) fn is_point(&self, fs: FsId, ino: Ino) -> bool {
        self.fs(fs).inode(ino).covers > 0
    }

    /// Attaches a detached mount at a place, without propagation.
    pub(super) fn hang_on(&mut self, mount: MountId, at: At) {
        let fs = self.mount(at.mount).fs;
        self.children.insert((at.mount, at.ino), mount);
        self.fs_mut(fs).inode_mut(at.ino).covers += 1;
        let mount = self.mount_mut(mount);
        (mount.parent, mount.point) = (at.mount, at.ino);
        self.table_changed();
    }

    /// Detaches a mount from its place. Does nothing for a detached mount.
    pub(super) fn detach(&mut self, id: MountId) {
        let (parent, point) = (self.mount(id).parent, self.mount(id).point);
        if parent == id {
            return;
        }
        self.children.remove(&(parent, point));
        let fs = self.mount(parent).fs;
        self.fs_mut(fs).inode_mut(point).covers -= 1;
        self.mount_mut(id).parent = id;
        self.table_changed();
    }

    /// Drops the cached table and counts the change.
    pub(super) fn table_changed(&mut self) {
        self.table = None;
        self.table_changes += 1;
    }

    /// The mount that shows `path`.
    pub(super) fn mount_at(&self, path: &Path) -> Result<MountId, Errno> {
        Ok(self.resolve(path, true)?.mount)
    }
}
