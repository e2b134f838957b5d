//! One step of an attachment or a volume: reads the object, carries out its next step and writes the result to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::storage::CsiSource;
use api::{ApiSource, Attachment, CsiNode, Key, Kind, Meta, Patch, PatchBody, PersistentSource, Volume};
use csi_proto::v1;

use super::AttacherConfig;
use super::decide::{self, Step};
use crate::found::find;
use crate::references::References;
use crate::{AttachService, ReconcileError, capability, secrets};

/// The annotation with the driver's id of the node: the node may be gone when its volume is detached.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// The configuration and clients of the attacher's tasks.
#[derive(Debug)]
pub(super) struct AttachReconciler {
    pub(super) config: AttacherConfig,
    pub(super) api: Arc<dyn ApiSource>,
    pub(super) finalizer: String,
    service: Arc<dyn AttachService>,
    /// The attachments of each volume.
    pub(super) attached: References,
}

impl AttachReconciler {
    pub(super) fn new(
        config: AttacherConfig,
        api: Arc<dyn ApiSource>,
        service: Arc<dyn AttachService>,
    ) -> Self {
        let finalizer = decide::finalizer(&config.driver);
        Self { config, api, finalizer, service, attached: References::default() }
    }

    /// Carries out the next step of an attachment.
    pub(super) async fn serve(&self, name: &str) -> Result<(), ReconcileError> {
        let Some(attachment) = find::<Attachment>(&*self.api, &Key::cluster(Kind::Attachment, name)).await?
        else {
            return Ok(());
        };
        match decide::next(&attachment, &self.config.driver, &self.finalizer) {
            Step::Attach => self.attach(&attachment).await,
            Step::Detach => self.detach(&attachment).await,
            Step::Nothing => Ok(()),
        }
    }

    /// Removes the finalizer of a volume that is being deleted and has no attachment.
    pub(super) async fn release(&self, name: &str) -> Result<(), ReconcileError> {
        let key = Key::cluster(Kind::Volume, name);
        let Some(volume) = find::<Volume>(&*self.api, &key).await? else { return Ok(()) };
        let has_finalizer = volume.meta.finalizers.contains(&self.finalizer);
        if !has_finalizer || !volume.meta.is_deleting() {
            return Ok(());
        }
        // `attached` is complete: a volume is attached only after its attachment was read.
        match self.attached.has(&key) {
            true => Ok(()),
            false => self.drop_finalizer(key).await,
        }
    }

    async fn attach(&self, attachment: &Attachment) -> Result<(), ReconcileError> {
        let result = match self.config.publishes {
            true => self.publish(attachment).await,
            // A driver without ControllerPublishVolume is not called.
            false => Ok(BTreeMap::new()),
        };
        let (attached, metadata, attach_error) = match &result {
            Ok(context) => (true, context.clone(), None),
            Err(failure) => (false, BTreeMap::new(), Some(failure.as_error())),
        };
        let detach_error = attachment.detach_error.clone();
        let status = PatchBody::AttachmentStatus { attached, metadata, attach_error, detach_error };
        self.patch(attachment, status).await?;
        result.map(drop)
    }

