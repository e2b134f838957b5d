//! The content of a group snapshot of claims: made from the volumes of the claims and the class.

use std::sync::Arc;

use api::group_snapshot::GroupContentSource;
use api::storage::{CsiSource, Requirement};
use api::{
    Claim, ClaimPhase, GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent, Meta, PersistentSource,
    Resource, Severity, Volume,
};

use super::binding::BindingReconciler;
use super::{SECRET, content_name, parameters};
use crate::ReconcileError;
use crate::found::create;
use crate::snapshotter::display;

/// On a class: group snapshots that name none get it.
const IS_DEFAULT: &str = "groupsnapshot.storage.kubernetes.io/is-default-class";

impl BindingReconciler {
    /// Makes the content of a group snapshot of the claims with these labels.
    pub(super) async fn make_content(
        &self,
        group: &GroupSnapshot,
        selector: &[Requirement],
    ) -> Result<Arc<GroupSnapshotContent>, ReconcileError> {
        let volumes = self.volumes_of(group, selector).await?;
        let sources: Vec<&CsiSource> = volumes.iter().map(|volume| csi(volume)).collect::<Result<_, _>>()?;
        let class = self.class(group, &sources).await?;
        let foreign = sources.iter().zip(&volumes).find(|(csi, _)| csi.driver.as_str() != class.driver);
        if let Some((csi, volume)) = foreign {
            return Err(ReconcileError::unfit(format!(
                "Volume CSI driver ({}) mismatch with VolumeGroupSnapshotClass ({}) {}: {}",
                csi.driver,
                class.driver,
                display(&group.key()),
                volume.meta.name,
            )));
        }
        let (name, named) = (content_name(group), group.key().namespaced_name());
        let mut meta = Meta::named("", &name);
        let secret = parameters::secret(&class.parameters, parameters::TAKES, &named, &name);
        meta.annotations = SECRET.of(secret.map_err(|bad| ReconcileError::unfit(bad.to_string()))?);
        let content = GroupSnapshotContent {
            meta,
            group: named,
            group_uid: group.meta.uid.clone(),
            driver: class.driver.clone(),
            class: class.meta.name.clone(),
            deletion: class.deletion.clone(),
            source: GroupContentSource::Volumes(sources.iter().map(|csi| csi.handle.to_string()).collect()),
            ..GroupSnapshotContent::default()
        };
        let content = create(&*self.api, content).await?;
        let name = display(&group.key());
        let message = format!("Waiting for a group snapshot {name} to be created by the CSI driver.");
        self.write_event(group, Severity::Normal, "CreatingGroupSnapshot", message).await?;
        Ok(content)
    }

    /// The volumes of the claims that a group is of.
    async fn volumes_of(
        &self,
        group: &GroupSnapshot,
        selector: &[Requirement],
    ) -> Result<Vec<Arc<Volume>>, ReconcileError> {
        let claims = api::list_in::<Claim>(&*self.api, &group.meta.namespace).await?;
        let is_meant = |claim: &&Arc<Claim>| selector.iter().all(|one| one.matches(&claim.meta.labels));
        let mut volumes = Vec::new();
        for claim in claims.iter().filter(is_meant) {
            volumes.push(self.volume_of(claim).await?);
        }
        match volumes.is_empty() {
            true => Err(ReconcileError::unfit(
                "the label selector of the group snapshot is not applied to any PVC",
            )),
            false => Ok(volumes),
        }
    }

    async fn volume_of(&self, claim: &Claim) -> Result<Arc<Volume>, ReconcileError> {
        let name = &claim.meta.name;
        if claim.meta.is_deleting() {
            return Err(ReconcileError::until(claim.key(), format!("the PVC {name} is being deleted")));
        }
        if claim.status.phase != ClaimPhase::Bound || claim.spec.volume.is_empty() {
            let reason =
                format!("the PVC {name} is not yet bound to a PV, will not attempt to take a group snapshot");
            return Err(ReconcileError::until(claim.key(), reason));
        }
        let volume: Arc<Volume> = api::get(&*self.api, "", &claim.spec.volume).await?;
        match volume.claim.as_ref().is_some_and(|reference| reference.uid == claim.meta.uid) {
            true => Ok(volume),
            false => Err(ReconcileError::until(claim.key(), "claim in dataSource not bound or invalid")),
        }
    }

    /// The class that a group snapshot names, or the default one of its volumes' driver.
    async fn class(
        &self,
        group: &GroupSnapshot,
        sources: &[&CsiSource],
    ) -> Result<Arc<GroupSnapshotClass>, ReconcileError> {
        if let Some(name) = &group.class {
            return Ok(api::get(&*self.api, "", name).await?);
        }
        let is_default = |class: &Arc<GroupSnapshotClass>| {
            let marked = class.meta.annotations.get(IS_DEFAULT).is_some_and(|value| value == "true");
            marked && sources.first().is_some_and(|csi| csi.driver.as_str() == class.driver)
        };
        let classes = api::list::<GroupSnapshotClass>(&*self.api).await?;
        let mut defaults: Vec<_> = classes.into_iter().filter(is_default).collect();
        match (defaults.pop(), defaults.len()) {
            (Some(class), 0) => Ok(class),
            (None, _) => Err(ReconcileError::unfit("cannot find default group snapshot class")),
            (Some(_), others) => {
                Err(ReconcileError::unfit(format!("{} default snapshot classes were found", others + 1)))
            }
        }
    }
}

fn csi(volume: &Volume) -> Result<&CsiSource, ReconcileError> {
    match &volume.source {
        PersistentSource::Csi(csi) => Ok(csi),
        _ => Err(ReconcileError::unfit(format!("Cannot snapshot a non-CSI volume: {}", volume.meta.name))),
    }
}
