//! The calls beside a driver: what a content stands for is taken, looked after until it is ready, and deleted.

use std::sync::Arc;

use api::names::Namespaced;
use api::snapshot::{ContentSource, ContentStatus};
use api::{
    ApiSource, Bytes, Key, Kind, Object, Patch, PatchBody, Reference, Resource, Severity, SnapshotClass,
    SnapshotContent,
};
use async_trait::async_trait;
use csi_proto::v1;

use super::{BEING_CREATED, BEING_DELETED, CONTENT, GROUP_HANDLE, SECRET, SnapshotterConfig};
use crate::class_parameters::of_driver;
use crate::events::Events;
use crate::found::{annotate, find, hold, release};
use crate::reconcile_error::may_exist;
use crate::reconciler::Reconciler;
use crate::{ReconcileError, SnapshotService, secrets};

#[derive(Debug)]
pub(super) struct SidecarReconciler {
    pub(super) config: SnapshotterConfig,
    pub(super) api: Arc<dyn ApiSource>,
    pub(super) events: Events,
    pub(super) service: Arc<dyn SnapshotService>,
}

#[async_trait]
impl Reconciler for SidecarReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::SnapshotClass, Kind::SnapshotContent]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        let Some(Object::SnapshotContent(content)) = after else { return Vec::new() };
        let before = before.and_then(|before| match before {
            Object::SnapshotContent(before) => Some(Asked::of(before)),
            _ => None,
        });
        match before.is_none_or(|before| before != Asked::of(content)) {
            true if content.driver == self.config.driver => vec![content.key()],
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        loop {
            let Some(content) = find::<SnapshotContent>(&*self.api, key).await? else {
                self.events.forget(key);
                return Ok(());
            };
            match next(&content) {
                Step::Nothing => return Ok(()),
                Step::Hold => _ = hold(&*self.api, key, &content.meta, CONTENT).await?,
                Step::Create(volume) => self.create(&content, &volume).await?,
                Step::Look(handle) => self.look(&content, handle).await?,
                Step::Created => self.annotate(&content, BEING_CREATED, None).await?,
                Step::Delete(handle) => self.delete(&content, handle).await?,
                Step::Release => return release(&*self.api, key, &content.meta, &[CONTENT]).await,
            }
        }
    }
}

/// The fields of a content that other writers set and that the next step depends on.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    source: &'a ContentSource,
    class: &'a str,
    deletion: &'a str,
    snapshot: &'a str,
    deleting: bool,
    snapshot_deleted: bool,
    /// The handle of a snapshot of a group, which the group's controller writes.
    in_group: Option<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(content: &'a SnapshotContent) -> Self {
        Self {
            source: &content.source,
            class: &content.class,
            deletion: &content.deletion,
            snapshot: &content.snapshot_uid,
            deleting: content.meta.is_deleting(),
            snapshot_deleted: content.meta.annotations.contains_key(BEING_DELETED),
            in_group: is_in_group(content).then_some(content.status.handle.as_str()),
        }
    }
}

/// Whether the driver takes and deletes it with a group only.
fn is_in_group(content: &SnapshotContent) -> bool {
    content.meta.annotations.contains_key(GROUP_HANDLE) || !content.status.group.is_empty()
}

/// The next step for a content.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Keep its object until the driver has no snapshot of it any more.
    Hold,
    /// Have it cut from a volume, or ask again whether it is ready.
    Create(String),
    /// Ask for the state of one that exists already.
    Look(String),
    /// Its creation has ended, and is still written down as under way.
    Created,
    Delete(String),
    /// Let its object go.
    Release,
}

fn next(content: &SnapshotContent) -> Step {
    let annotated = |annotation: &str| content.meta.annotations.contains_key(annotation);
    if content.status.ready && annotated(BEING_CREATED) {
        return Step::Created;
    }
    if content.meta.is_deleting() {
        let bound = !content.snapshot_uid.is_empty();
        let by_hand = matches!(content.source, ContentSource::Snapshot(_));
        let asked = annotated(BEING_DELETED) || (by_hand && !bound);
        if asked && !annotated(BEING_CREATED) {
            return match content.deletion.as_str() {
                _ if is_in_group(content) => Step::Release,
                "Delete" if !content.status.handle.is_empty() => Step::Delete(content.status.handle.clone()),
                _ => Step::Release,
            };
        }
    } else if !content.meta.has_finalizer(CONTENT) {
        return Step::Hold;
    }
    // Until it is bound, it belongs to no snapshot.
    if content.status.ready || content.snapshot_uid.is_empty() {
        return Step::Nothing;
    }
    match &content.source {
        ContentSource::Volume(_) if is_in_group(content) => match content.status.handle.as_str() {
            "" => Step::Nothing,
            handle => Step::Look(handle.to_owned()),
        },
        ContentSource::Volume(volume) => Step::Create(volume.clone()),
        ContentSource::Snapshot(handle) => Step::Look(handle.clone()),
    }
}

