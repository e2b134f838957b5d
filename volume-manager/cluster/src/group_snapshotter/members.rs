//! Creates the VolumeSnapshots of a group and their contents, once the driver has taken the group.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::group_snapshot::{GroupContentSource, GroupMember};
use api::snapshot::{ContentSource, ContentStatus, SnapshotSource};
use api::{
    GroupSnapshot, GroupSnapshotContent, Key, Kind, Meta, Owner, Patch, PatchBody, Resource, Snapshot,
    SnapshotContent, Volume,
};

use super::SECRET;
use super::binding::BindingReconciler;
use crate::ReconcileError;
use crate::found::{create, find};
use crate::snapshotter::{self, GROUP_HANDLE, IN_GROUP};

impl BindingReconciler {
    /// Creates a snapshot and its content for each member of a group that was taken from volumes. For existing snapshots of
    /// the driver there is nothing to create.
    pub(super) async fn make_members(
        &self,
        group: &GroupSnapshot,
        content: &GroupSnapshotContent,
    ) -> Result<(), ReconcileError> {
        if content.status.handle.is_empty() || !matches!(content.source, GroupContentSource::Volumes(_)) {
            return Ok(());
        }
        for member in &content.status.members {
            let volume = match self.volume_with(&content.driver, &member.volume) {
                Some(name) => find::<Volume>(&*self.api, &Key::cluster(Kind::Volume, name)).await?,
                None => None,
            };
            // The snapshot first: deleting the group finds the contents by their snapshots, so one without a snapshot would
            // stay for ever.
            let snapshot = self.member_snapshot(group, member, volume.as_deref()).await?;
            self.member_content(&snapshot, content, member, volume.as_deref()).await?;
        }
        Ok(())
    }

    async fn member_content(
        &self,
        snapshot: &Snapshot,
        group_content: &GroupSnapshotContent,
        member: &GroupMember,
        volume: Option<&Volume>,
    ) -> Result<(), ReconcileError> {
        let mut meta = Meta::named("", GroupMember::content_of(&snapshot.meta.name));
        meta.annotations = annotations(group_content);
        let content = SnapshotContent {
            meta,
            snapshot: snapshot.key().namespaced_name(),
            snapshot_uid: snapshot.meta.uid.clone(),
            driver: group_content.driver.clone(),
            deletion: group_content.deletion.clone(),
            source: ContentSource::Volume(member.volume.clone()),
            source_mode: volume.and_then(|volume| volume.mode),
            ..SnapshotContent::default()
        };
        let status = ContentStatus {
            handle: member.snapshot.clone(),
            ready: member.ready,
            restore_size: member.restore_size,
            group: group_content.status.handle.clone(),
            error: None,
        };
        let key = content.key();
        let found = match find::<SnapshotContent>(&*self.api, &key).await? {
            Some(found) => found,
            None => create(&*self.api, content).await?,
        };
        if found.status.handle.is_empty() && !found.meta.is_deleting() {
            self.api.patch(Patch::of(key, PatchBody::ContentStatus(status))).await?;
        }
        Ok(())
    }

    async fn member_snapshot(
        &self,
        group: &GroupSnapshot,
        member: &GroupMember,
        volume: Option<&Volume>,
    ) -> Result<Arc<Snapshot>, ReconcileError> {
        let (name, _) = GroupMember::names(&group.meta.uid, &member.volume);
        let mut meta = Meta::named(&group.meta.namespace, name);
        meta.finalizers.push(IN_GROUP.to_owned());
        meta.owners.push(Owner {
            api_version: "groupsnapshot.storage.k8s.io/v1".to_owned(),
            kind: Kind::GroupSnapshot.as_str().to_owned(),
            name: group.meta.name.clone(),
            uid: group.meta.uid.clone(),
            ..Owner::default()
        });
        let claim = volume.and_then(|volume| volume.claim.as_ref()).map(|claim| claim.claim.name.clone());
        let source = SnapshotSource::Claim(claim.unwrap_or_default());
        let snapshot = Snapshot { meta, source, ..Snapshot::default() };
        match find::<Snapshot>(&*self.api, &snapshot.key()).await? {
            Some(found) => Ok(found),
            None => create(&*self.api, snapshot).await,
        }
    }

    /// The snapshots of a group, as they are now.
    pub(super) async fn members(&self, group: &GroupSnapshot) -> Result<Vec<Arc<Snapshot>>, ReconcileError> {
        let mut all = api::list_in::<Snapshot>(&*self.api, &group.meta.namespace).await?;
        all.retain(|snapshot| {
            snapshotter::group_of(snapshot).is_some_and(|owner| owner.uid == group.meta.uid)
        });
        Ok(all)
    }
}

/// The annotations of a member's content: the secret of the group's content, and the group's handle.
fn annotations(group_content: &GroupSnapshotContent) -> BTreeMap<String, String> {
    let to = snapshotter::SECRET;
    let secret = [(SECRET.name, to.name), (SECRET.namespace, to.namespace)];
    let secret = secret.into_iter().filter_map(|(group_key, member_key)| {
        let value = group_content.meta.annotations.get(group_key)?;
        Some((member_key.to_owned(), value.clone()))
    });
    secret.chain([(GROUP_HANDLE.to_owned(), group_content.status.handle.clone())]).collect()
}
