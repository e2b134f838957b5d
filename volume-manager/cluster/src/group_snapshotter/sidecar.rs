//! The calls beside a driver: the group that a content stands for is taken, looked after until it is ready, and deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::group_snapshot::{GroupContentSource, GroupContentStatus, GroupMember};
use api::names::Namespaced;
use api::{
    ApiSource, Bytes, GroupSnapshotClass, GroupSnapshotContent, Key, Kind, Object, Patch, PatchBody,
    Reference, Resource, Severity,
};
use async_trait::async_trait;
use csi_proto::v1;

use super::{BEING_CREATED, BEING_DELETED, CONTENT, GroupSnapshotterConfig, SECRET, parameters};
use crate::class_parameters::of_driver;
use crate::events::Events;
use crate::found::{annotate, find, hold, release};
use crate::reconcile_error::may_exist;
use crate::reconciler::Reconciler;
use crate::{GroupSnapshotService, ReconcileError, secrets};

#[derive(Debug)]
pub(super) struct SidecarReconciler {
    pub(super) config: GroupSnapshotterConfig,
    pub(super) api: Arc<dyn ApiSource>,
    pub(super) events: Events,
    pub(super) service: Arc<dyn GroupSnapshotService>,
}

#[async_trait]
impl Reconciler for SidecarReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::GroupSnapshotClass, Kind::GroupSnapshotContent]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        let Some(Object::GroupSnapshotContent(content)) = after else { return Vec::new() };
        let before = before.and_then(|before| match before {
            Object::GroupSnapshotContent(before) => Some(Asked::of(before)),
            _ => None,
        });
        match before.is_none_or(|before| before != Asked::of(content)) {
            true if content.driver == self.config.driver => vec![content.key()],
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        loop {
            let Some(content) = find::<GroupSnapshotContent>(&*self.api, key).await? else {
                self.events.forget(key);
                return Ok(());
            };
            match next(&content) {
                Step::Nothing => return Ok(()),
                Step::Hold => _ = hold(&*self.api, key, &content.meta, CONTENT).await?,
                Step::Create(volumes) => self.create(&content, volumes).await?,
                Step::Look(group, snapshots) => self.look(&content, group, snapshots).await?,
                Step::Created => self.annotate(&content, BEING_CREATED, None).await?,
                Step::Delete(group, snapshots) => self.delete(&content, group, snapshots).await?,
                Step::Release => return release(&*self.api, key, &content.meta, &[CONTENT]).await,
            }
        }
    }
}

/// The fields of a content that other writers set and that the next step depends on.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    source: &'a GroupContentSource,
    class: &'a str,
    deletion: &'a str,
    group: &'a str,
    deleting: bool,
    group_deleted: bool,
}

impl<'a> Asked<'a> {
    fn of(content: &'a GroupSnapshotContent) -> Self {
        Self {
            source: &content.source,
            class: &content.class,
            deletion: &content.deletion,
            group: &content.group_uid,
            deleting: content.meta.is_deleting(),
            group_deleted: content.meta.annotations.contains_key(BEING_DELETED),
        }
    }
}

/// The next step for a content.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Keep its object until the driver has no group of it any more.
    Hold,
    /// Have snapshots of these volumes taken, or ask again whether they are ready.
    Create(Vec<String>),
    /// Ask for the state of a group that exists already.
    Look(String, Vec<String>),
    /// Its creation has ended, and is still written down as under way.
    Created,
    /// Delete a group with its snapshots.
    Delete(String, Vec<String>),
    /// Let its object go.
    Release,
}

fn next(content: &GroupSnapshotContent) -> Step {
    let annotated = |annotation: &str| content.meta.annotations.contains_key(annotation);
    if content.status.ready && annotated(BEING_CREATED) {
        return Step::Created;
    }
    if content.meta.is_deleting() {
        let bound = !content.group_uid.is_empty();
        let by_hand = matches!(content.source, GroupContentSource::Group { .. });
        let asked = annotated(BEING_DELETED) || (by_hand && !bound);
        if asked && !annotated(BEING_CREATED) {
            return match content.deletion.as_str() {
                "Delete" if !content.status.handle.is_empty() => {
                    Step::Delete(content.status.handle.clone(), snapshots(content))
                }
                _ => Step::Release,
            };
        }
    } else if !content.meta.has_finalizer(CONTENT) {
        return Step::Hold;
    }
    // Until it is bound, it belongs to no group snapshot.
    if content.status.ready || content.group_uid.is_empty() {
        return Step::Nothing;
    }
    match &content.source {
        GroupContentSource::Volumes(volumes) => Step::Create(volumes.clone()),
        GroupContentSource::Group { group, snapshots } => Step::Look(group.clone(), snapshots.clone()),
    }
}

