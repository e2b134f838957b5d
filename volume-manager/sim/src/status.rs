//! What a node does beside its manager: it says in its status which volumes it uses.

use std::time::Duration;

use api::{ApiError, Key, Kind, Node, Patch, PatchBody};
use tokio::task::AbortHandle;
use volume_manager::{Notice, VolumeManager};

use crate::api::SimulatedApi;
use crate::objects::NODE;

/// How often it writes its status where nothing has changed.
const PERIOD: Duration = Duration::from_secs(10);

/// When it gives up a write. One that was given up may still be done, after the next one and so undoing it: this
/// is more than the slowest API takes for one.
const LIMIT: Duration = Duration::from_secs(100);

/// Writes the status for as long as the manager lives, or until it is told to stop.
pub(crate) fn report(api: SimulatedApi, manager: VolumeManager) -> AbortHandle {
    let reporting = async move {
        let mut notices = manager.subscribe();
        loop {
            // One that does not work is tried again soon enough, one that hangs is given up.
            let _ = tokio::time::timeout(LIMIT, write(&api, &manager)).await;
            let changed = async {
                while let Some(notice) = notices.recv().await {
                    if matches!(notice, Notice::InUse(_)) {
                        return;
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    };
    tokio::spawn(reporting).abort_handle()
}

async fn write(api: &SimulatedApi, manager: &VolumeManager) -> Result<(), ApiError> {
    // Before the manager knows what the last one has left, the list of the last one stays.
    let Some(used) = manager.volumes_in_use().await else { return Ok(()) };
    let node = api::get::<Node>(api, "", NODE).await?;
    if node.volumes_in_use != used {
        let body = PatchBody::VolumesInUse(used.clone());
        api::ApiSource::patch(api, Patch::of(Key::cluster(Kind::Node, NODE), body)).await?;
    }
    manager.mark_reported_in_use(used);
    Ok(())
}
