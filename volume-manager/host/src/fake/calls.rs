//! System calls of the simulated kernel for a driver, a container or a test; the manager uses the host. Touches
//! nothing real.

use std::path::{Path, PathBuf};

use super::hold::Hold;
use super::kernel::FakeKernel;
use super::tree::Node;
use crate::door::{Propagation, Removal};
use crate::errno::{self, Errno};
use crate::file::{DirEntry, FileKind, Metadata};
use crate::format::{CheckOutcome, DiskContent};
use crate::mount_table::{DeviceNumber, MountTable};

impl FakeKernel {
    /// Makes a directory with its missing parents. Existing: success.
    pub fn make_dir_all(&self, path: &Path, mode: u32) -> Result<(), Errno> {
        self.lock().make_dir_all(path, mode).map(drop)
    }

    /// Existing: EEXIST.
    pub fn make_dir(&self, path: &Path, mode: u32) -> Result<(), Errno> {
        self.lock().make_dir(path, mode)
    }

    /// Not empty: ENOTEMPTY. A mount point: EBUSY.
    pub fn remove_dir(&self, path: &Path) -> Result<(), Errno> {
        self.lock().remove_dir(path)
    }

    /// Removes a file, link, node or socket.
    pub fn remove_file(&self, path: &Path) -> Result<(), Errno> {
        self.lock().remove_file(path).map(drop)
    }

    /// Removes as much of a tree as can be removed. Missing: success. A mount point in it: EBUSY.
    pub fn remove_tree(&self, path: &Path) -> Result<(), Errno> {
        let result = self.lock().remove_tree(path, Removal::Everything);
        result.map_err(|(_, blocked)| match blocked {
            super::file::Blocked::Os(error) => error,
            super::file::Blocked::MountPoint => Errno(errno::EBUSY),
        })
    }

    /// Truncates or creates a file, and writes.
    pub fn write_file(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), Errno> {
        self.lock().write_file(path, bytes, mode)
    }

    pub fn read_file(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        self.lock().read_file(path)
    }

    pub fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>, Errno> {
        self.lock().read_dir(path)
    }

