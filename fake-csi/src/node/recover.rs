//! Recovery of a node at start: undoes unfinished stagings and targets of an earlier driver, and keeps finished ones.

use tonic::Status;

use super::NodeService;
use crate::books::Volume;
use crate::sabotage::Sabotage;

impl NodeService {
    /// Undoes every unfinished staging and target of this node. Its caller never got an answer, and will repeat the
    /// call or undo it.
    ///
    /// A finished staging or target stays, also if its mounts are gone: the caller decides what to do about it. One
    /// that cannot be undone, because it is in use, stays in the books as unfinished and does not keep the driver
    /// from serving.
    pub(crate) fn recover(&self) -> Result<(), Status> {
        let volumes: Vec<Volume> =
            self.driver.journal.read(|books| books.volumes.values().cloned().collect())?;
        for volume in volumes {
            if let Err(status) = self.recover_volume(&volume) {
                tracing::error!(
                    volume = volume.id,
                    cause = status.message(),
                    "cannot undo an unfinished call; keeping its record and going on"
                );
            }
        }
        Ok(())
    }

    fn recover_volume(&self, volume: &Volume) -> Result<(), Status> {
        for (path, target) in volume.targets_on(&self.name) {
            if !target.finished && !self.driver.breaks(Sabotage::PublishAdoptsMounts) {
                tracing::info!(volume = volume.id, path = %path.display(), "undoing an unfinished target");
                self.undo_target(volume, path, target)?;
            }
        }
        if let Some(staging) = volume.staged.get(&*self.name).filter(|staging| !staging.finished) {
            tracing::info!(volume = volume.id, "undoing an unfinished staging");
            self.undo_staging(volume, staging)?;
        }
        if volume.created { self.release_private_staging(&volume.id) } else { Ok(()) }
    }
}
