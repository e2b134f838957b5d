//! What mountinfo says of the simulated kernel. Touches nothing real.

use std::path::PathBuf;

use super::kernel::State;
use super::mount::{Mount, MountId};
use super::tree::ROOT;
use super::walk::At;
use crate::mount_table::{MountEntry, MountTable};

impl State {
    /// The whole table. Made once after a change.
    pub(super) fn mount_table(&mut self) -> MountTable {
        if self.table.is_none() {
            let entries = self.mounts().map(|(id, mount)| self.entry(id, mount)).collect();
            self.table = Some(MountTable::new(entries));
        }
        self.table.clone().unwrap_or_default()
    }

    /// One line of it.
    pub(super) fn entry(&self, id: MountId, mount: &Mount) -> MountEntry {
        let fs = self.fs(mount.fs);
        let mut super_options = vec![if fs.read_only { "ro" } else { "rw" }.to_owned()];
        super_options.extend(fs.options.iter().cloned());
        let mut root = PathBuf::from("/");
        root.extend(fs.names_below(mount.root, ROOT).unwrap_or_default());
        if !fs.inode(mount.root).linked {
            root.as_mut_os_string().push("//deleted");
        }
        MountEntry {
            id,
            parent: mount.parent,
            dev: fs.dev,
            root,
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
