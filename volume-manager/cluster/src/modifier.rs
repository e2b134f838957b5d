//! The modifier: has a driver change the attributes of volumes whose claims name another class of attributes
//! (docs/behaviour/12-copies.md, section 5).

mod decide;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::Clock;
use api::patch::ClaimStatusPatch;
use api::storage::{Condition, CsiSource, ModifyProgress, Modifying};
use api::timely::Timely;
use api::{
    ApiSource, AttributesClass, Claim, Key, Kind, Object, Patch, PatchBody, PersistentSource, Reference,
    Resource, Severity, Volume,
};
use async_trait::async_trait;
use csi_proto::v1;
use tonic::{Code, Status};

use crate::events::Events;
use crate::found::find;
use crate::queue::Pauses;
use crate::reconcile_error::is_unknown;
use crate::reconciler::{Reconciler, Running};
use crate::{ModifyService, ReconcileError, secrets};
use decide::{Asked, next};

/// The longest pause before what failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The conditions of a claim whose volume is modified.
const MODIFYING: &str = "ModifyingVolume";
const ERROR: &str = "ModifyVolumeError";

/// The conditions that no other controller writes.
pub(crate) const OWN: [&str; 2] = [MODIFYING, ERROR];

/// The driver of a modifier, and the modifier's settings.
#[derive(Debug, Clone)]
pub struct ModifierConfig {
    pub driver: String,
    /// The limit of each call.
    pub call_limit: Duration,
    /// The pause after a first failure. It doubles with each one that follows.
    pub first_pause: Duration,
}

impl ModifierConfig {
    /// A modifier with the limits that the external resizer has by default.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            call_limit: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
        }
    }
}

/// A running modifier. It stops when this is dropped.
#[derive(Debug)]
pub struct Modifier {
    _running: Running,
}

impl Modifier {
    /// Starts a modifier on the current runtime.
    pub fn start(
        config: ModifierConfig,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        service: Arc<dyn ModifyService>,
    ) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let pauses = Pauses { first: config.first_pause, longest: LONGEST_PAUSE };
        let events = Events::new(Arc::clone(&api));
        let reconciler =
            ModifyReconciler { config, api: Arc::clone(&api), events, service, refused: Mutex::default() };
        Self { _running: Running::start(reconciler, api, clock, pauses) }
    }
}

#[derive(Debug)]
struct ModifyReconciler {
    config: ModifierConfig,
    api: Arc<dyn ApiSource>,
    events: Events,
    service: Arc<dyn ModifyService>,
    /// The claims whose last call was certainly refused. After a restart no outcome is known.
    refused: Mutex<BTreeSet<Key>>,
}

#[async_trait]
impl Reconciler for ModifyReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::AttributesClass, Kind::Volume, Kind::Claim]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        let Some(Object::Claim(claim)) = after else { return Vec::new() };
        let before = before.and_then(|before| match before {
            Object::Claim(before) => Some(Asked::of(before)),
            _ => None,
        });
        match before.is_none_or(|before| before != Asked::of(claim)) {
            true => vec![claim.key()],
            false => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(claim) = find::<Claim>(&*self.api, key).await? else {
            self.refused().remove(key);
            self.events.forget(key);
            return Ok(());
        };
        let certain = self.refused().contains(key);
        let Some(target) = next(&claim, certain) else { return Ok(()) };
        let volume: Arc<Volume> = api::get(&*self.api, "", &claim.spec.volume).await?;
        match &volume.source {
            PersistentSource::Csi(csi) if csi.driver.as_str() == self.config.driver => {
                self.modify(&claim, &volume, csi, target).await
            }
            _ => Ok(()),
        }
    }
}

