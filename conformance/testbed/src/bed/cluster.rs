//! Claims, snapshots and classes that a case writes for the cluster's controllers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use api::group_snapshot::GroupSource;
use api::snapshot::SnapshotSource;
use api::storage::{ClaimSpec as Spec, ClaimTemplate, DataSource, Requirement};
use api::{
    AccessMode, AttributesClass, Bytes, Claim, ClaimPhase, GroupSnapshot, Key, Kind, Meta, Notification,
    PersistentSource, Pod, Severity, Snapshot, Volume, VolumeMode, VolumeSource,
};
use harness::api_server::Provisioned;
use harness::controllers::GrowError;

use super::{Bed, Result, StepError};
use crate::failure::chain;

const NAMESPACE: &str = "default";

/// The class of the volumes and snapshots that a case asks for.
const CLASS: &str = "volproof";

/// The class of the volumes that outlive their claims.
const RETAINING_CLASS: &str = "volproof-retain";

/// The time for the controllers: the limit of one of their calls, and a second try.
const LIMIT: Duration = Duration::from_secs(12);

/// The time for a volume that no pod has to be detached.
const DETACHED_WITHIN: Duration = Duration::from_secs(10);

/// The claims that a case leaves to the controllers.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    runs: Cell<bool>,
    claims: RefCell<BTreeSet<String>>,
}

impl Cluster {
    /// Whether the controllers made the volume of a claim.
    pub(super) fn has_made(&self, claim: &str) -> bool {
        self.claims.borrow().contains(claim)
    }

    pub(super) fn runs(&self) -> bool {
        self.runs.get()
    }
}

/// A claim that a case is about to write.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimSpec {
    pub(crate) name: String,
    pub(crate) block: bool,
    pub(crate) size: Option<u64>,
    /// The kind and the name of the source of the copy.
    pub(crate) source: Option<(&'static str, String)>,
    pub(crate) attributes_class: String,
    /// Whether the volume outlives the claim.
    pub(crate) retained: bool,
    /// The access mode, instead of ReadWriteOnce.
    pub(crate) mode: Option<AccessMode>,
}