/// The driver's ids of a group's snapshots.
fn snapshots(content: &GroupSnapshotContent) -> Vec<String> {
    match &content.source {
        GroupContentSource::Group { snapshots, .. } => snapshots.clone(),
        GroupContentSource::Volumes(_) => {
            content.status.members.iter().map(|member| member.snapshot.clone()).collect()
        }
    }
}

/// The state of a group as the driver answered it; not ready if it has not exactly one snapshot of each volume.
fn status(group: v1::VolumeGroupSnapshot, volumes: Option<&[String]>) -> GroupContentStatus {
    let member = |snapshot: v1::Snapshot| GroupMember {
        volume: snapshot.source_volume_id,
        snapshot: snapshot.snapshot_id,
        ready: snapshot.ready_to_use,
        restore_size: u64::try_from(snapshot.size_bytes).ok().filter(|size| *size > 0).map(Bytes),
    };
    let members: Vec<GroupMember> = group.snapshots.into_iter().map(member).collect();
    let answered: BTreeSet<&str> = members.iter().map(|member| member.volume.as_str()).collect();
    let is_complete = volumes.is_none_or(|volumes| {
        let asked: BTreeSet<&str> = volumes.iter().map(String::as_str).collect();
        asked == answered && asked.len() == members.len()
    });
    let has_ids = members.iter().all(|member| !member.snapshot.is_empty());
    let error = (!is_complete || !has_ids).then(|| {
        let volumes = members.iter().map(|member| member.volume.as_str()).collect::<Vec<_>>().join(", ");
        format!("the driver answered snapshots of [{volumes}] instead of one snapshot of each volume")
    });
    GroupContentStatus {
        handle: group.group_snapshot_id,
        ready: group.ready_to_use && error.is_none(),
        members,
        error,
    }
}

