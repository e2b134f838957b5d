//! The node's status with `volumesInUse`. The attach/detach controller detaches no volume that is listed.

use std::sync::Arc;

use api::clock::Clock;
use api::{ApiError, Key, Kind, Node, Patch, PatchBody};
use tokio::sync::mpsc;
use volume_manager::Notice;

use super::child::Surroundings;

/// Writes the status when it has changed: periodically, and, if configured, at once after a notice of the
/// manager.
pub(super) async fn report(around: Surroundings) {
    let mut notices = around.manager.subscribe();
    loop {
        if let Err(error) = write(&around).await {
            tracing::warn!(%error, "cannot write the node's status");
        }
        tokio::select! {
            biased;
            change = changed(&mut notices), if around.settings.prompt_status => if change.is_none() { return },
            () = around.clock.sleep(around.settings.status_period) => {}
        }
    }
}

/// Waits for a notice of changed volumes in use; `None` when the manager has ended.
async fn changed(notices: &mut mpsc::UnboundedReceiver<Notice>) -> Option<()> {
    loop {
        if let Notice::InUse(_) = notices.recv().await? {
            return Some(());
        }
    }
}

async fn write(around: &Surroundings) -> Result<(), ApiError> {
    // Before recovery is complete the old list stays: it may have more volumes.
    let Some(used) = around.manager.volumes_in_use().await else { return Ok(()) };
    let name = around.settings.name.as_str();
    let node: Arc<Node> = api::get(around.api.as_ref(), "", name).await?;
    if node.volumes_in_use != used {
        let body = PatchBody::VolumesInUse(used.clone());
        around.api.patch(Patch::of(Key::cluster(Kind::Node, name), body)).await?;
    }
    // Only after the write: the manager relies on the list being visible to the controller.
    around.manager.mark_reported_in_use(used);
    Ok(())
}