    async fn publish(&self, attachment: &Attachment) -> Result<BTreeMap<String, String>, ReconcileError> {
        let volume: Arc<Volume> = api::get(&*self.api, "", &attachment.volume).await?;
        if volume.meta.is_deleting() {
            return Err(ReconcileError::Leaving { volume: attachment.volume.clone() });
        }
        let csi = self.source(&volume)?;
        // Before the call: after it the volume may be attached, and both objects have to stay until it is detached.
        self.add_finalizer(Key::cluster(Kind::Volume, &volume.meta.name), &volume.meta).await?;
        let node_id = self.node_id(attachment).await?;
        let annotations = BTreeMap::from([(NODE_ID.to_owned(), Some(node_id.clone()))]);
        self.patch(attachment, PatchBody::Metadata { labels: BTreeMap::new(), annotations }).await?;
        self.add_finalizer(Key::cluster(Kind::Attachment, &attachment.meta.name), &attachment.meta).await?;
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: csi.handle.to_string(),
            node_id,
            volume_capability: Some(capability::of_volume(&volume, csi, self.config.fine_modes)),
            readonly: csi.read_only && self.config.publishes_read_only,
            secrets: secrets::read(&*self.api, csi.controller_publish_secret.as_deref()).await?,
            volume_context: csi.attributes.clone().into_iter().collect(),
        };
        let answer =
            self.service.publish(request, self.config.call_limit).await.map_err(ReconcileError::Driver)?;
        Ok(answer.publish_context.into_iter().collect())
    }

    async fn detach(&self, attachment: &Attachment) -> Result<(), ReconcileError> {
        if self.config.publishes
            && let Err(failure) = self.unpublish(attachment).await
        {
            let status = PatchBody::AttachmentStatus {
                attached: attachment.attached,
                metadata: attachment.metadata.clone(),
                attach_error: attachment.attach_error.clone(),
                detach_error: Some(failure.as_error()),
            };
            self.patch(attachment, status).await?;
            return Err(failure);
        }
        self.drop_finalizer(Key::cluster(Kind::Attachment, &attachment.meta.name)).await
    }

    async fn unpublish(&self, attachment: &Attachment) -> Result<(), ReconcileError> {
        let volume: Arc<Volume> = api::get(&*self.api, "", &attachment.volume).await?;
        let csi = self.source(&volume)?;
        let request = v1::ControllerUnpublishVolumeRequest {
            volume_id: csi.handle.to_string(),
            node_id: match attachment.meta.annotations.get(NODE_ID) {
                Some(node_id) => node_id.clone(),
                None => self.node_id(attachment).await?,
            },
            secrets: secrets::read(&*self.api, csi.controller_publish_secret.as_deref()).await?,
        };
        self.service.unpublish(request, self.config.call_limit).await.map_err(ReconcileError::Driver)?;
        Ok(())
    }

    fn source<'a>(&self, volume: &'a Volume) -> Result<&'a CsiSource, ReconcileError> {
        match &volume.source {
            PersistentSource::Csi(csi) if csi.driver.as_str() == self.config.driver => Ok(csi),
            _ => Err(ReconcileError::Foreign { volume: volume.meta.name.clone() }),
        }
    }

    /// The driver's id of an attachment's node.
    async fn node_id(&self, attachment: &Attachment) -> Result<String, ReconcileError> {
        let node: Arc<CsiNode> = api::get(&*self.api, "", &attachment.node).await?;
        let driver = node.drivers.iter().find(|driver| driver.name == self.config.driver);
        driver.map(|driver| driver.node_id.clone()).ok_or_else(|| ReconcileError::Unregistered {
            node: attachment.node.clone(),
            driver: self.config.driver.clone(),
        })
    }

    async fn add_finalizer(&self, key: Key, meta: &Meta) -> Result<(), ReconcileError> {
        if meta.finalizers.contains(&self.finalizer) {
            return Ok(());
        }
        let finalizers = meta.finalizers.iter().cloned().chain([self.finalizer.clone()]).collect();
        self.api.patch(Patch::of(key, PatchBody::Finalizers(finalizers))).await?;
        Ok(())
    }

    async fn drop_finalizer(&self, key: Key) -> Result<(), ReconcileError> {
        // Another controller may have added or dropped its finalizer during the call to the driver.
        let object = self.api.get(&key).await?;
        let others = object.meta().finalizers.iter().filter(|kept| **kept != self.finalizer);
        let body = PatchBody::Finalizers(others.cloned().collect());
        self.api.patch(Patch::of_version(key, object.meta(), body)).await?;
        Ok(())
    }

    async fn patch(&self, attachment: &Attachment, body: PatchBody) -> Result<(), ReconcileError> {
        let key = Key::cluster(Kind::Attachment, &attachment.meta.name);
        self.api.patch(Patch::of(key, body)).await?;
        Ok(())
    }
}