impl SidecarReconciler {
    async fn create(
        &self,
        content: &GroupSnapshotContent,
        volumes: Vec<String>,
    ) -> Result<(), ReconcileError> {
        let class: Arc<GroupSnapshotClass> = api::get(&*self.api, "", &content.class).await?;
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: format!("groupsnapshot-{}", content.group_uid),
            source_volume_ids: volumes.clone(),
            secrets: secrets::read(&*self.api, secret(content).as_ref()).await?,
            parameters: of_driver(&class.parameters).into_iter().collect(),
        };
        self.annotate(content, BEING_CREATED, Some("yes")).await?;
        let failed = "Failed to create group snapshot: failed to take group snapshot of the volumes";
        let listed = volumes.join(" ");
        let answer = match self.service.create(request, self.config.call_limit).await {
            Ok(answer) => answer,
            Err(status) => {
                if !may_exist(status.code()) {
                    self.annotate(content, BEING_CREATED, None).await?;
                }
                let failure = ReconcileError::Driver(status);
                let message = format!("{failed} [{listed}]: {failure}");
                self.refused(content, "GroupSnapshotCreationFailed", message).await?;
                return Err(failure);
            }
        };
        let now = status(answer.group_snapshot.unwrap_or_default(), Some(&volumes));
        let error = now.error.clone();
        let noted = self.note(content, now, Some(BEING_CREATED)).await;
        if let Some(error) = error {
            let message = format!("{failed} [{listed}]: {error}");
            self.write_event(content, Severity::Warning, "GroupSnapshotCreationFailed", message).await?;
        }
        noted
    }

    /// Writes the state of a group that was not made from claims here.
    async fn look(
        &self,
        content: &GroupSnapshotContent,
        group: String,
        snapshots: Vec<String>,
    ) -> Result<(), ReconcileError> {
        match self.state(content, group, snapshots).await {
            Ok(status) => self.note(content, status, None).await,
            Err(failure) => {
                let message = format!("Failed to check and update group snapshot content: {failure}");
                self.refused(content, "GroupSnapshotContentCheckandUpdateFailed", message).await?;
                Err(failure)
            }
        }
    }

    /// The state of a group by its handle.
    async fn state(
        &self,
        content: &GroupSnapshotContent,
        group_snapshot_id: String,
        snapshot_ids: Vec<String>,
    ) -> Result<GroupContentStatus, ReconcileError> {
        let secret = match content.class.as_str() {
            "" => None,
            class => {
                let class: Arc<GroupSnapshotClass> = api::get(&*self.api, "", class).await?;
                let name = &content.meta.name;
                parameters::secret(&class.parameters, parameters::GETS, &content.group, name)
                    .map_err(|bad| ReconcileError::unfit(bad.to_string()))?
            }
        };
        let secrets = secrets::read(&*self.api, secret.as_ref()).await?;
        let request = v1::GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets };
        let answer =
            self.service.get(request, self.config.call_limit).await.map_err(ReconcileError::Driver)?;
        Ok(status(answer.group_snapshot.unwrap_or_default(), None))
    }

    async fn delete(
        &self,
        content: &GroupSnapshotContent,
        group_snapshot_id: String,
        snapshot_ids: Vec<String>,
    ) -> Result<(), ReconcileError> {
        let secrets = secrets::read(&*self.api, secret(content).as_ref()).await?;
        let request = v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets };
        if let Err(status) = self.service.delete(request, self.config.call_limit).await {
            let message = "Failed to delete group snapshot".to_owned();
            self.write_event(content, Severity::Warning, "GroupSnapshotDeleteError", message).await?;
            return Err(ReconcileError::Driver(status));
        }
        // Its finalizer goes last: as long as the driver may have it, its object is there.
        let body = PatchBody::GroupContentStatus(GroupContentStatus::default());
        self.api.patch(Patch::of(content.key(), body)).await?;
        Ok(())
    }

    /// Writes the state that the driver answered, and drops an annotation after that. It is looked at again until the group
    /// is ready.
    async fn note(
        &self,
        content: &GroupSnapshotContent,
        status: GroupContentStatus,
        annotation: Option<&str>,
    ) -> Result<(), ReconcileError> {
        if status.handle.is_empty() {
            return Err(ReconcileError::unfit("the driver answered a group snapshot without an id"));
        }
        let is_ready = status.ready;
        if status != content.status {
            self.api.patch(Patch::of(content.key(), PatchBody::GroupContentStatus(status))).await?;
        }
        if let Some(annotation) = annotation {
            self.annotate(content, annotation, None).await?;
        }
        match is_ready {
            true => Ok(()),
            false => Err(ReconcileError::unfit(format!(
                "group snapshot content {} is not ready",
                content.meta.name
            ))),
        }
    }

    /// Says why the driver has not made it.
    async fn refused(
        &self,
        content: &GroupSnapshotContent,
        reason: &str,
        message: String,
    ) -> Result<(), ReconcileError> {
        let status =
            GroupContentStatus { ready: false, error: Some(message.clone()), ..content.status.clone() };
        if status != content.status {
            self.api.patch(Patch::of(content.key(), PatchBody::GroupContentStatus(status))).await?;
        }
        self.write_event(content, Severity::Warning, reason, message).await
    }

    async fn annotate(
        &self,
        content: &GroupSnapshotContent,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<(), ReconcileError> {
        annotate(&*self.api, &content.key(), &content.meta, annotation, value).await
    }

    async fn write_event(
        &self,
        content: &GroupSnapshotContent,
        severity: Severity,
        reason: &str,
        message: String,
    ) -> Result<(), ReconcileError> {
        let about = Reference::to(Kind::GroupSnapshotContent, &content.meta);
        self.events.write(about, severity, reason, message).await
    }
}

fn secret(content: &GroupSnapshotContent) -> Option<Namespaced> {
    SECRET.read(&content.meta)
}

#[cfg(test)]
mod tests;
