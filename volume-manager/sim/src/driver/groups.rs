//! The simulated driver's group controller service.

use std::time::Duration;

use async_trait::async_trait;
use cluster::GroupSnapshotService;
use csi_proto::v1;
use tonic::Status;

use super::{SimulatedDriver, Snapshot};

#[async_trait]
impl GroupSnapshotService for SimulatedDriver {
    async fn create(
        &self,
        request: v1::CreateVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::CreateVolumeGroupSnapshotResponse, Status> {
        self.controller_call("CreateVolumeGroupSnapshot", request, limit, |driver, request| {
            let group_snapshot = Some(driver.take_group(&request.name, &request.source_volume_ids)?);
            Ok(v1::CreateVolumeGroupSnapshotResponse { group_snapshot })
        })
        .await
    }

    async fn delete(
        &self,
        request: v1::DeleteVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::DeleteVolumeGroupSnapshotResponse, Status> {
        self.controller_call("DeleteVolumeGroupSnapshot", request, limit, |driver, request| {
            driver.drop_group(&request.group_snapshot_id, &request.snapshot_ids)?;
            Ok(v1::DeleteVolumeGroupSnapshotResponse {})
        })
        .await
    }

    async fn get(
        &self,
        request: v1::GetVolumeGroupSnapshotRequest,
        limit: Duration,
    ) -> Result<v1::GetVolumeGroupSnapshotResponse, Status> {
        self.controller_call("GetVolumeGroupSnapshot", request, limit, |driver, request| {
            let group_snapshot = Some(driver.group(&request.group_snapshot_id)?);
            Ok(v1::GetVolumeGroupSnapshotResponse { group_snapshot })
        })
        .await
    }
}

impl SimulatedDriver {
    /// Takes a snapshot of each volume, once for each name.
    fn take_group(&self, name: &str, sources: &[String]) -> Result<v1::VolumeGroupSnapshot, Status> {
        let known = self.open().ids.get(name).cloned();
        if let Some(id) = known {
            let group = self.group(&id)?;
            let same = group.snapshots.iter().all(|member| sources.contains(&member.source_volume_id));
            return match same && group.snapshots.len() == sources.len() {
                true => Ok(group),
                false => Err(Status::already_exists("a group of this name has other volumes")),
            };
        }
        sources.iter().try_for_each(|source| self.known(source))?;
        let id = self.next_id(name, "group");
        let mut inner = self.open();
        let calls_until_ready = (inner.calls % 3) as u32;
        let members: Vec<String> = (0..sources.len()).map(|number| format!("{id}-{number}")).collect();
        for (member, source) in members.iter().zip(sources) {
            let size = inner.volumes[source].granted;
            let snapshot = Snapshot { source: source.clone(), size, group: id.clone(), calls_until_ready };
            inner.snapshots.insert(member.clone(), snapshot);
        }
        inner.groups.insert(id.clone(), members);
        drop(inner);
        self.group(&id)
    }

    /// A group as it is now. Each question brings its snapshots nearer to their readiness.
    fn group(&self, id: &str) -> Result<v1::VolumeGroupSnapshot, Status> {
        let members = self.open().groups.get(id).cloned();
        let members = members.ok_or_else(|| Status::not_found(format!("no group `{id}`")))?;
        let snapshots: Vec<_> = members.iter().filter_map(|member| self.snapshot(member)).collect();
        Ok(v1::VolumeGroupSnapshot {
            group_snapshot_id: id.to_owned(),
            ready_to_use: snapshots.iter().all(|member| member.ready_to_use),
            snapshots,
            ..v1::VolumeGroupSnapshot::default()
        })
    }

    fn drop_group(&self, id: &str, snapshots: &[String]) -> Result<(), Status> {
        let mut inner = self.open();
        let Some(members) = inner.groups.get(id).cloned() else { return Ok(()) };
        if members.len() != snapshots.len() || members.iter().any(|member| !snapshots.contains(member)) {
            return Err(Status::invalid_argument("these are not the snapshots of the group"));
        }
        inner.groups.remove(id);
        inner.snapshots.retain(|snapshot, _| !members.contains(snapshot));
        inner.ids.retain(|_, known| known != id);
        Ok(())
    }

    /// Whether a volume is there, and not deleted.
    pub(crate) fn has_volume(&self, id: &str) -> bool {
        self.known(id).is_ok()
    }
}
