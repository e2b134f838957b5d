//! The content of a snapshot of a claim: made from the claim's volume and the class, and its claim kept until it is cut.

use std::sync::Arc;

use api::names::Namespaced;
use api::snapshot::ContentSource;
use api::storage::CsiSource;
use api::{
    Claim, ClaimPhase, Key, Meta, PersistentSource, Resource, Severity, Snapshot, SnapshotClass,
    SnapshotContent, Volume,
};

use super::binding::{BindingReconciler, source_claim};
use super::{SECRET, SOURCE_CLAIM, content_name, display, parameters};
use crate::ReconcileError;
use crate::found::{create, find, hold, release};

/// On a class: snapshots that name none get it.
const IS_DEFAULT: &str = "snapshot.storage.kubernetes.io/is-default-class";

impl BindingReconciler {
    /// Makes the content of a snapshot of a claim.
    pub(super) async fn make_content(
        &self,
        snapshot: &Snapshot,
        claim: &str,
    ) -> Result<Arc<SnapshotContent>, ReconcileError> {
        let claim: Arc<Claim> = api::get(&*self.api, &snapshot.meta.namespace, claim).await?;
        if claim.meta.is_deleting() {
            return Err(ReconcileError::unfit(format!("the PVC {} is being deleted", claim.meta.name)));
        }
        let volume = self.volume_of(&claim).await?;
        let PersistentSource::Csi(csi) = &volume.source else {
            return Err(ReconcileError::unfit(format!(
                "cannot find CSI PersistentVolumeSource for volume {}",
                volume.meta.name
            )));
        };
        let class = self.class(snapshot, csi).await?;
        hold(&*self.api, &claim.key(), &claim.meta, SOURCE_CLAIM).await?;
        let mut meta = Meta::named("", content_name(snapshot));
        meta.annotations = SECRET
            .of(parameters::secret(&class, snapshot).map_err(|bad| ReconcileError::unfit(bad.to_string()))?);
        let content = SnapshotContent {
            meta,
            snapshot: Namespaced::new(&snapshot.meta.namespace, &snapshot.meta.name),
            snapshot_uid: snapshot.meta.uid.clone(),
            driver: class.driver.clone(),
            class: class.meta.name.clone(),
            deletion: class.deletion.clone(),
            source: ContentSource::Volume(csi.handle.to_string()),
            source_mode: volume.mode,
            ..SnapshotContent::default()
        };
        let content = create(&*self.api, content).await?;
        let message =
            format!("Waiting for a snapshot {} to be created by the CSI driver.", display(&snapshot.key()));
        self.write_event(snapshot, Severity::Normal, "CreatingSnapshot", message).await?;
        Ok(content)
    }

    async fn volume_of(&self, claim: &Claim) -> Result<Arc<Volume>, ReconcileError> {
        if claim.status.phase != ClaimPhase::Bound || claim.spec.volume.is_empty() {
            let reason = format!(
                "the PVC {} is not yet bound to a PV, will not attempt to take a snapshot",
                claim.meta.name
            );
            return Err(ReconcileError::until(claim.key(), reason));
        }
        Ok(api::get(&*self.api, "", &claim.spec.volume).await?)
    }

    /// The class that a snapshot names, or the default one of its volume's driver.
    async fn class(
        &self,
        snapshot: &Snapshot,
        csi: &CsiSource,
    ) -> Result<Arc<SnapshotClass>, ReconcileError> {
        let driver = csi.driver.as_str();
        let Some(name) = &snapshot.class else {
            let is_default = |class: &Arc<SnapshotClass>| {
                let marked = class.meta.annotations.get(IS_DEFAULT).is_some_and(|value| value == "true");
                marked && class.driver == driver
            };
            let classes = api::list::<SnapshotClass>(&*self.api).await?;
            let mut defaults: Vec<_> = classes.into_iter().filter(is_default).collect();
            return match (defaults.pop(), defaults.len()) {
                (Some(class), 0) => Ok(class),
                (None, _) => Err(ReconcileError::unfit("cannot find default snapshot class")),
                (Some(_), others) => {
                    Err(ReconcileError::unfit(format!("{} default snapshot classes were found", others + 1)))
                }
            };
        };
        let class: Arc<SnapshotClass> = api::get(&*self.api, "", name).await?;
        if class.driver != driver {
            return Err(ReconcileError::unfit(format!(
                "VolumeSnapshotClass {name} is of the driver {}, and the volume is of {driver}",
                class.driver
            )));
        }
        Ok(class)
    }

    /// Lets the source of a snapshot go, unless another snapshot of it is not finished.
    pub(super) async fn release_claim(&self, snapshot: &Snapshot) -> Result<(), ReconcileError> {
        let Some(key) = source_claim(snapshot) else { return Ok(()) };
        self.release_unless(&key, || self.unfinished.has_other(&key, &snapshot.key())).await
    }

    /// Lets a claim go whose last unfinished snapshot is gone.
    pub(super) async fn release_source(&self, key: &Key) -> Result<(), ReconcileError> {
        self.release_unless(key, || self.unfinished.has(key)).await
    }

    async fn release_unless(&self, key: &Key, is_kept: impl Fn() -> bool) -> Result<(), ReconcileError> {
        let Some(claim) = find::<Claim>(&*self.api, key).await? else { return Ok(()) };
        match is_kept() {
            true => Ok(()),
            false => release(&*self.api, key, &claim.meta, &[SOURCE_CLAIM]).await,
        }
    }
}
