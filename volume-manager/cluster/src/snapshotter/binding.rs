//! Snapshots and their contents are bound: each names the other. Contents are made for snapshots of claims, and the
//! snapshot says what has become of its content.

use std::sync::Arc;

use api::group_snapshot::GroupMember;
use api::snapshot::{ContentSource, SnapshotSource, SnapshotStatus};
use api::{
    ApiSource, Claim, Key, Kind, Object, Patch, PatchBody, Reference, Resource, Severity, Snapshot,
    SnapshotContent,
};
use async_trait::async_trait;

use super::{AS_SOURCE, BOUND, content_name, display, group_of};
use crate::ReconcileError;
use crate::events::Events;
use crate::found::{find, hold};
use crate::reconciler::Reconciler;
use crate::references::References;

/// The kinds that are followed.
pub(super) const KINDS: &[Kind] = &[Kind::SnapshotClass, Kind::Claim, Kind::SnapshotContent, Kind::Snapshot];
/// The kinds that are followed where snapshots may be part of a group.
pub(super) const KINDS_WITH_GROUPS: &[Kind] =
    &[Kind::SnapshotClass, Kind::Claim, Kind::GroupSnapshot, Kind::SnapshotContent, Kind::Snapshot];

#[derive(Debug)]
pub(super) struct BindingReconciler {
    kinds: &'static [Kind],
    pub(super) api: Arc<dyn ApiSource>,
    pub(super) events: Events,
    /// The snapshots of each claim that are not ready.
    pub(super) unfinished: References,
}

#[async_trait]
impl Reconciler for BindingReconciler {
    fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        match after.or(before) {
            Some(Object::Snapshot(snapshot)) => {
                let source = before.and_then(unfinished);
                self.unfinished.replace(&snapshot.key(), source.clone(), after.and_then(unfinished));
                // Two that go at once may each have seen the other.
                let freed = source.filter(|claim| after.is_none() && !self.unfinished.has(claim));
                std::iter::once(snapshot.key()).chain(freed).collect()
            }
            Some(Object::SnapshotContent(content)) => vec![snapshot_key(content)],
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        if key.kind == Kind::Claim {
            return self.release_source(key).await;
        }
        let Some(snapshot) = find::<Snapshot>(&*self.api, key).await? else {
            self.events.forget(key);
            return Ok(());
        };
        if snapshot.meta.is_deleting() {
            return self.let_go(&snapshot).await;
        }
        // With its own write the snapshot comes again.
        if hold(&*self.api, key, &snapshot.meta, AS_SOURCE).await? {
            return Ok(());
        }
        let content = match self.content(&snapshot).await {
            Ok(content) => content,
            Err(failure) => {
                // That of a snapshot of a group is about to be written.
                if group_of(&snapshot).is_none() {
                    self.refuse(&snapshot, &failure).await?;
                }
                return Err(failure);
            }
        };
        if content.deletion == "Delete" && hold(&*self.api, key, &snapshot.meta, BOUND).await? {
            return Ok(());
        }
        self.follow(&snapshot, &content).await
    }
}

/// The content of a snapshot, as its name is known.
pub(super) fn expected_content(snapshot: &Snapshot) -> String {
    match &snapshot.source {
        SnapshotSource::Content(name) => name.clone(),
        SnapshotSource::Claim(_) if group_of(snapshot).is_some() => {
            GroupMember::content_of(&snapshot.meta.name)
        }
        SnapshotSource::Claim(_) => content_name(snapshot),
    }
}

/// Whether a content names this very snapshot, or one of its name before the two are bound.
pub(super) fn names(content: &SnapshotContent, snapshot: &Snapshot) -> bool {
    let meta = &snapshot.meta;
    let same = content.snapshot.namespace == meta.namespace && content.snapshot.name == meta.name;
    same && (content.snapshot_uid.is_empty() || content.snapshot_uid == meta.uid)
}

fn snapshot_key(content: &SnapshotContent) -> Key {
    Key::namespaced(Kind::Snapshot, &content.snapshot.namespace, &content.snapshot.name)
}

/// The claim of a snapshot that is not ready.
fn unfinished(object: &Object) -> Option<Key> {
    let Object::Snapshot(snapshot) = object else { return None };
    source_claim(snapshot).filter(|_| !snapshot.status.ready)
}

/// The claim that a snapshot is taken of.
pub(super) fn source_claim(snapshot: &Snapshot) -> Option<Key> {
    match &snapshot.source {
        SnapshotSource::Claim(name) => Some(Key::namespaced(Kind::Claim, &snapshot.meta.namespace, name)),
        SnapshotSource::Content(_) => None,
    }
}

