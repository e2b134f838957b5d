//! The resizer: has a driver grow the volumes whose claims ask for more (docs/behaviour/09-controllers.md, section 6).
//!
//! It does the controller's part, and writes into the claim when it is the node's turn. A driver whose controller has
//! no part in it is not asked.

mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::Clock;
use api::patch::ClaimStatusPatch;
use api::storage::{Condition, CsiSource};
use api::timely::Timely;
use api::{
    ApiSource, Bytes, Claim, Key, Kind, Notification, Object, Patch, PatchBody, PersistentSource, Reference,
    Resource, Severity, Volume,
};
use async_trait::async_trait;
use csi_proto::v1;
use tonic::Code;

use crate::found::find;
use crate::queue::Pauses;
use crate::reconciler::{Reconciler, Running};
use crate::{ExpandService, ReconcileError, capability, modifier, secrets};
use decide::{Asked, Step};

/// The longest pause before what failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Tells a node that it has no part in the growth of a volume.
const NODE_NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// The driver of a resizer, and the resizer's settings.
#[derive(Debug, Clone)]
pub struct ResizerConfig {
    pub driver: String,
    /// Whether its controller expands volumes. If not, growth is the node's alone.
    pub expands: bool,
    /// Whether the driver distinguishes one writer on a node from many.
    pub fine_modes: bool,
    /// The limit of each call.
    pub call_limit: Duration,
    /// The pause after a first failure. It doubles with each one that follows.
    pub first_pause: Duration,
}

impl ResizerConfig {
    /// A resizer with the limits that the external resizer has by default.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            expands: true,
            fine_modes: false,
            call_limit: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
        }
    }
}

/// A running resizer. It stops when this is dropped.
#[derive(Debug)]
pub struct Resizer {
    _running: Running,
}

impl Resizer {
    /// Starts a resizer on the current runtime.
    pub fn start(
        config: ResizerConfig,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        service: Arc<dyn ExpandService>,
    ) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let pauses = Pauses { first: config.first_pause, longest: LONGEST_PAUSE };
        let reconciler =
            ResizeReconciler { config, api: Arc::clone(&api), service, given_up: Mutex::default() };
        Self { _running: Running::start(reconciler, api, clock, pauses) }
    }
}

#[derive(Debug)]
struct ResizeReconciler {
    config: ResizerConfig,
    api: Arc<dyn ApiSource>,
    service: Arc<dyn ExpandService>,
    /// The claims whose nodes have given up since their growth was last begun.
    given_up: Mutex<BTreeSet<Key>>,
}

#[async_trait]
impl Reconciler for ResizeReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Claim, Kind::Volume]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        let (before, Some(Object::Claim(claim))) = (before, after) else { return Vec::new() };
        let before = before.and_then(|before| match before {
            Object::Claim(before) => Some(Asked::of(before)),
            _ => None,
        });
        match before.is_none_or(|before| before != Asked::of(claim)) {
            true => after.map(Object::key).into_iter().collect(),
            false => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(claim) = find::<Claim>(&*self.api, key).await? else { return Ok(()) };
        if claim.spec.volume.is_empty() || claim.meta.is_deleting() {
            return Ok(());
        }
        let volume: Arc<Volume> = api::get(&*self.api, "", &claim.spec.volume).await?;
        let csi = match &volume.source {
            PersistentSource::Csi(csi) if csi.driver.as_str() == self.config.driver => csi,
            _ => return Ok(()),
        };
        if decide::is_given_up_by_node(&claim) && self.given_up().insert(key.clone()) {
            let reason = "the node has given up its part; it is begun again later, or when the size changes";
            return Err(ReconcileError::Infeasible { reason: reason.to_owned() });
        }
        self.given_up().remove(key);
        let bound = volume.claim.as_ref().is_some_and(|reference| reference.uid == claim.meta.uid);
        match decide::next(&claim, !self.config.expands) {
            Step::Grow(size) if bound => self.grow(&claim, &volume, csi, size).await,
            _ => Ok(()),
        }
    }
}

/// The result of a driver's expansion.
struct Grown {
    size: Bytes,
    node_too: bool,
}