impl SidecarReconciler {
    async fn create(&self, content: &SnapshotContent, volume: &str) -> Result<(), ReconcileError> {
        let class: Arc<SnapshotClass> = api::get(&*self.api, "", &content.class).await?;
        let request = v1::CreateSnapshotRequest {
            source_volume_id: volume.to_owned(),
            name: format!("snapshot-{}", content.snapshot_uid),
            secrets: secrets::read(&*self.api, secret(content).as_ref()).await?,
            parameters: of_driver(&class.parameters).into_iter().collect(),
        };
        self.annotate(content, BEING_CREATED, Some("yes")).await?;
        let answer = match self.service.create(request, self.config.call_limit).await {
            Ok(answer) => answer,
            Err(status) => {
                if !may_exist(status.code()) {
                    self.annotate(content, BEING_CREATED, None).await?;
                }
                let failure = ReconcileError::Driver(status);
                let message = format!(
                    "Failed to create snapshot: failed to take snapshot of the volume {volume}: {failure}"
                );
                self.refused(content, "SnapshotCreationFailed", message).await?;
                return Err(failure);
            }
        };
        self.note(content, answer.snapshot.unwrap_or_default(), Some(BEING_CREATED)).await
    }

    /// Writes the state of a snapshot that was not made from a claim here.
    async fn look(&self, content: &SnapshotContent, handle: String) -> Result<(), ReconcileError> {
        match self.state(handle).await {
            Ok(snapshot) => self.note(content, snapshot, None).await,
            Err(failure) => {
                let message = format!("Failed to check and update snapshot content: {failure}");
                self.refused(content, "SnapshotContentCheckandUpdateFailed", message).await?;
                Err(failure)
            }
        }
    }

    /// The state of a snapshot by its handle. A driver without lists is believed to have it.
    async fn state(&self, handle: String) -> Result<v1::Snapshot, ReconcileError> {
        if !self.config.lists {
            return Ok(v1::Snapshot { snapshot_id: handle, ready_to_use: true, ..v1::Snapshot::default() });
        }
        let request = v1::ListSnapshotsRequest { snapshot_id: handle.clone(), ..Default::default() };
        let answer =
            self.service.list(request, self.config.call_limit).await.map_err(ReconcileError::Driver)?;
        let entry = answer.entries.into_iter().next().and_then(|entry| entry.snapshot);
        entry.ok_or_else(|| ReconcileError::unfit(format!("can not find snapshot for snapshotID {handle}")))
    }

    async fn delete(&self, content: &SnapshotContent, handle: String) -> Result<(), ReconcileError> {
        let request = v1::DeleteSnapshotRequest {
            snapshot_id: handle,
            secrets: secrets::read(&*self.api, secret(content).as_ref()).await?,
        };
        if let Err(status) = self.service.delete(request, self.config.call_limit).await {
            let message = "Failed to delete snapshot".to_owned();
            self.write_event(content, Severity::Warning, "SnapshotDeleteError", message).await?;
            return Err(ReconcileError::Driver(status));
        }
        // Its finalizer goes last: as long as the driver may have it, its object is there.
        let body = PatchBody::ContentStatus(ContentStatus::default());
        self.api.patch(Patch::of(content.key(), body)).await?;
        Ok(())
    }

    /// Writes the state that the driver answered, and drops an annotation after that. It is looked at again until the
    /// snapshot is ready.
    async fn note(
        &self,
        content: &SnapshotContent,
        snapshot: v1::Snapshot,
        annotation: Option<&str>,
    ) -> Result<(), ReconcileError> {
        if snapshot.snapshot_id.is_empty() {
            return Err(ReconcileError::unfit("the driver answered a snapshot without an id"));
        }
        let size = u64::try_from(snapshot.size_bytes).ok().filter(|size| *size > 0);
        let status = ContentStatus {
            handle: snapshot.snapshot_id,
            ready: snapshot.ready_to_use,
            restore_size: size.map(Bytes),
            group: content.status.group.clone(),
            error: None,
        };
        if status != content.status {
            self.api.patch(Patch::of(content.key(), PatchBody::ContentStatus(status))).await?;
        }
        if let Some(annotation) = annotation {
            self.annotate(content, annotation, None).await?;
        }
        match snapshot.ready_to_use {
            true => Ok(()),
            false => {
                Err(ReconcileError::unfit(format!("snapshot content {} is not ready", content.meta.name)))
            }
        }
    }

