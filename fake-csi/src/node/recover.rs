//! What a driver does when it starts: it finishes undoing what an earlier one had begun, and keeps what stands.

use tonic::Status;

use super::NodeService;
use crate::books::Volume;
use crate::kernel::loop_device;

impl NodeService {
    /// Undoes every staging and target of this node that was under way. The caller never got an answer for it, and
    /// will repeat the call or undo it.
    ///
    /// What stands is left alone, also where its mounts are gone: whether that is right is for the caller to say.
    pub(crate) fn recover(&self) -> Result<(), Status> {
        let volumes: Vec<Volume> =
            self.driver.journal.read(|books| books.volumes.values().cloned().collect())?;
        for volume in volumes {
            for (path, target) in volume.targets_on(&self.name) {
                if !target.finished {
                    tracing::info!(volume = volume.id, path = %path.display(), "undoing an unfinished target");
                    self.undo_target(&volume, path, target)?;
                }
            }
            if let Some(staging) = volume.staged.get(&*self.name).filter(|staging| !staging.finished) {
                tracing::info!(volume = volume.id, "undoing an unfinished staging");
                self.undo_staging(&volume, staging)?;
            }
            if volume.created {
                self.leave_private(&volume.id)?;
            }
        }
        Ok(())
    }
}

impl crate::driver::Driver {
    /// Detaches devices that no staging accounts for, and removes files that no record accounts for.
    ///
    /// Only for a process that is alone with its state: another's work in progress looks just like this.
    pub(crate) fn sweep(&self) -> Result<(), Status> {
        let books = self.journal.read(Clone::clone)?;
        let in_use: Vec<_> = books
            .volumes
            .values()
            .filter(|volume| !volume.staged.is_empty())
            .map(|volume| self.contents_of(volume))
            .collect();
        for (_, image) in loop_device::below(&self.options.state)? {
            if !in_use.contains(&image) {
                tracing::info!(image = %image.display(), "detaching a device that nobody uses");
                loop_device::detach_all(&image)?;
            }
        }
        self.remove_unaccounted(&books)
    }
}
