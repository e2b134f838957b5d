//! Clean-up at start: the driver thaws file systems that it had frozen, and if no other process uses the state
//! directory it removes unfinished records, files without a record and unused loop devices.
//!
//! Only without another process, because that one's work in progress looks just like the remains of a dead driver.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tonic::Status;

use crate::books::Books;
use crate::driver::Driver;
use crate::journal::Entry;
use crate::kernel::{KernelError, copy, filesystem, loop_device, mount};

impl Driver {
    /// Thaws file systems that a driver of these nodes had frozen when it died, or of any node if no other process
    /// uses the state. Call it before anything is unmounted: an unmount would wait for the thaw.
    pub(crate) fn thaw(&self) -> Result<(), Status> {
        let held = self.journal.read(|books| books.held.clone())?;
        let is_ours = |node: &String| self.journal.alone || self.options.nodes.contains(node);
        let mut released = Vec::new();
        for (path, _) in held.into_iter().filter(|(_, node)| is_ours(node)) {
            filesystem::thaw(&path);
            released.push(Entry::Released(path));
        }
        self.journal.transact(|_| Ok::<_, Status>((released, ())))
    }

    /// Removes records of unfinished or half deleted volumes and snapshots, files without a record, and loop devices
    /// without a staging.
    pub(crate) fn sweep(&self) -> Result<(), Status> {
        self.sweep_records()?;
        let books = self.journal.read(Clone::clone)?;
        let staged = books.volumes.values().filter(|volume| !volume.staged.is_empty());
        let in_use: BTreeSet<PathBuf> = staged.map(|volume| self.contents_of(volume)).collect();
        for (_, image) in loop_device::below(&self.options.state)? {
            // The path alone may be that of another run's image, in another mount namespace. `detach_all` compares
            // device and inode, and leaves that one attached.
            if !in_use.contains(&image) && loop_device::detach_all(&image)? > 0 {
                tracing::info!(image = %image.display(), "detached the loop device of an image that is not staged");
            }
        }
        self.sweep_files(&books)
    }

    fn sweep_records(&self) -> Result<(), Status> {
        let books = self.journal.read(Clone::clone)?;
        let mut gone = Vec::new();
        for group in books.groups.values().filter(|group| !group.created) {
            gone.push(Entry::GroupGone(group.id.clone()));
            gone.extend(group.snapshots.iter().cloned().map(Entry::SnapshotGone));
        }
        let snapshots = books.snapshots.values().filter(|snapshot| !snapshot.created);
        gone.extend(snapshots.map(|snapshot| Entry::SnapshotGone(snapshot.id.clone())));
        let volumes = books.volumes.values().filter(|volume| !volume.created);
        gone.extend(volumes.map(|volume| Entry::VolumeGone(volume.id.clone())));
        self.journal.transact(|_| Ok::<_, Status>((gone, ())))
    }

    fn sweep_files(&self, books: &Books) -> Result<(), Status> {
        let volumes = books.volumes.values().map(|volume| self.contents_of(volume));
        let snapshots = books.snapshots.values().map(|snapshot| self.contents_of_snapshot(snapshot));
        let known: BTreeSet<PathBuf> = volumes.chain(snapshots).collect();
        for part in ["volumes", "snapshots"] {
            for path in children(&self.options.state.join(part))? {
                if !known.contains(&path) {
                    mount::unmount_all(&path)?;
                    copy::remove(&path)?;
                }
            }
        }
        Ok(())
    }
}

fn children(directory: &Path) -> Result<Vec<PathBuf>, KernelError> {
    let entries = fs::read_dir(directory).map_err(|source| KernelError::path("list", directory, source))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}