    /// Says why the driver has not made it.
    async fn refused(
        &self,
        content: &SnapshotContent,
        reason: &str,
        message: String,
    ) -> Result<(), ReconcileError> {
        let status = ContentStatus { ready: false, error: Some(message.clone()), ..content.status.clone() };
        if status != content.status {
            self.api.patch(Patch::of(content.key(), PatchBody::ContentStatus(status))).await?;
        }
        self.write_event(content, Severity::Warning, reason, message).await
    }

    async fn annotate(
        &self,
        content: &SnapshotContent,
        annotation: &str,
        value: Option<&str>,
    ) -> Result<(), ReconcileError> {
        annotate(&*self.api, &content.key(), &content.meta, annotation, value).await
    }

    async fn write_event(
        &self,
        content: &SnapshotContent,
        severity: Severity,
        reason: &str,
        message: String,
    ) -> Result<(), ReconcileError> {
        let about = Reference::to(Kind::SnapshotContent, &content.meta);
        self.events.write(about, severity, reason, message).await
    }
}

fn secret(content: &SnapshotContent) -> Option<Namespaced> {
    SECRET.read(&content.meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A content of a volume that is bound and kept.
    fn content(change: impl FnOnce(&mut SnapshotContent)) -> SnapshotContent {
        let mut content = SnapshotContent {
            snapshot_uid: "1".to_owned(),
            deletion: "Delete".to_owned(),
            source: ContentSource::Volume("v".to_owned()),
            ..SnapshotContent::default()
        };
        content.meta.finalizers.push(CONTENT.to_owned());
        change(&mut content);
        content
    }

    fn mark(content: &mut SnapshotContent, annotation: &str) {
        content.meta.annotations.insert(annotation.to_owned(), "yes".to_owned());
    }

    fn deleted(content: &mut SnapshotContent) {
        content.meta.deleted = Some("now".to_owned());
        content.status.handle = "s".to_owned();
        mark(content, BEING_DELETED);
    }

    #[test]
    fn step_follows_from_state_and_deletion() {
        let create = Step::Create("v".to_owned());
        let rows = [
            ("not kept yet", content(|content| content.meta.finalizers.clear()), Step::Hold),
            ("new", content(|_| {}), create),
            ("cut, not ready", content(|c| c.status.handle = "s".to_owned()), Step::Create("v".to_owned())),
            ("ready", content(|c| c.status.ready = true), Step::Nothing),
            (
                "ready, and the controller has crashed before it wrote that it is created",
                content(|c| {
                    c.status.ready = true;
                    mark(c, BEING_CREATED);
                }),
                Step::Created,
            ),
            ("not bound", content(|c| c.snapshot_uid.clear()), Step::Nothing),
            (
                "written down by hand",
                content(|c| c.source = ContentSource::Snapshot("s".to_owned())),
                Step::Look("s".to_owned()),
            ),
            ("deleted with its snapshot", content(deleted), Step::Delete("s".to_owned())),
            (
                "deleted, and kept by its policy",
                content(|c| {
                    deleted(c);
                    c.deletion = "Retain".to_owned();
                }),
                Step::Release,
            ),
            (
                "deleted by the driver",
                content(|c| {
                    deleted(c);
                    c.status.handle.clear();
                }),
                Step::Release,
            ),
            (
                "deleted while the driver may be taking it",
                content(|c| {
                    deleted(c);
                    c.status.handle.clear();
                    mark(c, BEING_CREATED);
                }),
                Step::Create("v".to_owned()),
            ),
            ("of a group, before it is known", content(|c| mark(c, GROUP_HANDLE)), Step::Nothing),
            (
                "of a group",
                content(|c| {
                    mark(c, GROUP_HANDLE);
                    c.status.handle = "s".to_owned();
                }),
                Step::Look("s".to_owned()),
            ),
            (
                "of a group, deleted with its snapshot",
                content(|c| {
                    deleted(c);
                    c.status.group = "g".to_owned();
                }),
                Step::Release,
            ),
            (
                "deleted by a person, while its snapshot stays",
                content(|c| {
                    c.meta.deleted = Some("now".to_owned());
                    c.status.ready = true;
                }),
                Step::Nothing,
            ),
        ];
        for (row, content, step) in rows {
            assert_eq!(next(&content), step, "{row}");
        }
    }
}
