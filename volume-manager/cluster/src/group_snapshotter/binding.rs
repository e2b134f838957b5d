//! Group snapshots and their contents are bound: each names the other. Contents are made for groups of claims, and the
//! group snapshot says what has become of its content.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::group_snapshot::{GroupContentSource, GroupSnapshotStatus, GroupSource};
use api::lookup::Lookup;
use api::{
    ApiSource, GroupSnapshot, GroupSnapshotContent, Key, Kind, Object, Patch, PatchBody, PersistentSource,
    Reference, Resource, Severity,
};
use async_trait::async_trait;

use super::{BOUND, content_name};
use crate::ReconcileError;
use crate::events::Events;
use crate::found::{find, hold};
use crate::reconciler::Reconciler;
use crate::snapshotter::display;

#[derive(Debug)]
pub(super) struct BindingReconciler {
    pub(super) api: Arc<dyn ApiSource>,
    events: Events,
    /// The volume of each driver and handle.
    volumes: Mutex<Lookup<(String, String), String>>,
}

#[async_trait]
impl Reconciler for BindingReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[
            Kind::GroupSnapshotClass,
            Kind::Volume,
            Kind::Claim,
            Kind::GroupSnapshotContent,
            Kind::GroupSnapshot,
        ]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        match after.or(before) {
            Some(Object::GroupSnapshot(group)) => vec![group.key()],
            Some(Object::GroupSnapshotContent(content)) => vec![group_key(content)],
            Some(Object::Volume(_)) => {
                let mut volumes = self.volumes();
                before.and_then(handle).iter().for_each(|handle| _ = volumes.remove(handle));
                let after = after.and_then(|after| Some((handle(after)?, after.meta().name.clone())));
                after.into_iter().for_each(|(handle, name)| _ = volumes.insert(handle, name));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(group) = find::<GroupSnapshot>(&*self.api, key).await? else {
            self.events.forget(key);
            return Ok(());
        };
        if group.meta.is_deleting() {
            return self.let_go(&group).await;
        }
        // Before there is a content: a group snapshot that goes meanwhile would leave it behind. With its own write the
        // group snapshot comes again.
        if hold(&*self.api, key, &group.meta, BOUND).await? {
            return Ok(());
        }
        match self.content(&group).await {
            Ok(content) => self.follow(&group, &content).await,
            Err(failure) => {
                self.refuse(&group, &failure).await?;
                Err(failure)
            }
        }
    }
}

/// The driver and the handle of a volume.
fn handle(object: &Object) -> Option<(String, String)> {
    let Object::Volume(volume) = object else { return None };
    let PersistentSource::Csi(csi) = &volume.source else { return None };
    Some((csi.driver.to_string(), csi.handle.to_string()))
}

/// The content of a group snapshot, as its name is known.
pub(super) fn expected_content(group: &GroupSnapshot) -> String {
    match &group.source {
        GroupSource::Content(name) => name.clone(),
        GroupSource::Claims(_) => content_name(group),
    }
}

/// Whether a content names this very group snapshot, or one of its name before the two are bound.
pub(super) fn names(content: &GroupSnapshotContent, group: &GroupSnapshot) -> bool {
    let meta = &group.meta;
    let same = content.group.namespace == meta.namespace && content.group.name == meta.name;
    same && (content.group_uid.is_empty() || content.group_uid == meta.uid)
}

fn group_key(content: &GroupSnapshotContent) -> Key {
    Key::namespaced(Kind::GroupSnapshot, &content.group.namespace, &content.group.name)
}

impl BindingReconciler {
    pub(super) fn new(api: Arc<dyn ApiSource>) -> Self {
        Self { events: Events::new(Arc::clone(&api)), api, volumes: Mutex::default() }
    }

    fn volumes(&self) -> MutexGuard<'_, Lookup<(String, String), String>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the volume with a driver's handle.
    pub(super) fn volume_with(&self, driver: &str, handle: &str) -> Option<String> {
        self.volumes().get(&(driver.to_owned(), handle.to_owned())).cloned()
    }

