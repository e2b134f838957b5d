//! The part of a node that writes `volumesInUse` to its status.

use std::time::Duration;

use api::{ApiError, Key, Kind, Node, Patch, PatchBody};
use tokio::task::AbortHandle;
use volume_manager::{Notice, VolumeManager};

use crate::api::SimulatedApi;
use crate::objects::NODE;

/// The period of writes without changes.
const PERIOD: Duration = Duration::from_secs(10);

/// The time limit of a write. A write that was given up may still happen, after the next one, and undo it: the
/// limit is longer than the slowest API takes.
const LIMIT: Duration = Duration::from_secs(100);

/// Writes the status until the manager ends or the handle is aborted.
pub(crate) fn report(api: SimulatedApi, manager: VolumeManager) -> AbortHandle {
    let reporting = async move {
        let mut notices = manager.subscribe();
        loop {
            // A failed write is repeated in the next period, a hanging one is given up.
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
    // Before the manager knows the volumes on disk, the old list stays.
    let Some(used) = manager.volumes_in_use().await else { return Ok(()) };
    let node = api::get::<Node>(api, "", NODE).await?;
    if node.volumes_in_use != used {
        let body = PatchBody::VolumesInUse(used.clone());
        api::ApiSource::patch(api, Patch::of(Key::cluster(Kind::Node, NODE), body)).await?;
    }
    manager.mark_reported_in_use(used);
    Ok(())
}