impl Bed {
    /// Starts the controllers, with the classes that the driver's manifest describes.
    pub(crate) fn start_cluster(&self) -> Result {
        if self.made.cluster.runs.replace(true) {
            return Ok(());
        }
        let ours = |error: &(dyn std::error::Error + 'static)| StepError::ours(error);
        let class = self.class(CLASS, true).map_err(|error| ours(&error))?;
        self.api_server.create(class).map_err(|error| ours(&error))?;
        let mut class = self.class(RETAINING_CLASS, false).map_err(|error| ours(&error))?;
        "Retain".clone_into(&mut class.reclaim);
        self.api_server.create(class).map_err(|error| ours(&error))?;
        let class = self.snapshot_class(CLASS, true).map_err(|error| ours(&error))?;
        self.api_server.create(class).map_err(|error| ours(&error))?;
        let class = self.group_snapshot_class(CLASS, true).map_err(|error| ours(&error))?;
        self.api_server.create(class).map_err(|error| ours(&error))?;
        self.bind_volumes();
        Ok(())
    }

    /// The spec of a claim as the API has it.
    fn claim_spec(&self, spec: &ClaimSpec) -> Spec {
        let fs_type = self.fs_types().into_iter().next().unwrap_or_default();
        let source = spec.source.clone();
        Spec {
            access_modes: vec![spec.mode.unwrap_or(AccessMode::ReadWriteOnce)],
            request: Bytes(spec.size.unwrap_or_else(|| self.size_for(&fs_type, spec.block))),
            class: Some(if spec.retained { RETAINING_CLASS } else { CLASS }.to_owned()),
            attributes_class: spec.attributes_class.clone(),
            data_source: source.map(|(kind, name)| DataSource { kind: kind.to_owned(), name }),
            mode: if spec.block { VolumeMode::Block } else { VolumeMode::Filesystem },
            ..Spec::default()
        }
    }

    /// The claim that is to be made for a pod, with a volume of the driver.
    pub(crate) fn own_claim(&self, pod: &str, volume: &str) -> ClaimTemplate {
        let name = format!("{pod}-{volume}");
        self.made.cluster.claims.borrow_mut().insert(name);
        ClaimTemplate { spec: self.claim_spec(&ClaimSpec::default()), ..ClaimTemplate::default() }
    }

    /// The claims that the controllers make for a pod.
    pub(crate) fn own_claims(&self, pod: &Pod) -> Vec<String> {
        let claims = pod.volumes.iter().filter_map(|volume| match &volume.source {
            VolumeSource::Ephemeral { .. } => Some(format!("{}-{}", pod.meta.name, volume.name)),
            _ => None,
        });
        claims.filter(|claim| self.made.cluster.has_made(claim)).collect()
    }

    /// Waits until the claims that are made for a pod are bound. Deletes the pod otherwise, and them with it.
    pub(crate) async fn own_claims_are_bound(&self, pod: &str, claims: &[String]) -> Result {
        for claim in claims {
            if let Err(error) = self.volume_bound_to(claim).await {
                self.api_server.delete::<Pod>(NAMESPACE, pod).map_err(|error| StepError::ours(&error))?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits until the claim that was made for a pod is gone, and the driver has deleted its volume.
    pub(crate) async fn own_claim_is_gone(&self, pod: &str, volume: &str) -> Result {
        let name = format!("{pod}-{volume}");
        let key = Key::namespaced(Kind::Claim, NAMESPACE, &name);
        let gone = || self.api_server.get::<Claim>(NAMESPACE, &name).is_none().then_some(());
        self.reached(&key, "is not deleted", gone).await?;
        let is_its = |volume: &std::sync::Arc<Volume>| {
            volume.claim.as_ref().is_some_and(|reference| reference.claim.name == name)
        };
        let Some(volume) = self.api_server.list::<Volume>().into_iter().find(is_its) else { return Ok(()) };
        let name = volume.meta.name.clone();
        let gone = || self.api_server.get::<Volume>("", &name).is_none().then_some(());
        self.reached(&Key::cluster(Kind::Volume, &name), "is not deleted", gone).await
    }

    /// Writes a claim, and waits until it is bound to a volume of the driver.
    pub(crate) async fn bound_claim(&self, spec: &ClaimSpec) -> Result {
        let claim =
            Claim { meta: self.own_meta(&spec.name), spec: self.claim_spec(spec), ..Claim::default() };
        self.made.cluster.claims.borrow_mut().insert(spec.name.clone());
        self.api_server.create(claim).map_err(|error| StepError::ours(&error))?;
        let volume = self.volume_bound_to(&spec.name).await?;
        let object = self.api_server.get::<Volume>("", &volume);
        if let Some(PersistentSource::Csi(csi)) = object.map(|object| object.source.clone()) {
            let made = Provisioned { claim: spec.name.clone(), volume, handle: csi.handle.to_string() };
            self.made.volumes.borrow_mut().insert(spec.name.clone(), made);
        }
        Ok(())
    }

    /// Waits until a claim is bound. Returns its volume.
    async fn volume_bound_to(&self, claim: &str) -> Result<String> {
        let key = Key::namespaced(Kind::Claim, NAMESPACE, claim);
        let bound = || {
            let claim = self.api_server.get::<Claim>(NAMESPACE, claim)?;
            (claim.status.phase == ClaimPhase::Bound).then(|| claim.spec.volume.clone())
        };
        self.reached(&key, "is not bound", bound).await
    }

    /// Writes a snapshot of a claim, and waits until a volume can be made from it.
    pub(crate) async fn ready_snapshot(&self, name: &str, claim: &str) -> Result<Bytes> {
        let snapshot = Snapshot {
            meta: self.own_meta(name),
            source: SnapshotSource::Claim(claim.to_owned()),
            ..Snapshot::default()
        };
        self.api_server.create(snapshot).map_err(|error| StepError::ours(&error))?;
        let key = Key::namespaced(Kind::Snapshot, NAMESPACE, name);
        let ready = || {
            let status = self.api_server.get::<Snapshot>(NAMESPACE, name)?.status.clone();
            status.ready.then(|| status.restore_size.unwrap_or_default())
        };
        self.reached(&key, "is not ready to use", ready).await
    }

    /// Writes a group snapshot of claims, and waits until volumes can be made from all of its snapshots. Returns the
    /// name and the size of the snapshot of each claim.
    pub(crate) async fn ready_group(&self, name: &str, claims: &[&str]) -> Result<Vec<(String, Bytes)>> {
        let ours = |error: &(dyn std::error::Error + 'static)| StepError::ours(error);
        for claim in claims {
            let label = |claim: &mut Claim| _ = claim.meta.labels.insert(name.to_owned(), "yes".to_owned());
            self.api_server.change(NAMESPACE, claim, label).map_err(|error| ours(&error))?;
        }
        let is_labelled =
            Requirement { key: name.to_owned(), operator: "Exists".to_owned(), values: Vec::new() };
        let group = GroupSnapshot {
            meta: self.own_meta(name),
            source: GroupSource::Claims(vec![is_labelled]),
            ..GroupSnapshot::default()
        };
        self.api_server.create(group).map_err(|error| ours(&error))?;
        let key = Key::namespaced(Kind::GroupSnapshot, NAMESPACE, name);
        let ready = || self.api_server.get::<GroupSnapshot>(NAMESPACE, name)?.status.ready.then_some(());
        self.reached(&key, "is not ready to use", ready).await?;
        let mut members = Vec::new();
        for claim in claims {
            let of_claim = SnapshotSource::Claim((*claim).to_owned());
            let member = || {
                let mut all = self.api_server.list::<Snapshot>().into_iter();
                let member =
                    all.find(|snapshot| snapshot.status.group == name && snapshot.source == of_claim)?;
                let size = member.status.restore_size.unwrap_or_default();
                member.status.ready.then(|| (member.meta.name.clone(), size))
            };
            members.push(self.reached(&key, "has no ready snapshot of each claim", member).await?);
        }
        Ok(members)
    }

    /// Deletes a claim, a snapshot or a group snapshot, and waits until the driver has deleted its volume or snapshot.
    pub(crate) async fn deleted(&self, kind: Kind, name: &str) -> Result {
        let key = Key::namespaced(kind, NAMESPACE, name);
        let volume = self.api_server.get::<Claim>(NAMESPACE, name).map(|claim| claim.spec.volume.clone());
        let deleted = match kind {
            Kind::Snapshot => self.api_server.delete::<Snapshot>(NAMESPACE, name),
            Kind::GroupSnapshot => self.api_server.delete::<GroupSnapshot>(NAMESPACE, name),
            _ => self.api_server.delete::<Claim>(NAMESPACE, name),
        };
        deleted.map_err(|error| StepError::ours(&error))?;
        match (kind, volume) {
            (Kind::Claim, Some(volume)) => {
                let gone = || self.api_server.get::<Volume>("", &volume).is_none().then_some(());
                let of_volume = Key::cluster(Kind::Volume, &volume);
                self.reached(&of_volume, "is not deleted", gone).await
            }
            (Kind::GroupSnapshot, _) => {
                let is_left = |snapshot: &std::sync::Arc<Snapshot>| snapshot.status.group == name;
                let gone = || {
                    let is_gone = self.api_server.get::<GroupSnapshot>(NAMESPACE, name).is_none();
                    (is_gone && !self.api_server.list::<Snapshot>().iter().any(is_left)).then_some(())
                };
                self.reached(&key, "is not deleted", gone).await
            }
            _ => {
                let gone = || self.api_server.get::<Snapshot>(NAMESPACE, name).is_none().then_some(());
                self.reached(&key, "is not deleted", gone).await
            }
        }
    }

    /// Deletes the claim of a retained volume, and waits until the volume is released.
    pub(crate) async fn released(&self, claim: &str) -> Result {
        let volume = self.volume_of_claim(claim)?;
        self.api_server.delete::<Claim>(NAMESPACE, claim).map_err(|error| StepError::ours(&error))?;
        let released = || {
            let is_released = self.api_server.get::<Volume>("", &volume)?.phase == "Released";
            (is_released && self.api_server.get::<Claim>(NAMESPACE, claim).is_none()).then_some(())
        };
        self.reached(&Key::cluster(Kind::Volume, &volume), "is not released", released).await
    }

    /// Makes a released volume available, as an administrator does, and claims it by its name.
    pub(crate) async fn claimed_again(&self, claim: &str) -> Result {
        let volume = self.volume_of_claim(claim)?;
        let ours = |error: &(dyn std::error::Error + 'static)| StepError::ours(error);
        let freed = |volume: &mut Volume| volume.claim = None;
        self.api_server.change("", &volume, freed).map_err(|error| ours(&error))?;
        let spec = ClaimSpec { retained: true, size: Some(self.size(claim)), ..ClaimSpec::default() };
        let object = Claim {
            meta: self.own_meta(claim),
            spec: Spec { volume, ..self.claim_spec(&spec) },
            ..Claim::default()
        };
        self.api_server.create(object).map_err(|error| ours(&error))?;
        self.volume_bound_to(claim).await.map(drop)
    }

    /// Has a retained volume be deleted with its claim from now on, as an administrator does.
    pub(crate) fn is_retained_no_more(&self, claim: &str) -> Result {
        let volume = self.volume_of_claim(claim)?;
        let deleted = |volume: &mut Volume| "Delete".clone_into(&mut volume.reclaim);
        self.api_server.change("", &volume, deleted).map_err(|error| StepError::ours(&error))?;
        Ok(())
    }

    /// The volume that was made for a claim of the case.
    fn volume_of_claim(&self, claim: &str) -> Result<String> {
        let volumes = self.made.volumes.borrow();
        let made = volumes.get(claim).map(|made| made.volume.clone());
        made.ok_or_else(|| StepError::Broken(vec![format!("No volume was made for the claim `{claim}`.")]))
    }

    /// Has a claim name another class of attributes, and waits until its volume has them.
    pub(crate) async fn modified(&self, claim: &str, class: &str) -> Result {
        let name = |claim: &mut Claim| class.clone_into(&mut claim.spec.attributes_class);
        self.api_server.change(NAMESPACE, claim, name).map_err(|error| StepError::ours(&error))?;
        let key = Key::namespaced(Kind::Claim, NAMESPACE, claim);
        let has = || {
            let status = self.api_server.get::<Claim>(NAMESPACE, claim)?.status.clone();
            (status.attributes_class == class).then_some(())
        };
        self.reached(&key, &format!("does not have the attributes of `{class}`"), has).await
    }

    /// Writes a class with the manifest's `mutable_parameters`.
    pub(crate) fn write_attributes_class(&self, name: &str) -> Result {
        let class = AttributesClass {
            meta: Meta::named("", name),
            driver: self.driver_name().to_owned(),
            parameters: self.manifest().volume.mutable_parameters.clone(),
        };
        self.api_server.create(class).map(drop).map_err(|error| StepError::ours(&error))
    }

    /// Waits until an object reaches a state. The error has the controllers' last warning about the object.
    async fn reached<T>(&self, key: &Key, state: &str, done: impl Fn() -> Option<T>) -> Result<T> {
        let kinds: &[Kind] = match key.kind {
            // Its snapshots are ready, and gone, after it.
            Kind::GroupSnapshot => &[Kind::GroupSnapshot, Kind::Snapshot],
            _ => &[key.kind],
        };
        let reached = self.api_server.wait_for(kinds, done);
        let limit = LIMIT.min(self.limit);
        tokio::time::timeout(limit, reached).await.map_err(|_| {
            let warnings = self.api_server.list::<Notification>();
            let about = |event: &&std::sync::Arc<Notification>| {
                let is_warning = event.severity == Severity::Warning;
                is_warning && event.about.kind == key.kind && event.about.name == key.name
            };
            let last = warnings.iter().filter(about).max_by_key(|event| event.meta.created.clone());
            let warning = last.map(|event| format!("{}: {}", event.reason, event.message));
            let unreached = format!("The {} `{}` {state} after {} s.", key.kind, key.name, limit.as_secs());
            StepError::Broken(warning.into_iter().chain([unreached]).collect())
        })
    }

    /// Metadata with a UID that no other case has: names of volumes and snapshots are made from it.
    fn own_meta(&self, name: &str) -> Meta {
        let mut meta = Meta::named(NAMESPACE, name);
        meta.uid = format!("{name}{}", self.provisioner.tag());
        meta
    }

    /// Deletes what the controllers have made. Says what would not go.
    pub(super) async fn cluster_leaves(&self) -> Vec<String> {
        match self.made.cluster.runs() {
            true => self.claims_leave().await,
            false => Vec::new(),
        }
    }

    /// Grows a claim as a user does, and waits for the controller's part.
    pub(crate) async fn claim_grows(&self, claim: &str, size: u64) -> Result {
        self.ask_for(claim, size).await.map_err(|error| StepError::Broken(chain(&error)))
    }

    /// Has a claim ask for a size, and waits for the controller's part. Says whether the driver has refused it.
    pub(crate) async fn claim_is_refused(&self, claim: &str, size: u64) -> Result<bool> {
        match self.ask_for(claim, size).await {
            Ok(()) => Ok(false),
            Err(GrowError::Refused { .. }) => Ok(true),
            Err(error) => Err(StepError::Broken(chain(&error))),
        }
    }

    async fn ask_for(&self, claim: &str, size: u64) -> std::result::Result<(), GrowError> {
        if self.attaches() && !self.grows_online() {
            // The controller would be refused, and ask again, until the volume is detached.
            drop(tokio::time::timeout(DETACHED_WITHIN, self.detached()).await);
        }
        self.api_server.grow(claim, size).await
    }
}
