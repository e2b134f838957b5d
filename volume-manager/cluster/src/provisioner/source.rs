//! The data that a new volume starts with: a copy of another claim's volume, or of a snapshot
//! (docs/behaviour/12-copies.md, section 4).

use std::sync::Arc;

use api::storage::DataSource;
use api::{Claim, Key, Kind, PersistentSource, Resource, Snapshot, SnapshotContent, Volume};
use csi_proto::v1;
use csi_proto::v1::volume_content_source::{SnapshotSource, Type as Content, VolumeSource};

use super::{BEING_CLONED, BEING_MADE, ProvisionReconciler, asked};
use crate::ReconcileError;
use crate::found::{find, hold, release};

/// On a content: its volume's mode may be changed by a restored volume.
const MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

impl ProvisionReconciler {
    /// The content source of a claim's CreateVolume.
    pub(super) async fn content(
        &self,
        claim: &Claim,
    ) -> Result<Option<v1::VolumeContentSource>, ReconcileError> {
        let Some(wanted) = &claim.spec.data_source else { return Ok(None) };
        let source = match wanted.kind.as_str() {
            "PersistentVolumeClaim" => self.claim_source(claim, wanted).await?,
            "VolumeSnapshot" => self.snapshot_source(claim, wanted).await?,
            other => {
                return Err(ReconcileError::unfit(format!(
                    "{other} is no data source that can be copied here"
                )));
            }
        };
        Ok(Some(v1::VolumeContentSource { r#type: Some(source) }))
    }

    async fn snapshot_source(&self, claim: &Claim, wanted: &DataSource) -> Result<Content, ReconcileError> {
        if !self.config.snapshots {
            return Err(ReconcileError::unfit("CSI driver does not support snapshot restore"));
        }
        let key = Key::namespaced(Kind::Snapshot, &claim.meta.namespace, &wanted.name);
        let snapshot: Arc<Snapshot> = api::get(&*self.api, &key.namespace, &key.name).await?;
        let name = &wanted.name;
        if snapshot.meta.is_deleting() {
            return Err(ReconcileError::unfit(format!("snapshot {name} is currently being deleted")));
        }
        if !snapshot.status.ready || snapshot.status.content.is_empty() {
            return Err(ReconcileError::until(key, format!("snapshot {name} is not Ready")));
        }
        let content: Arc<SnapshotContent> = api::get(&*self.api, "", &snapshot.status.content).await?;
        if content.driver != self.config.driver {
            return Err(ReconcileError::unfit(format!(
                "snapshot {name} is of the driver {}",
                content.driver
            )));
        }
        let least = snapshot.status.restore_size.unwrap_or_default();
        if claim.spec.request < least {
            return Err(ReconcileError::unfit(format!(
                "requested volume size {} is less than the size {} for the source snapshot {name}",
                claim.spec.request.0, least.0
            )));
        }
        let may_change = content.meta.annotations.get(MODE_CHANGE).is_some_and(|value| value == "true");
        if content.source_mode.is_some_and(|mode| mode != claim.spec.mode) && !may_change {
            return Err(ReconcileError::unfit(format!(
                "requested volume {}/{} modifies the mode of the source volume but does not have permission to do \
                 so. {MODE_CHANGE} annotation is not present on snapshotcontent {}",
                claim.meta.namespace, claim.meta.name, content.meta.name
            )));
        }
        Ok(Content::Snapshot(SnapshotSource { snapshot_id: content.status.handle.clone() }))
    }

    async fn claim_source(&self, claim: &Claim, wanted: &DataSource) -> Result<Content, ReconcileError> {
        if !self.config.clones {
            return Err(ReconcileError::unfit("CSI driver does not support clone operations"));
        }
        let source: Arc<Claim> = api::get(&*self.api, &claim.meta.namespace, &wanted.name).await?;
        let key = source.key();
        if source.meta.is_deleting() && !source.meta.has_finalizer(BEING_CLONED) {
            return Err(ReconcileError::unfit(format!("the PVC {} is currently being deleted", wanted.name)));
        }
        if source.spec.volume.is_empty() || source.status.phase != api::ClaimPhase::Bound {
            return Err(ReconcileError::until(key, format!("the PVC {} is not bound", wanted.name)));
        }
        let volume: Arc<Volume> = api::get(&*self.api, "", &source.spec.volume).await?;
        let PersistentSource::Csi(csi) = &volume.source else {
            return Err(ReconcileError::unfit(format!(
                "the PVC {} has no volume of a CSI driver",
                wanted.name
            )));
        };
        if csi.driver.as_str() != self.config.driver {
            return Err(ReconcileError::unfit(format!(
                "the PVC {} is a volume of another driver",
                wanted.name
            )));
        }
        // The source may have grown since a first call, whose outcome is to be learned all the same.
        if claim.spec.request < volume.capacity && !claim.meta.has_finalizer(BEING_MADE) {
            return Err(ReconcileError::unfit(format!(
                "error, new PVC request must be greater than or equal in size to the specified PVC data source, \
                 requested {} but source is {}",
                claim.spec.request.0, volume.capacity.0
            )));
        }
        if claim.spec.mode != source.spec.mode {
            return Err(ReconcileError::unfit(format!("the PVC {} has another volumeMode", wanted.name)));
        }
        hold(&*self.api, &key, &source.meta, BEING_CLONED).await?;
        Ok(Content::Volume(VolumeSource { volume_id: csi.handle.to_string() }))
    }

    /// Lets a claim go that is being deleted, once no copy of its volume is being made.
    pub(super) async fn end_cloning(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(source) = find::<Claim>(&*self.api, key).await?.filter(|claim| asked::is_cloned(claim))
        else {
            return Ok(());
        };
        // No copy is made without news of its claim.
        match self.copies.has(key) {
            true => Ok(()),
            false => release(&*self.api, key, &source.meta, &[BEING_CLONED]).await,
        }
    }
}

/// The claim that a claim's volume is a copy of, until that is made.
pub(super) fn being_cloned(claim: &Claim) -> Option<Key> {
    cloned(claim).filter(|_| claim.spec.volume.is_empty())
}

/// The claim that a claim's volume is a copy of.
pub(super) fn cloned(claim: &Claim) -> Option<Key> {
    let source = claim.spec.data_source.as_ref().filter(|source| source.kind == "PersistentVolumeClaim")?;
    Some(Key::namespaced(Kind::Claim, &claim.meta.namespace, &source.name))
}