impl BindingReconciler {
    pub(super) fn new(kinds: &'static [Kind], api: Arc<dyn ApiSource>) -> Self {
        Self { kinds, events: Events::new(Arc::clone(&api)), api, unfinished: References::default() }
    }

    /// The content that a snapshot is bound to, made or bound if it is not yet.
    async fn content(&self, snapshot: &Snapshot) -> Result<Arc<SnapshotContent>, ReconcileError> {
        let key = Key::cluster(Kind::SnapshotContent, expected_content(snapshot));
        let found = find::<SnapshotContent>(&*self.api, &key).await?;
        match (&snapshot.source, found) {
            (SnapshotSource::Claim(claim), None)
                if snapshot.status.content.is_empty() && group_of(snapshot).is_none() =>
            {
                self.make_content(snapshot, claim).await
            }
            (_, None) => Err(ReconcileError::until(key, "VolumeSnapshotContent is missing")),
            (source, Some(content)) => {
                let by_hand = matches!(content.source, ContentSource::Snapshot(_));
                if by_hand != matches!(source, SnapshotSource::Content(_)) {
                    let reason = format!("VolumeSnapshotContent {} has a source of the other kind", key.name);
                    return Err(ReconcileError::until(key, reason));
                }
                if !names(&content, snapshot) {
                    let reason = format!(
                        "VolumeSnapshotContent [{}] is bound to a different snapshot",
                        content.meta.name
                    );
                    return Err(ReconcileError::until(key, reason));
                }
                self.bind(snapshot, content).await
            }
        }
    }

    /// Writes the snapshot's identity into a content that an administrator has written.
    async fn bind(
        &self,
        snapshot: &Snapshot,
        content: Arc<SnapshotContent>,
    ) -> Result<Arc<SnapshotContent>, ReconcileError> {
        if !content.snapshot_uid.is_empty() {
            return Ok(content);
        }
        let mut bound = SnapshotContent::clone(&content);
        bound.snapshot_uid.clone_from(&snapshot.meta.uid);
        let bound = self.api.update(bound.into_object()).await?;
        Ok(SnapshotContent::from_object(bound).unwrap_or(content))
    }

    /// The snapshot says what has become of its content.
    async fn follow(&self, snapshot: &Snapshot, content: &SnapshotContent) -> Result<(), ReconcileError> {
        let before = &snapshot.status;
        let now = SnapshotStatus {
            content: content.meta.name.clone(),
            ready: content.status.ready,
            restore_size: content.status.restore_size,
            group: group_of(snapshot).map(|group| group.name.clone()).unwrap_or_default(),
            error: content.status.error.clone(),
        };
        let key = snapshot.key();
        let name = display(&key);
        if now != *before {
            let body = PatchBody::SnapshotStatus(now.clone());
            self.api.patch(Patch::of(key.clone(), body)).await?;
        }
        if !content.status.handle.is_empty() {
            let message = format!("Snapshot {name} was successfully created by the CSI driver.");
            self.write_event(snapshot, Severity::Normal, "SnapshotCreated", message).await?;
        }
        if now.ready {
            self.write_event(
                snapshot,
                Severity::Normal,
                "SnapshotReady",
                format!("Snapshot {name} is ready to use."),
            )
            .await?;
            self.release_claim(snapshot).await?;
        }
        Ok(())
    }

    /// Says why a snapshot has no content.
    async fn refuse(&self, snapshot: &Snapshot, failure: &ReconcileError) -> Result<(), ReconcileError> {
        let made = matches!(snapshot.source, SnapshotSource::Claim(_)) && snapshot.status.content.is_empty();
        let (reason, message) = match made {
            true => (
                "SnapshotContentCreationFailed",
                format!("Failed to create snapshot content with error {failure}"),
            ),
            false if failure.to_string().ends_with("is missing") => {
                ("SnapshotContentMissing", failure.to_string())
            }
            false => ("SnapshotContentMisbound", failure.to_string()),
        };
        let status = SnapshotStatus { error: Some(message.clone()), ..snapshot.status.clone() };
        if status != snapshot.status {
            self.api.patch(Patch::of(snapshot.key(), PatchBody::SnapshotStatus(status))).await?;
        }
        self.write_event(snapshot, Severity::Warning, reason, message).await
    }

    pub(super) async fn write_event(
        &self,
        snapshot: &Snapshot,
        severity: Severity,
        reason: &str,
        message: String,
    ) -> Result<(), ReconcileError> {
        self.events.write(Reference::to(Kind::Snapshot, &snapshot.meta), severity, reason, message).await
    }

    /// The claims of a snapshot's namespace.
    pub(super) async fn claims_beside(&self, snapshot: &Snapshot) -> Result<Vec<Arc<Claim>>, ReconcileError> {
        Ok(api::list_in(&*self.api, &snapshot.meta.namespace).await?)
    }
}
