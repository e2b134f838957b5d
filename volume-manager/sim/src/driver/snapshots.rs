//! The simulated driver's controller service, for the snapshotter.

use std::time::Duration;

use async_trait::async_trait;
use cluster::SnapshotService;
use csi_proto::v1;
use tonic::Status;

use super::{SimulatedDriver, Snapshot};

#[async_trait]
impl SnapshotService for SimulatedDriver {
    async fn create(
        &self,
        request: v1::CreateSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::CreateSnapshotResponse, Status> {
        self.controller_call("CreateSnapshot", request, limit, |driver, request| {
            let snapshot = driver.take_snapshot(&request.name, &request.source_volume_id)?;
            Ok(v1::CreateSnapshotResponse { snapshot: Some(snapshot) })
        })
        .await
    }

    async fn delete(
        &self,
        request: v1::DeleteSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::DeleteSnapshotResponse, Status> {
        self.controller_call("DeleteSnapshot", request, limit, |driver, request| {
            driver.drop_snapshot(&request.snapshot_id)?;
            Ok(v1::DeleteSnapshotResponse {})
        })
        .await
    }

    async fn list(
        &self,
        request: v1::ListSnapshotsRequest,
        limit: Duration,
    ) -> Result<v1::ListSnapshotsResponse, Status> {
        self.controller_call("ListSnapshots", request, limit, |driver, request| {
            let found = driver.snapshot(&request.snapshot_id);
            let entry = |snapshot| v1::list_snapshots_response::Entry { snapshot: Some(snapshot) };
            let entries = found.into_iter().map(entry).collect();
            Ok(v1::ListSnapshotsResponse { entries, ..v1::ListSnapshotsResponse::default() })
        })
        .await
    }
}

impl SimulatedDriver {
    /// Takes a snapshot, once for each name.
    fn take_snapshot(&self, name: &str, source: &str) -> Result<v1::Snapshot, Status> {
        let known = self.open().ids.get(name).cloned();
        let id = match known {
            Some(id) => id,
            None => {
                self.known(source)?;
                let id = self.next_id(name, "snap");
                let mut inner = self.open();
                let (size, calls_until_ready) = (inner.volumes[source].granted, (inner.calls % 3) as u32);
                let (source, group) = (source.to_owned(), String::new());
                inner.snapshots.insert(id.clone(), Snapshot { source, size, group, calls_until_ready });
                id
            }
        };
        self.snapshot(&id).ok_or_else(|| Status::internal("the snapshot that was just taken is gone"))
    }

    /// A snapshot as it is now. Each call counts down to its readiness.
    pub(super) fn snapshot(&self, id: &str) -> Option<v1::Snapshot> {
        let mut inner = self.open();
        let snapshot = inner.snapshots.get_mut(id)?;
        let ready_to_use = snapshot.calls_until_ready == 0;
        snapshot.calls_until_ready = snapshot.calls_until_ready.saturating_sub(1);
        Some(v1::Snapshot {
            snapshot_id: id.to_owned(),
            source_volume_id: snapshot.source.clone(),
            size_bytes: snapshot.size.cast_signed(),
            ready_to_use,
            group_snapshot_id: snapshot.group.clone(),
            ..v1::Snapshot::default()
        })
    }

    fn drop_snapshot(&self, id: &str) -> Result<(), Status> {
        let mut inner = self.open();
        if inner.snapshots.get(id).is_some_and(|snapshot| !snapshot.group.is_empty()) {
            return Err(Status::invalid_argument("the snapshot is part of a group"));
        }
        inner.snapshots.remove(id);
        inner.ids.retain(|_, known| known != id);
        Ok(())
    }

    pub(super) fn check_snapshot_exists(&self, id: &str) -> Result<(), Status> {
        match self.open().snapshots.contains_key(id) {
            true => Ok(()),
            false => Err(Status::not_found(format!("no snapshot `{id}`"))),
        }
    }
}