impl ModifyReconciler {
    fn refused(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn modify(
        &self,
        claim: &Claim,
        volume: &Volume,
        csi: &CsiSource,
        target: String,
    ) -> Result<(), ReconcileError> {
        let class_key = Key::cluster(Kind::AttributesClass, &target);
        let Some(class) = find::<AttributesClass>(&*self.api, &class_key).await? else {
            let message = format!("VAC {target:?} does not exist.");
            self.write_event(claim, Severity::Warning, "VolumeModifyFailed", message.clone()).await?;
            let modifying = Modifying { target, progress: ModifyProgress::Pending };
            self.write(claim, modifying, claim.status.conditions.clone()).await?;
            return Err(ReconcileError::until(class_key, message));
        };
        if class.driver != self.config.driver {
            return Ok(());
        }
        let begun = condition(MODIFYING, format!("Modifying volume to {target:?} is in progress."));
        let modifying = Modifying { target: target.clone(), progress: ModifyProgress::InProgress };
        self.write(claim, modifying, with(claim, vec![begun])).await?;
        let name = &claim.meta.name;
        let message = format!("external resizer is modifying volume {name} with vac {target}");
        self.write_event(claim, Severity::Normal, "VolumeModify", message).await?;
        // Before the call: from then on the volume may have these attributes, even if the answer is lost.
        self.refused().remove(&claim.key());
        let request = v1::ControllerModifyVolumeRequest {
            volume_id: csi.handle.to_string(),
            secrets: secrets::read(&*self.api, csi.controller_expand_secret.as_deref()).await?,
            mutable_parameters: class.parameters.clone().into_iter().collect(),
        };
        if let Err(status) = self.service.modify(request, self.config.call_limit).await {
            return Err(self.failed(claim, target, status).await?);
        }
        // The volume first: a claim that names its class has a volume that names it.
        let body = PatchBody::AttributesClass(target.clone());
        self.api.patch(Patch::of(volume.key(), body)).await?;
        let status = ClaimStatusPatch {
            attributes_class: Some(target.clone()),
            modifying: Some(None),
            conditions: Some(with(claim, Vec::new())),
            ..ClaimStatusPatch::default()
        };
        self.api.patch(Patch::of(claim.key(), PatchBody::ClaimStatus(status))).await?;
        let message = format!("external resizer modified volume {name} with vac {target} successfully");
        self.write_event(claim, Severity::Normal, "VolumeModifySuccessful", message).await
    }

    /// Says that a volume was not modified. Returns the reason, for the next try.
    async fn failed(
        &self,
        claim: &Claim,
        target: String,
        status: Status,
    ) -> Result<ReconcileError, ReconcileError> {
        let infeasible = status.code() == Code::InvalidArgument;
        let unknown = is_unknown(status.code());
        if !unknown {
            self.refused().insert(claim.key());
        }
        let progress = match infeasible {
            true => ModifyProgress::Infeasible,
            false => ModifyProgress::InProgress,
        };
        let state = match unknown {
            true => format!("Modifying volume to {target:?} is still in progress."),
            false => format!("Modifying volume to {target:?} failed. Waiting for retry."),
        };
        let conditions = vec![condition(MODIFYING, state), condition(ERROR, status.message().to_owned())];
        self.write(claim, Modifying { target: target.clone(), progress }, with(claim, conditions)).await?;
        let failure = ReconcileError::Driver(status);
        let message = match unknown {
            true => format!("{failure}. Still modifying to VAC {target}"),
            false => failure.to_string(),
        };
        self.write_event(claim, Severity::Warning, "VolumeModifyFailed", message.clone()).await?;
        Ok(if infeasible { ReconcileError::Infeasible { reason: message } } else { failure })
    }

    async fn write(
        &self,
        claim: &Claim,
        modifying: Modifying,
        conditions: Vec<Condition>,
    ) -> Result<(), ReconcileError> {
        let status = ClaimStatusPatch {
            modifying: Some(Some(modifying)),
            conditions: Some(conditions),
            ..ClaimStatusPatch::default()
        };
        self.api.patch(Patch::of(claim.key(), PatchBody::ClaimStatus(status))).await?;
        Ok(())
    }

    async fn write_event(
        &self,
        claim: &Claim,
        severity: Severity,
        reason: &str,
        message: String,
    ) -> Result<(), ReconcileError> {
        self.events.write(Reference::to(Kind::Claim, &claim.meta), severity, reason, message).await
    }
}

/// The conditions of a claim, with these in place of the modifier's own.
fn with(claim: &Claim, conditions: Vec<Condition>) -> Vec<Condition> {
    let others =
        claim.status.conditions.iter().filter(|other| other.kind != MODIFYING && other.kind != ERROR);
    others.cloned().chain(conditions).collect()
}

fn condition(kind: &str, message: String) -> Condition {
    Condition { kind: kind.to_owned(), status: "True".to_owned(), message }
}