    /// The content that a group snapshot is bound to, made or bound if it is not yet.
    async fn content(&self, group: &GroupSnapshot) -> Result<Arc<GroupSnapshotContent>, ReconcileError> {
        let key = Key::cluster(Kind::GroupSnapshotContent, expected_content(group));
        let found = find::<GroupSnapshotContent>(&*self.api, &key).await?;
        match (&group.source, found) {
            (GroupSource::Claims(selector), None) if group.status.content.is_empty() => {
                self.make_content(group, selector).await
            }
            (_, None) => Err(ReconcileError::until(key, "VolumeGroupSnapshotContent is missing")),
            (source, Some(content)) => {
                let by_hand = matches!(content.source, GroupContentSource::Group { .. });
                if by_hand != matches!(source, GroupSource::Content(_)) {
                    let (is, expected) = match by_hand {
                        true => ("pre-provisioned", "dynamically provisioned"),
                        false => ("dynamically provisioned", "pre-provisioned"),
                    };
                    let name = &key.name;
                    let reason =
                        format!("VolumeGroupSnapshotContent {name} is {is} while expecting a {expected} one");
                    return Err(ReconcileError::until(key, reason));
                }
                if !names(&content, group) {
                    let name = &content.meta.name;
                    let reason =
                        format!("VolumeGroupSnapshotContent [{name}] is bound to a different group snapshot");
                    return Err(ReconcileError::until(key, reason));
                }
                self.bind(group, content).await
            }
        }
    }

    /// Writes the group snapshot's identity into a content that an administrator has written.
    async fn bind(
        &self,
        group: &GroupSnapshot,
        content: Arc<GroupSnapshotContent>,
    ) -> Result<Arc<GroupSnapshotContent>, ReconcileError> {
        if !content.group_uid.is_empty() {
            return Ok(content);
        }
        let mut bound = GroupSnapshotContent::clone(&content);
        bound.group_uid.clone_from(&group.meta.uid);
        let bound = self.api.update(bound.into_object()).await?;
        Ok(GroupSnapshotContent::from_object(bound).unwrap_or(content))
    }

    /// Writes the snapshots of a group that the driver has taken. The group snapshot says what has become of its content.
    async fn follow(
        &self,
        group: &GroupSnapshot,
        content: &GroupSnapshotContent,
    ) -> Result<(), ReconcileError> {
        if !group.status.ready && content.status.error.is_none() {
            self.make_members(group, content).await?;
        }
        let now = GroupSnapshotStatus {
            content: content.meta.name.clone(),
            ready: content.status.ready,
            error: content.status.error.clone(),
        };
        let key = group.key();
        if now != group.status {
            let body = PatchBody::GroupSnapshotStatus(now.clone());
            self.api.patch(Patch::of(key.clone(), body)).await?;
        }
        let name = display(&key);
        if !content.status.handle.is_empty() {
            let message = format!("GroupSnapshot {name} was successfully created by the CSI driver.");
            self.write_event(group, Severity::Normal, "GroupSnapshotCreated", message).await?;
        }
        if now.ready {
            let message = format!("GroupSnapshot {name} is ready to use.");
            self.write_event(group, Severity::Normal, "GroupSnapshotReady", message).await?;
        }
        Ok(())
    }

    /// Says why a group snapshot has no content.
    async fn refuse(&self, group: &GroupSnapshot, failure: &ReconcileError) -> Result<(), ReconcileError> {
        let made = matches!(group.source, GroupSource::Claims(_)) && group.status.content.is_empty();
        let text = failure.to_string();
        let (reason, message) = match made {
            true => (
                "GroupSnapshotContentCreationFailed",
                format!("failed to create group snapshot content with error {text}"),
            ),
            false if text.ends_with("is missing") => ("GroupSnapshotContentMissing", text),
            false if text.ends_with("provisioned one") => ("GroupSnapshotContentMismatch", text),
            false => ("GroupSnapshotContentMisbound", text),
        };
        let status =
            GroupSnapshotStatus { ready: false, error: Some(message.clone()), ..group.status.clone() };
        if status != group.status {
            self.api.patch(Patch::of(group.key(), PatchBody::GroupSnapshotStatus(status))).await?;
        }
        self.write_event(group, Severity::Warning, reason, message).await
    }

    pub(super) async fn write_event(
        &self,
        group: &GroupSnapshot,
        severity: Severity,
        reason: &str,
        message: String,
    ) -> Result<(), ReconcileError> {
        self.events.write(Reference::to(Kind::GroupSnapshot, &group.meta), severity, reason, message).await
    }
}