    pub fn symlink(&self, target: &Path, link: &Path) -> Result<(), Errno> {
        self.lock().create(link, Node::Link(target.to_owned()), 0o777)
    }

    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.lock().rename(from, to)
    }

    /// Sets all mode bits.
    pub fn chmod(&self, path: &Path, mode: u32) -> Result<(), Errno> {
        self.lock().chmod(path, mode)
    }

    /// Sets owner, group, or both, of a final link itself.
    pub fn lchown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        self.lock().lchown(path, uid, gid)
    }

    /// Makes a device node, socket or pipe. Any other kind: EINVAL.
    pub fn make_node(
        &self,
        path: &Path,
        kind: FileKind,
        number: DeviceNumber,
        mode: u32,
    ) -> Result<(), Errno> {
        let node = match kind {
            FileKind::BlockDevice | FileKind::CharDevice => Node::Device(kind, number),
            FileKind::Socket => Node::Socket,
            FileKind::Fifo => Node::Fifo,
            _ => return Err(Errno(errno::EINVAL)),
        };
        self.lock().create(path, node, mode)
    }

    /// Follows a final link.
    pub fn metadata(&self, path: &Path) -> Result<Metadata, Errno> {
        let state = self.lock();
        let at = state.resolve(path, true)?;
        state.fs_of(at.mount).metadata(at.ino)
    }

    /// Does not follow a final link.
    pub fn symlink_metadata(&self, path: &Path) -> Result<Metadata, Errno> {
        let state = self.lock();
        let at = state.resolve(path, false)?;
        state.fs_of(at.mount).metadata(at.ino)
    }

    /// The path without links and dots.
    pub fn canonicalize(&self, path: &Path) -> Result<PathBuf, Errno> {
        let state = self.lock();
        Ok(state.path_of(state.resolve(path, true)?))
    }

    /// Makes a new mount. Types with a device need its node as their source, formatted with that type.
    pub fn mount(&self, source: &str, target: &Path, fs_type: &str, options: &[&str]) -> Result<(), Errno> {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        self.lock().mount_new(source, target, fs_type, &options)
    }

    pub fn bind(&self, source: &Path, target: &Path, recursive: bool) -> Result<(), Errno> {
        let mut state = self.lock();
        // As mount(2) does: the target first.
        let (target, source) = (state.resolve(target, true)?, state.resolve(source, true)?);
        state.bind(source, target, recursive)
    }

    /// Sets the flags of one mount, as `mount -o bind,remount,…` does.
    pub fn remount_bind(&self, target: &Path, options: &[&str]) -> Result<(), Errno> {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let mut state = self.lock();
        let at = state.resolve(target, true)?;
        state.remount_bind(at, &options)
    }

    pub fn move_mount(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        let mut state = self.lock();
        let (to, from) = (state.resolve(to, true)?, state.resolve(from, true)?);
        state.move_mount(from, to)
    }

    pub fn set_propagation(&self, path: &Path, kind: Propagation, recursive: bool) -> Result<(), Errno> {
        let mut state = self.lock();
        let at = state.resolve(path, true)?;
        state.set_propagation(at, kind, recursive)
    }

    /// Unmounts the topmost mount at a path. No mount point: EINVAL. If `lazy`, with all mounts on it, and open
    /// files stay usable.
    pub fn unmount(&self, path: &Path, lazy: bool) -> Result<(), Errno> {
        let mut state = self.lock();
        let at = state.resolve(path, false)?;
        state.unmount(at, lazy)
    }

    pub fn mount_table(&self) -> MountTable {
        self.lock().mount_table()
    }

    /// A number that changes with every change of the mount table.
    pub fn mount_changes(&self) -> u64 {
        self.lock().table_changes
    }

    /// Missing: `false`.
    pub fn is_mount_point(&self, path: &Path) -> bool {
        let state = self.lock();
        state.resolve(path, true).is_ok_and(|at| state.is_mount_root(at))
    }

    /// Opens a path: its mount is busy until the hold is dropped.
    pub fn hold(&self, path: &Path) -> Result<Hold, Errno> {
        let mut state = self.lock();
        let at = state.resolve(path, true)?;
        Ok(Hold::new(self, &mut state, at))
    }

    /// Makes every access to the file system mounted at `path` fail: ENOTCONN for a dead server, EIO for a
    /// dead disk, ESTALE for a stale handle. Mounting, binding and unmounting still work.
    pub fn break_filesystem(&self, path: &Path, error: i32) -> Result<(), Errno> {
        let mut state = self.lock();
        let mount = state.mount_at(path)?;
        state.fs_of_mut(mount).broken = Some(Errno(error));
        Ok(())
    }

    /// Undoes [`Self::break_filesystem`].
    pub fn mend_filesystem(&self, path: &Path) -> Result<(), Errno> {
        let mut state = self.lock();
        let mount = state.mount_at(path)?;
        state.fs_of_mut(mount).broken = None;
        Ok(())
    }

    /// Targets of mounts that asked for a systemd scope, in order.
    pub fn scoped(&self) -> Vec<PathBuf> {
        self.lock().scoped.clone()
    }

    /// Adds an empty disk of `size` bytes with the node `/dev/<name>`. A name in use: EEXIST.
    pub fn add_disk(&self, name: &str, size: u64) -> Result<DeviceNumber, Errno> {
        self.lock().add_disk(name, size)
    }

    /// Removes a disk and its node; file systems mounted from it answer EIO.
    pub fn remove_disk(&self, node: &Path) -> Result<(), Errno> {
        self.lock().remove_disk(node)
    }

    /// Changes the size of a disk. Its file system keeps its size until it is grown.
    pub fn resize_disk(&self, node: &Path, size: u64) -> Result<(), Errno> {
        self.lock().block(node)?.size = size;
        Ok(())
    }

    /// Makes a file system on a disk. Mounted: EBUSY.
    pub fn format(&self, node: &Path, fs_type: &str) -> Result<(), Errno> {
        self.lock().format(node, fs_type)
    }

    /// Sets the content that a probe of the disk finds.
    pub fn set_content(&self, node: &Path, content: DiskContent) -> Result<(), Errno> {
        self.lock().block(node)?.content = content;
        Ok(())
    }

    /// Sets the outcome of the next checks of a disk.
    pub fn set_check(&self, node: &Path, outcome: CheckOutcome) -> Result<(), Errno> {
        self.lock().block(node)?.check = outcome;
        Ok(())
    }

    /// Opens a disk exclusively, as a device mapper would, or closes it.
    pub fn claim_disk(&self, node: &Path, claimed: bool) -> Result<(), Errno> {
        let mut state = self.lock();
        let block = state.block(node)?;
        block.claims = if claimed { block.claims + 1 } else { block.claims.saturating_sub(1) };
        Ok(())
    }

    /// Reboots without a shutdown: no mount is left but the root and `/dev`, no loop device is attached, no disk
    /// is claimed. File systems in memory are gone; those on disks and servers stay.
    pub fn reboot(&self) {
        self.lock().reboot();
    }

    /// Turns SELinux on or off, and the option `seclabel` of the file system mounted at `path` with it.
    pub fn set_selinux(&self, path: &Path, on: bool) -> Result<(), Errno> {
        let mut state = self.lock();
        state.selinux = on;
        let mount = state.mount_at(path)?;
        let options = &mut state.fs_of_mut(mount).options;
        options.retain(|option| option != "seclabel");
        if on {
            options.push("seclabel".to_owned());
        }
        state.table_changed();
        Ok(())
    }

    /// Attaches a loop device to a file or a device.
    pub fn attach_loop(&self, path: &Path) -> Result<PathBuf, Errno> {
        self.lock().attach_loop(path)
    }

    /// Not attached: success.
    pub fn detach_loop(&self, device: &Path) -> Result<(), Errno> {
        self.lock().detach_loop(device).map(drop)
    }

    /// Attached loop devices, each with the path of its backing file at the time of attaching.
    pub fn loops(&self) -> Vec<(PathBuf, PathBuf)> {
        self.lock().loops()
    }
}
