//! mountinfo of the simulated kernel. Touches nothing real.

use std::path::{Path, PathBuf};

use super::kernel::State;
use super::mount::{Mount, MountId};
use super::tree::ROOT;
use super::walk::At;
use crate::mount_table::{MountEntry, MountTable};

impl State {
    /// Cached until the next change.
    pub(super) fn mount_table(&mut self) -> MountTable {
        if self.table.is_none() {
            let entries = self.mounts().map(|(id, mount)| self.entry(id, mount)).collect();
            self.table = Some(MountTable::new(entries));
        }
        self.table.clone().unwrap_or_default()
    }

    /// As [`MountTable::references`], without making the table.
    pub(super) fn references(&mut self, path: &Path) -> Vec<PathBuf> {
        // A dead file system cannot be walked; the table still lists it.
        let Ok(at) = self.resolve(path, true) else { return self.mount_table().references(path) };
        let own = self.mount(at.mount);
        let fs = self.fs(own.fs);
        let mut root = self.root_of(own);
        root.extend(fs.names_below(at.ino, own.root).unwrap_or_default());
        let others = self.mounts_of(fs.dev).filter(|(id, _)| *id != at.mount);
        let same = others.filter(|(_, mount)| self.root_of(mount) == root);
        same.map(|(id, mount)| self.path_of(At { mount: id, ino: mount.root })).collect()
    }

    /// The path within its file system that a mount shows.
    fn root_of(&self, mount: &Mount) -> PathBuf {
        let fs = self.fs(mount.fs);
        let mut root = PathBuf::from("/");
        root.extend(fs.names_below(mount.root, ROOT).unwrap_or_default());
        if !fs.inode(mount.root).linked {
            root.as_mut_os_string().push("//deleted");
        }
        root
    }

    /// A line of mountinfo.
    pub(super) fn entry(&self, id: MountId, mount: &Mount) -> MountEntry {
        let fs = self.fs(mount.fs);
        let mut super_options = vec![if fs.read_only { "ro" } else { "rw" }.to_owned()];
        super_options.extend(fs.options.iter().cloned());
        MountEntry {
            id,
            parent: mount.parent,
            dev: fs.dev,
            root: self.root_of(mount),
            mount_point: self.path_of(At { mount: id, ino: mount.root }),
            options: mount.flags.words(),
            shared: mount.group,
            master: self.master_of(id),
            propagate_from: None,
            unbindable: mount.unbindable,
            fs_type: fs.fs_type.clone(),
            source: fs.source.clone(),
            super_options,
        }
    }
}
