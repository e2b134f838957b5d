//! Deletes a released volume through its driver, if its reclaim policy is Delete.

use api::names::Namespaced;
use api::{Attachment, Key, Kind, PersistentSource, Reference, Resource, Severity, Volume};
use csi_proto::v1;

use super::{FINALIZER, ProvisionReconciler};
use crate::found::{delete, find, release};
use crate::{ReconcileError, annotations, secrets};

/// Whether this driver provisioned the volume and now has to delete it.
pub(super) fn is_due(volume: &Volume, driver: &str) -> bool {
    let provisioned = volume.meta.annotations.get(annotations::PROVISIONED_BY).is_some_and(|by| by == driver);
    let is_done = volume.meta.is_deleting() && !volume.meta.has_finalizer(FINALIZER);
    provisioned && !is_done && volume.phase == "Released" && volume.reclaim == "Delete"
}

impl ProvisionReconciler {
    pub(super) async fn reclaim(&self, name: &str) -> Result<(), ReconcileError> {
        let key = Key::cluster(Kind::Volume, name);
        let Some(volume) = find::<Volume>(&*self.api, &key).await? else { return Ok(()) };
        if !is_due(&volume, &self.config.driver) {
            return Ok(());
        }
        if let Err(failure) = self.delete(&volume).await {
            let about = Reference::to(Kind::Volume, &volume.meta);
            self.events.write(about, Severity::Warning, "VolumeFailedDelete", failure.to_string()).await?;
            return Err(failure);
        }
        self.events.forget(&key);
        delete(&*self.api, &key).await?;
        // The finalizer goes last: the object stays as long as the driver may have the volume.
        let Some(volume) = find::<Volume>(&*self.api, &key).await? else { return Ok(()) };
        release(&*self.api, &key, &volume.meta, &[FINALIZER]).await
    }

    async fn delete(&self, volume: &Volume) -> Result<(), ReconcileError> {
        let PersistentSource::Csi(csi) = &volume.source else {
            return Err(ReconcileError::Foreign { volume: volume.meta.name.clone() });
        };
        for attachment in self.attached.to(&volume.key()) {
            // The attachment may have been deleted since its last change arrived here.
            let Some(attachment) = find::<Attachment>(&*self.api, &attachment).await? else { continue };
            let reason = format!(
                "persistentvolume {} is still attached to node {}",
                volume.meta.name, attachment.node
            );
            return Err(ReconcileError::until(attachment.key(), reason));
        }
        let annotation = |key: &str| volume.meta.annotations.get(key).cloned();
        let secret = annotation(annotations::DELETION_SECRET_NAMESPACE)
            .zip(annotation(annotations::DELETION_SECRET_NAME))
            .map(|(namespace, name)| Namespaced::new(namespace, name));
        let request = v1::DeleteVolumeRequest {
            volume_id: csi.handle.to_string(),
            secrets: secrets::read(&*self.api, secret.as_ref()).await?,
        };
        self.service.delete(request, self.config.call_limit).await.map_err(ReconcileError::Driver)?;
        Ok(())
    }
}
