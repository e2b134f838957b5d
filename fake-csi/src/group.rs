//! The group controller service: snapshots of several volumes at one moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use csi_proto::v1::{self, group_controller_server::GroupController};
use tonic::{Request, Response, Status};

use crate::books::{Books, Group, Snapshot, Volume};
use crate::controller::snapshot::{describe, design, find_volume};
use crate::driver::Driver;
use crate::journal::Entry;
use crate::sabotage::Sabotage;
use crate::validate;

#[derive(Debug, Clone)]
pub(crate) struct GroupService {
    pub(crate) driver: Arc<Driver>,
}

#[tonic::async_trait]
impl GroupController for GroupService {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<v1::GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<v1::GroupControllerGetCapabilitiesResponse>, Status> {
        use v1::group_controller_service_capability::{Rpc, Type, rpc};
        let kind = rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into();
        let capability =
            v1::GroupControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind })) };
        Ok(Response::new(v1::GroupControllerGetCapabilitiesResponse { capabilities: vec![capability] }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<v1::CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<v1::CreateVolumeGroupSnapshotResponse>, Status> {
        let (driver, request) = (Arc::clone(&self.driver), request.into_inner());
        crate::run(move || driver.create_group(&request)).await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<v1::DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<v1::DeleteVolumeGroupSnapshotResponse>, Status> {
        let (driver, request) = (Arc::clone(&self.driver), request.into_inner());
        crate::run(move || driver.delete_group(&request)).await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<v1::GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<v1::GetVolumeGroupSnapshotResponse>, Status> {
        let (driver, request) = (Arc::clone(&self.driver), request.into_inner());
        crate::run(move || driver.get_group(&request)).await
    }
}

impl Driver {
    fn create_group(
        &self,
        request: &v1::CreateVolumeGroupSnapshotRequest,
    ) -> Result<v1::CreateVolumeGroupSnapshotResponse, Status> {
        validate::name("name", &request.name)?;
        validate::map("secrets", &request.secrets)?;
        validate::map("parameters", &request.parameters)?;
        let sources: BTreeSet<&str> = request.source_volume_ids.iter().map(String::as_str).collect();
        if sources.is_empty() || sources.contains("") {
            return Err(Status::invalid_argument("source_volume_ids is missing"));
        }
        let _named = self.in_flight.claim(&[&format!("group named {}", request.name)])?;
        // In the order of their ids and without waiting, so that two groups cannot block each other.
        let claims = sources.iter().map(|id| self.in_flight.claim(&[id]));
        let _claims: Vec<_> = claims.collect::<Result<_, _>>()?;
        let name = match self.breaks(Sabotage::GroupForgetsIdempotence) {
            true => format!("{} {}", request.name, self.count()),
            false => request.name.clone(),
        };
        let name = if self.breaks(Sabotage::GroupFoldsCase) { name.to_lowercase() } else { name };
        if self.breaks(Sabotage::GroupComparesOrder) && !request.source_volume_ids.is_sorted() {
            return Err(Status::already_exists("a group of this name is of other volumes"));
        }
        let planned = self.journal.transact(|books| plan(books, &name, &sources));
        if planned.is_err() && self.breaks(Sabotage::GroupLeavesHalf) {
            drop(std::fs::write(self.options.state.join("snapshots").join(&request.name), ""));
        }
        let (group, work) = planned?;
        if !group.created {
            self.fill_group(&group, work)?;
        }
        let mut described = self.describe_group(&group)?;
        if group.created {
            self.spoil_repeated(&mut described);
        }
        Ok(v1::CreateVolumeGroupSnapshotResponse { group_snapshot: Some(described) })
    }

    /// The bugs: a repeated call describes the group otherwise.
    fn spoil_repeated(&self, described: &mut v1::VolumeGroupSnapshot) {
        if self.breaks(Sabotage::GroupAgainIsNotReady) {
            described.ready_to_use = false;
        }
        if self.breaks(Sabotage::GroupAgainMixesSources) {
            let sources = described.snapshots.iter().rev().map(|one| one.source_volume_id.clone());
            let sources: Vec<_> = sources.collect();
            let snapshots = described.snapshots.iter_mut().zip(sources);
            snapshots.for_each(|(snapshot, source)| snapshot.source_volume_id = source);
        }
    }

    /// Copies all volumes while all of them are frozen, so that the snapshots are of one moment.
    fn fill_group(&self, group: &Group, work: Vec<(Snapshot, Volume)>) -> Result<(), Status> {
        let still: Vec<_> = work.iter().map(|(_, volume)| self.freeze(volume)).collect::<Result<_, _>>()?;
        for (snapshot, volume) in work {
            self.fill_snapshot(snapshot, &volume)?;
            if self.breaks(Sabotage::GroupEmptiesSources) {
                self.empty_contents(&volume)?;
            }
        }
        drop(still);
        let entries = vec![Entry::Group(Group { created: true, ..group.clone() })];
        self.journal.transact(|_| Ok::<_, Status>((entries, ())))
    }

    fn delete_group(
        &self,
        request: &v1::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<v1::DeleteVolumeGroupSnapshotResponse, Status> {
        validate::required("group_snapshot_id", &request.group_snapshot_id)?;
        validate::map("secrets", &request.secrets)?;
        let _claim = self.in_flight.claim(&[&request.group_snapshot_id])?;
        let found = self.journal.read(|books| books.groups.get(&request.group_snapshot_id).cloned())?;
        let Some(group) = found else { return Ok(v1::DeleteVolumeGroupSnapshotResponse {}) };
        if !self.breaks(Sabotage::GroupDeleteTakesAnyMembers) {
            is_list_of(&group, &request.snapshot_ids)?;
        }
        self.drop_group(&group)?;
        Ok(v1::DeleteVolumeGroupSnapshotResponse {})
    }

    /// Deletes a group's snapshots, and its record last.
    pub(crate) fn drop_group(&self, group: &Group) -> Result<(), Status> {
        let hidden = Group { created: false, name: String::new(), ..group.clone() };
        self.journal.transact(|_| Ok::<_, Status>((vec![Entry::Group(hidden)], ())))?;
        let snapshots = self.journal.read(|books| {
            group.snapshots.iter().filter_map(|id| books.snapshots.get(id).cloned()).collect::<Vec<_>>()
        })?;
        for snapshot in snapshots {
            let is_orphan = self.journal.read(|books| !books.volumes.contains_key(&snapshot.source))?;
            let keeps = self.breaks(Sabotage::GroupDeleteKeepsSnapshots)
                || is_orphan && self.breaks(Sabotage::GroupDeleteKeepsOrphans);
            if keeps {
                let freed = Snapshot { group: None, ..snapshot };
                self.journal.transact(|_| Ok::<_, Status>((vec![Entry::Snapshot(Box::new(freed))], ())))?;
                continue;
            }
            self.drop_snapshot(&snapshot)?;
        }
        self.journal.transact(|_| Ok::<_, Status>((vec![Entry::GroupGone(group.id.clone())], ())))
    }

    fn get_group(
        &self,
        request: &v1::GetVolumeGroupSnapshotRequest,
    ) -> Result<v1::GetVolumeGroupSnapshotResponse, Status> {
        validate::required("group_snapshot_id", &request.group_snapshot_id)?;
        validate::map("secrets", &request.secrets)?;
        let id = &request.group_snapshot_id;
        let found = self.journal.read(|books| books.groups.get(id).filter(|group| group.created).cloned())?;
        if found.is_none() && self.breaks(Sabotage::GroupUnknownIsEmpty) {
            let group = v1::VolumeGroupSnapshot { group_snapshot_id: id.clone(), ..Default::default() };
            return Ok(v1::GetVolumeGroupSnapshotResponse { group_snapshot: Some(group) });
        }
        let group = found.ok_or_else(|| Status::not_found(format!("there is no group `{id}`")))?;
        let counts = self.breaks(Sabotage::GroupCountsMembers);
        let has_as_many = counts && request.snapshot_ids.len() == group.snapshots.len();
        if !self.breaks(Sabotage::GroupTakesAnyMembers) && !has_as_many {
            is_list_of(&group, &request.snapshot_ids)?;
        }
        let mut described = self.describe_group(&group)?;
        if self.breaks(Sabotage::GroupGetRenames) {
            described.group_snapshot_id += "-0";
        }
        if self.breaks(Sabotage::GroupTellsAnotherTime) {
            described.creation_time = described
                .creation_time
                .map(|time| prost_types::Timestamp { seconds: time.seconds + 3600, ..time });
        }
        Ok(v1::GetVolumeGroupSnapshotResponse { group_snapshot: Some(described) })
    }

    fn describe_group(&self, group: &Group) -> Result<v1::VolumeGroupSnapshot, Status> {
        let missing = usize::from(self.breaks(Sabotage::GroupMissesOne));
        let listed = group.snapshots.iter().skip(missing);
        let member = |found| {
            let mut described = describe(&found);
            if self.breaks(Sabotage::GroupHidesItself) {
                described.group_snapshot_id.clear();
            }
            described
        };
        let snapshots = listed.map(|id| self.snapshot(id).map(member));
        Ok(v1::VolumeGroupSnapshot {
            group_snapshot_id: group.id.clone(),
            snapshots: snapshots.collect::<Result<_, _>>()?,
            creation_time: (!self.breaks(Sabotage::GroupWithoutTime))
                .then_some(prost_types::Timestamp { seconds: group.seconds, nanos: 0 }),
            ready_to_use: !self.breaks(Sabotage::GroupNeverReady),
        })
    }
}

type Planned = (Group, Vec<(Snapshot, Volume)>);

/// The existing group of this name, or the records of a new one with its snapshots.
fn plan(books: &Books, name: &str, sources: &BTreeSet<&str>) -> Result<(Vec<Entry>, Planned), Status> {
    let wanted: Vec<String> = sources.iter().map(|id| (*id).to_owned()).collect();
    let same_name = books.groups.values().find(|group| group.name == name);
    if let Some(group) = same_name {
        if group.sources != wanted {
            return Err(Status::already_exists("a group of this name is of other volumes"));
        }
        if group.created {
            return Ok((Vec::new(), (group.clone(), Vec::new())));
        }
    }
    let volumes: Vec<Volume> = wanted.iter().map(|id| find_volume(books, id)).collect::<Result<_, _>>()?;
    if let Some(group) = same_name {
        // An earlier attempt failed half-way; its snapshots are taken again.
        let snapshots = group.snapshots.iter().filter_map(|id| books.snapshots.get(id).cloned());
        let work = snapshots.zip(volumes).collect();
        return Ok((Vec::new(), (group.clone(), work)));
    }
    let id = format!("group-{:08x}", books.next);
    let numbers = books.next + 1..;
    let work: Vec<_> = numbers
        .zip(volumes)
        .map(|(number, volume)| {
            let named = format!("{id} of {}", volume.id);
            (Snapshot { group: Some(id.clone()), ..design(number, &named, &volume) }, volume)
        })
        .collect();
    let group = Group {
        id,
        name: name.to_owned(),
        sources: wanted,
        snapshots: work.iter().map(|(snapshot, _)| snapshot.id.clone()).collect(),
        seconds: work.first().map_or(0, |(snapshot, _)| snapshot.seconds),
        created: false,
    };
    let mut entries = vec![Entry::Next(books.next + 1 + work.len() as u64), Entry::Group(group.clone())];
    entries.extend(work.iter().map(|(snapshot, _)| Entry::Snapshot(Box::new(snapshot.clone()))));
    Ok((entries, (group, work)))
}

/// INVALID_ARGUMENT if the list is not that of the group's snapshots. An empty list is not checked.
fn is_list_of(group: &Group, ids: &[String]) -> Result<(), Status> {
    let (ours, theirs): (BTreeSet<_>, BTreeSet<_>) = (group.snapshots.iter().collect(), ids.iter().collect());
    if ids.is_empty() || ours == theirs {
        return Ok(());
    }
    Err(Status::invalid_argument("snapshot_ids are not those of the group"))
}
