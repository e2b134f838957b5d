//! What a node does when it starts: it finishes undoing what an earlier driver had begun, and keeps what stands.

use tonic::Status;

use super::NodeService;
use crate::books::Volume;

impl NodeService {
    /// Undoes every staging and target of this node that was under way. The caller never got an answer for it, and
    /// will repeat the call or undo it.
    ///
    /// What stands is left alone, also where its mounts are gone: whether that is right is for the caller to say.
    /// What cannot be undone, because somebody uses it, stays in the books as unfinished: that must not keep the
    /// driver from serving all else.
    pub(crate) fn recover(&self) -> Result<(), Status> {
        let volumes: Vec<Volume> =
            self.driver.journal.read(|books| books.volumes.values().cloned().collect())?;
        for volume in volumes {
            if let Err(status) = self.recover_volume(&volume) {
                tracing::error!(
                    volume = volume.id,
                    cause = status.message(),
                    "cannot undo what was unfinished"
                );
            }
        }
        Ok(())
    }

    fn recover_volume(&self, volume: &Volume) -> Result<(), Status> {
        for (path, target) in volume.targets_on(&self.name) {
            if !target.finished {
                tracing::info!(volume = volume.id, path = %path.display(), "undoing an unfinished target");
                self.undo_target(volume, path, target)?;
            }
        }
        if let Some(staging) = volume.staged.get(&*self.name).filter(|staging| !staging.finished) {
            tracing::info!(volume = volume.id, "undoing an unfinished staging");
            self.undo_staging(volume, staging)?;
        }
        if volume.created { self.leave_private(&volume.id) } else { Ok(()) }
    }
}
