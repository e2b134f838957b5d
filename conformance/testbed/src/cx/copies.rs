//! Snapshots, as a case takes them. What is left of them is deleted at its end.

use std::panic::Location;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::{Answer, Cx, Volume};
use crate::failure::Result;

/// The pause before a driver is asked again whether a snapshot is ready.
const PAUSE: Duration = Duration::from_millis(50);

/// A snapshot that can be restored.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The driver's name for it.
    pub id: String,
    /// The least size of a volume from it, in bytes.
    pub size: u64,
    /// The snapshot as it was answered.
    pub said: Value,
}

impl Snapshot {
    /// Its creation time; `None` if it was not answered.
    pub fn time(&self) -> Option<SystemTime> {
        let said = self.said["creationTime"].as_str()?;
        SystemTime::try_from(said.parse::<prost_types::Timestamp>().ok()?).ok()
    }
}

impl Cx {
    /// The CreateSnapshot request for a snapshot of this name.
    pub fn snapshot_request(&self, name: &str, volume: &Volume) -> Value {
        json!({ "name": self.shared.bed.snapshot_name(name), "sourceVolumeId": self.handle(volume) })
    }

    /// Calls the driver for a snapshot or a group, and remembers the result for the clean-up.
    #[track_caller]
    pub fn take(&self, method: &str, request: Value) -> impl Future<Output = Result<Answer>> + use<> {
        let (call, shared) = (self.call(method, request), self.shared());
        async move {
            let answer = call.await?;
            shared.bed.remember_snapshots(&answer.part(""));
            Ok(answer)
        }
    }

    /// Takes a snapshot of a volume, and waits until it can be restored.
    #[track_caller]
    pub fn snapshot(&self, name: &str, volume: &Volume) -> impl Future<Output = Result<Snapshot>> {
        let request = self.snapshot_request(name, volume);
        let caller = Location::caller();
        async move {
            let end = Instant::now() + self.shared.bed.patience_of_a_snapshot();
            loop {
                self.shared.begin(&format!("taking a snapshot of {}", volume.name), caller);
                let answer = self.take("CreateSnapshot", request.clone()).await?;
                answer.succeeds()?;
                let said = answer.part("/snapshot");
                let size = said["sizeBytes"].as_str().and_then(|size| size.parse().ok()).unwrap_or(0);
                let is_ready = said["readyToUse"] == json!(true);
                if is_ready || Instant::now() > end {
                    if !is_ready {
                        self.shared.bed.note_unready_snapshot();
                    }
                    let id = answer.text("/snapshot/snapshotId").to_owned();
                    return Ok(Snapshot { id, size: self.size(volume).max(size), said });
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    #[track_caller]
    pub fn delete_snapshot(&self, id: &str) -> impl Future<Output = Result<Answer>> + use<> {
        self.delete_taken("DeleteSnapshot", id, json!({ "snapshotId": id }))
    }

    /// Deletes a group with its snapshots.
    #[track_caller]
    pub fn delete_group(&self, id: &str, members: &[String]) -> impl Future<Output = Result<Answer>> + use<> {
        let request = json!({ "groupSnapshotId": id, "snapshotIds": members });
        self.delete_taken("DeleteVolumeGroupSnapshot", id, request)
    }

    #[track_caller]
    fn delete_taken(
        &self,
        method: &str,
        id: &str,
        request: Value,
    ) -> impl Future<Output = Result<Answer>> + use<> {
        let (call, shared, id) = (self.call(method, request), self.shared(), id.to_owned());
        async move {
            let answer = call.await?;
            if answer.is_ok() {
                shared.bed.forget_snapshot(&id);
            }
            Ok(answer)
        }
    }

    /// Deletes a volume before the end of the case. Deleting it there again does no harm.
    #[track_caller]
    pub fn delete_volume(&self, volume: &Volume) -> impl Future<Output = Result<Answer>> + use<> {
        self.call("DeleteVolume", json!({ "volumeId": self.handle(volume) }))
    }

    /// The default size of volumes, or the least one of their file system if that is larger.
    pub fn ordinary_size(&self) -> u64 {
        self.shared.bed.ordinary_size()
    }

    /// Whether volumes may grow while a pod has them.
    pub fn grows_online(&self) -> bool {
        self.shared.bed.grows_online()
    }

    /// Whether the node service grows volumes.
    pub fn grows_on_node(&self) -> bool {
        self.shared.bed.capabilities().node_can("EXPAND_VOLUME")
    }

    /// Whether the node service reports GET_VOLUME_STATS.
    pub fn reports_statistics(&self) -> bool {
        self.shared.bed.capabilities().node_can("GET_VOLUME_STATS")
    }

    /// Whether the node service reports VOLUME_CONDITION.
    pub fn reports_condition(&self) -> bool {
        self.shared.bed.capabilities().node_can("VOLUME_CONDITION")
    }

    /// Whether the controller can do something, by the name of its capability.
    pub fn controller_can(&self, capability: &str) -> bool {
        self.shared.bed.capabilities().controller_can(capability)
    }
}
