//! The user of group snapshots.

use api::group_snapshot::{GroupContentSource, GroupSource};
use api::snapshot::SnapshotSource;
use api::storage::Requirement;
use api::{
    Claim, GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent, Key, Kind, Meta, Resource, Snapshot,
};
use contracts::event::Client;

use super::claim_name;
use crate::api::SimulatedApi;
use crate::driver::{NAME, SimulatedDriver};

/// The class of all group snapshots.
const CLASS: &str = "weekly";

/// Writes the class.
pub(super) fn furnish(api: &SimulatedApi) {
    let class = GroupSnapshotClass {
        meta: Meta::named("", CLASS),
        driver: NAME.to_owned(),
        deletion: "Delete".to_owned(),
        ..GroupSnapshotClass::default()
    };
    api.put(class.into_object(), Client::Case);
}

/// Labels those of the claims that exist, and takes a group snapshot of those with the label.
pub(crate) fn take(api: &SimulatedApi, group: u32, volumes: &[usize]) {
    let name = name(group);
    for volume in volumes {
        api.change_by_user("default", &claim_name(*volume), |claim: &mut Claim| {
            claim.meta.labels.insert(name.clone(), "yes".to_owned());
        });
    }
    let is_labelled =
        Requirement { key: name.clone(), operator: "Exists".to_owned(), ..Requirement::default() };
    let group = GroupSnapshot {
        meta: Meta::named("default", name),
        source: GroupSource::Claims(vec![is_labelled]),
        class: Some(CLASS.to_owned()),
        ..GroupSnapshot::default()
    };
    api.put(api.admitted(group.into_object()), Client::Case);
}

pub(crate) fn delete(api: &SimulatedApi, group: u32) {
    api.delete_by_user(&Key::namespaced(Kind::GroupSnapshot, "default", name(group)));
}

/// Deletes the snapshot of a claim that is part of a group, if there is one.
pub(crate) fn delete_member(api: &SimulatedApi, group: u32, volume: usize) {
    if let Some(member) = member(api, group, volume) {
        api.delete_by_user(&member.key());
    }
}

/// The snapshot of a claim that is part of a group.
pub(super) fn member(api: &SimulatedApi, group: u32, volume: usize) -> Option<std::sync::Arc<Snapshot>> {
    let (group, source) = (name(group), SnapshotSource::Claim(claim_name(volume)));
    let is_member = |snapshot: &std::sync::Arc<Snapshot>| {
        snapshot.source == source && snapshot.meta.owners.iter().any(|owner| owner.name == group)
    };
    api.all::<Snapshot>().into_iter().find(is_member)
}

fn name(group: u32) -> String {
    format!("g{group}")
}

/// Group snapshots that are begun and not ready although nothing stands in the way any more.
pub(super) fn unmet(api: &SimulatedApi, driver: &SimulatedDriver) -> Vec<String> {
    let can_be_taken = |content: &GroupSnapshotContent| match &content.source {
        GroupContentSource::Volumes(volumes) => volumes.iter().all(|volume| driver.has_volume(volume)),
        GroupContentSource::Group { .. } => true,
    };
    let groups = api.all::<GroupSnapshot>();
    let contents = api.all::<GroupSnapshotContent>();
    let is_unmet = |group: &&std::sync::Arc<GroupSnapshot>| {
        let content = contents.iter().find(|content| content.group_uid == group.meta.uid);
        !group.meta.is_deleting()
            && !group.status.ready
            && content.is_some_and(|content| !content.status.handle.is_empty() || can_be_taken(content))
    };
    let line = |group: &std::sync::Arc<GroupSnapshot>| {
        format!("{} is not ready: {:?}", group.meta.name, group.status)
    };
    groups.iter().filter(is_unmet).map(line).collect()
}