impl ResizeReconciler {
    fn given_up(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn grow(
        &self,
        claim: &Claim,
        volume: &Volume,
        csi: &CsiSource,
        size: Bytes,
    ) -> Result<(), ReconcileError> {
        // Before the call: from then on the volume may have this size, even if the answer is lost.
        let began = ClaimStatusPatch {
            allocated: Some(size),
            resize: Some(decide::IN_PROGRESS.to_owned()),
            conditions: Some(with(claim, vec![condition("Resizing", String::new())])),
            ..ClaimStatusPatch::default()
        };
        self.write(claim, began).await?;
        let message = format!("External resizer is resizing volume {}", volume.meta.name);
        self.write_event(claim, Severity::Normal, "Resizing", message).await?;
        let grown = match self.expand(volume, csi, size).await {
            Ok(grown) => grown,
            Err(failure) => return Err(self.failed(claim, volume, failure).await?),
        };
        let key = Key::cluster(Kind::Volume, &volume.meta.name);
        self.api.patch(Patch::of(key, PatchBody::Capacity(grown.size))).await?;
        match grown.node_too {
            true => self.hand_over(claim).await,
            false => self.finish(claim, grown.size).await,
        }
    }

    async fn expand(&self, volume: &Volume, csi: &CsiSource, size: Bytes) -> Result<Grown, ReconcileError> {
        if !self.config.expands {
            return Ok(Grown { size, node_too: true });
        }
        let request = v1::ControllerExpandVolumeRequest {
            volume_id: csi.handle.to_string(),
            capacity_range: Some(v1::CapacityRange { required_bytes: size.0.cast_signed(), limit_bytes: 0 }),
            secrets: secrets::read(&*self.api, csi.controller_expand_secret.as_deref()).await?,
            volume_capability: Some(capability::of_volume(volume, csi, self.config.fine_modes)),
        };
        let answer =
            self.service.expand(request, self.config.call_limit).await.map_err(ReconcileError::Driver)?;
        match u64::try_from(answer.capacity_bytes) {
            Ok(grown) if grown >= size.0 => {
                Ok(Grown { size: Bytes(grown), node_too: answer.node_expansion_required })
            }
            _ => Err(ReconcileError::unfit(format!(
                "ControllerExpandVolume answered {} bytes, and {} were asked for",
                answer.capacity_bytes, size.0
            ))),
        }
    }

    /// Says that it is the node's turn.
    async fn hand_over(&self, claim: &Claim) -> Result<(), ReconcileError> {
        let waiting = condition(
            "FileSystemResizePending",
            "Waiting for user to (re-)start a pod to finish file system resize of volume on node.".to_owned(),
        );
        let status = ClaimStatusPatch {
            resize: Some(decide::NODE_PENDING.to_owned()),
            conditions: Some(with(claim, vec![waiting])),
            ..ClaimStatusPatch::default()
        };
        self.write(claim, status).await?;
        let message = "Require file system resize of volume on node".to_owned();
        self.write_event(claim, Severity::Normal, "FileSystemResizeRequired", message).await
    }

    async fn finish(&self, claim: &Claim, size: Bytes) -> Result<(), ReconcileError> {
        let labels = BTreeMap::new();
        let annotations = [(NODE_NOT_REQUIRED.to_owned(), Some("true".to_owned()))].into();
        self.api.patch(Patch::of(claim.key(), PatchBody::Metadata { labels, annotations })).await?;
        let status = ClaimStatusPatch {
            capacity: Some(size),
            resize: Some(String::new()),
            conditions: Some(with(claim, Vec::new())),
            ..ClaimStatusPatch::default()
        };
        self.write(claim, status).await?;
        let message = "Resize volume succeeded".to_owned();
        self.write_event(claim, Severity::Normal, "VolumeResizeSuccessful", message).await
    }

    /// Tells that a volume was not grown. Returns the reason, for the next try.
    async fn failed(
        &self,
        claim: &Claim,
        volume: &Volume,
        failure: ReconcileError,
    ) -> Result<ReconcileError, ReconcileError> {
        let message = format!(
            "resize volume {:?} by resizer {:?} failed: {failure}",
            volume.meta.name, self.config.driver
        );
        // No repetition mends these: only a user who asks for another size does.
        let infeasible =
            matches!(failure.code(), Some(Code::InvalidArgument | Code::OutOfRange | Code::NotFound));
        let status = ClaimStatusPatch {
            resize: infeasible.then(|| decide::INFEASIBLE.to_owned()),
            conditions: Some(with(claim, vec![condition("ControllerResizeError", message.clone())])),
            ..ClaimStatusPatch::default()
        };
        self.write(claim, status).await?;
        self.write_event(claim, Severity::Warning, "VolumeResizeFailed", message.clone()).await?;
        Ok(if infeasible { ReconcileError::Infeasible { reason: message } } else { failure })
    }

    async fn write(&self, claim: &Claim, status: ClaimStatusPatch) -> Result<(), ReconcileError> {
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
        let about = Reference::to(Kind::Claim, &claim.meta);
        let event = Notification::about(about, severity, reason, message);
        self.api.create(Object::Notification(Arc::new(event))).await?;
        Ok(())
    }
}

/// The conditions of a claim that the modifier writes, with these in place of all others.
fn with(claim: &Claim, conditions: Vec<Condition>) -> Vec<Condition> {
    let others = claim.status.conditions.iter().filter(|other| modifier::OWN.contains(&other.kind.as_str()));
    others.cloned().chain(conditions).collect()
}

fn condition(kind: &str, message: String) -> Condition {
    Condition { kind: kind.to_owned(), status: "True".to_owned(), message }
}
