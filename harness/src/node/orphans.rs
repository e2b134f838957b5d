//! Orphans: directories of pods that were deleted before this process started.

use std::path::Path;
use std::time::Duration;

use api::names::PodUid;
use host::{FileKind, Host};
use tokio::task::JoinSet;
use volume_manager::WaitError;

use super::child::{LIMIT, Surroundings};
use super::pod::Pods;
use super::sweep;

/// The interval at which an orphan's volumes are checked.
const LOOK: Duration = Duration::from_millis(10);

/// Removes the orphans, each when its volumes are unmounted, and then reports that.
pub(super) async fn remove(around: Surroundings, pods: Pods) {
    if around.settings.sweep {
        // After reconstruction, so that their volumes are being unmounted.
        while around.manager.volumes_in_use().await.is_none() {
            tokio::time::sleep(LOOK).await;
        }
        let mut removing = JoinSet::new();
        for uid in directories(around.host.as_ref(), &around.layout.root().join("pods")).await {
            if !pods.knows_uid(&uid) {
                removing.spawn(remove_one(around.clone(), uid));
            }
        }
        while removing.join_next().await.is_some() {}
    }
    pods.orphans_are_gone();
}

async fn remove_one(around: Surroundings, uid: PodUid) {
    let root = around.layout.root();
    // A volume that may be published stays with the manager even if nothing is mounted: after a power cut the driver still
    // has to unpublish it.
    while let Err(error) = around.manager.wait_unmounted(&uid, LIMIT).await {
        if error == WaitError::Gone {
            return;
        }
    }
    while sweep::volume_left(around.host.as_ref(), root, &uid).await.is_some() {
        tokio::time::sleep(LOOK).await;
    }
    sweep::pod(around.host.as_ref(), root, &uid).await;
}

async fn directories(host: &dyn Host, path: &Path) -> Vec<PodUid> {
    let entries = host.read_dir(path).await.unwrap_or_default();
    let directories = entries.into_iter().filter(|entry| entry.kind == FileKind::Directory);
    directories.filter_map(|entry| entry.name.to_str().map(PodUid::new)).collect()
}
