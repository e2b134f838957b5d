//! A group snapshot that is deleted: its content is annotated, and deleted first if its policy is Delete. Its snapshots
//! are deleted with it.

use std::sync::Arc;

use api::{Claim, ClaimPhase, GroupSnapshot, GroupSnapshotContent, Key, Kind, Resource, Severity, Snapshot};

use super::binding::{BindingReconciler, expected_content, names};
use super::{BEING_DELETED, BOUND};
use crate::ReconcileError;
use crate::found::{annotate, delete, find, release};
use crate::snapshotter::display;

impl BindingReconciler {
    pub(super) async fn let_go(&self, group: &GroupSnapshot) -> Result<(), ReconcileError> {
        let content = self.content_of_deleted(group).await?;
        let members = self.members(group).await?;
        self.refuse_while_restored(group, &members).await?;
        if let Some(content) = &content {
            self.content_goes(content).await?;
        }
        for member in members.iter().filter(|member| !member.meta.is_deleting()) {
            delete(&*self.api, &member.key()).await?;
        }
        match content {
            // With its end the group snapshot comes again.
            Some(content) if content.deletion == "Delete" => Ok(()),
            _ => release(&*self.api, &group.key(), &group.meta, &[BOUND]).await,
        }
    }

    /// Annotates a content whose group snapshot is being deleted, and deletes it if its policy is Delete.
    async fn content_goes(&self, content: &GroupSnapshotContent) -> Result<(), ReconcileError> {
        let key = content.key();
        if !content.meta.annotations.contains_key(BEING_DELETED) {
            annotate(&*self.api, &key, &content.meta, BEING_DELETED, Some("yes")).await?;
        }
        match content.deletion == "Delete" && !content.meta.is_deleting() {
            true => delete(&*self.api, &key).await,
            false => Ok(()),
        }
    }

    /// The content that belongs to a group snapshot, also if so far only the content names the other.
    async fn content_of_deleted(
        &self,
        group: &GroupSnapshot,
    ) -> Result<Option<Arc<GroupSnapshotContent>>, ReconcileError> {
        let name = match group.status.content.as_str() {
            "" => expected_content(group),
            bound => bound.to_owned(),
        };
        let key = Key::cluster(Kind::GroupSnapshotContent, name);
        let content = find::<GroupSnapshotContent>(&*self.api, &key).await?;
        Ok(content.filter(|content| !content.group_uid.is_empty() && names(content, group)))
    }

    async fn refuse_while_restored(
        &self,
        group: &GroupSnapshot,
        members: &[Arc<Snapshot>],
    ) -> Result<(), ReconcileError> {
        if members.is_empty() {
            return Ok(());
        }
        let claims = api::list_in::<Claim>(&*self.api, &group.meta.namespace).await?;
        let source_of = |claim: &Arc<Claim>| {
            let source = claim.spec.data_source.as_ref().filter(|source| source.kind == "VolumeSnapshot")?;
            let member = members.iter().find(|member| member.meta.name == source.name)?;
            (claim.status.phase == ClaimPhase::Pending).then(|| (claim.key(), member.key()))
        };
        let Some((claim, member)) = claims.iter().find_map(source_of) else { return Ok(()) };
        let (member, name) = (display(&member), display(&group.key()));
        let message = format!(
            "Snapshot {member} belonging to VolumeGroupSnapshot {name} is being used to restore a PVC"
        );
        self.write_event(group, Severity::Warning, "SnapshotDeletePending", message.clone()).await?;
        Err(ReconcileError::until(claim, message))
    }
}
