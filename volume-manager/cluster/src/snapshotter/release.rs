//! A snapshot that is deleted: its content is annotated, and deleted first if its policy is Delete.

use api::{ClaimPhase, GroupSnapshot, Key, Kind, Resource, Severity, Snapshot, SnapshotContent};

use super::binding::{BindingReconciler, expected_content, names};
use super::{AS_SOURCE, BEING_DELETED, BOUND, IN_GROUP, display, group_of};
use crate::ReconcileError;
use crate::found::{annotate, delete, find, release};

impl BindingReconciler {
    pub(super) async fn let_go(&self, snapshot: &Snapshot) -> Result<(), ReconcileError> {
        let key = snapshot.key();
        self.refuse_while_in_group(snapshot).await?;
        let Some(content) = self.content_of_deleted(snapshot).await? else {
            self.release_claim(snapshot).await?;
            return release(&*self.api, &key, &snapshot.meta, &[AS_SOURCE, BOUND, IN_GROUP]).await;
        };
        self.refuse_while_restored(snapshot).await?;
        let content_key = content.key();
        if !content.meta.annotations.contains_key(BEING_DELETED) {
            annotate(&*self.api, &content_key, &content.meta, BEING_DELETED, Some("yes")).await?;
        }
        if content.deletion != "Delete" {
            self.release_claim(snapshot).await?;
            return release(&*self.api, &key, &snapshot.meta, &[AS_SOURCE, BOUND, IN_GROUP]).await;
        }
        if !content.meta.is_deleting() {
            delete(&*self.api, &content_key).await?;
        }
        // One that was deleted before it was bound has no other finalizer, and waits for its content with this one.
        match snapshot.meta.has_finalizer(BOUND) {
            true => release(&*self.api, &key, &snapshot.meta, &[AS_SOURCE, IN_GROUP]).await,
            false => Ok(()),
        }
    }

    /// The content that belongs to a snapshot, also if so far only the content names the other.
    async fn content_of_deleted(
        &self,
        snapshot: &Snapshot,
    ) -> Result<Option<SnapshotContent>, ReconcileError> {
        let name = match snapshot.status.content.as_str() {
            "" => expected_content(snapshot),
            bound => bound.to_owned(),
        };
        let key = Key::cluster(Kind::SnapshotContent, name);
        let content = find::<SnapshotContent>(&*self.api, &key).await?;
        let content = content.filter(|content| !content.snapshot_uid.is_empty() && names(content, snapshot));
        Ok(content.map(|content| SnapshotContent::clone(&content)))
    }

    /// A snapshot of a group goes with its group only.
    async fn refuse_while_in_group(&self, snapshot: &Snapshot) -> Result<(), ReconcileError> {
        let Some(owner) = group_of(snapshot) else { return Ok(()) };
        let key = Key::namespaced(Kind::GroupSnapshot, &snapshot.meta.namespace, &owner.name);
        let group = find::<GroupSnapshot>(&*self.api, &key).await?;
        let Some(group) = group.filter(|group| group.meta.uid == owner.uid) else { return Ok(()) };
        let message = format!(
            "deletion of the individual volume snapshot {} is not allowed as it belongs to group snapshot {}. Deleting \
             the group snapshot will trigger the deletion of all the individual volume snapshots that are part of the \
             group.",
            display(&snapshot.key()),
            display(&key),
        );
        if !group.meta.is_deleting() {
            self.write_event(snapshot, Severity::Warning, "SnapshotDeletePending", message.clone()).await?;
        }
        Err(ReconcileError::until(key, message))
    }

    async fn refuse_while_restored(&self, snapshot: &Snapshot) -> Result<(), ReconcileError> {
        let claims = self.claims_beside(snapshot).await?;
        let restored = claims.iter().find(|claim| {
            let source = claim.spec.data_source.as_ref();
            let is_source = source
                .is_some_and(|source| source.kind == "VolumeSnapshot" && source.name == snapshot.meta.name);
            is_source && claim.status.phase == ClaimPhase::Pending
        });
        let Some(claim) = restored else { return Ok(()) };
        let message = "Snapshot is being used to restore a PVC".to_owned();
        self.write_event(snapshot, Severity::Warning, "SnapshotDeletePending", message).await?;
        let name = display(&snapshot.key());
        Err(ReconcileError::until(
            claim.key(),
            format!("snapshot {name} is in use (being used to restore a PVC), will retry deletion"),
        ))
    }
}
