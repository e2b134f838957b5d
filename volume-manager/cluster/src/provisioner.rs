//! The provisioner: has a driver make the volumes that claims of its classes ask for, and delete those that are
//! released (docs/behaviour/09-controllers.md, section 5).
//!
//! It writes a volume that is reserved for its claim, and leaves the rest to the binder. What is asked of the driver has
//! the same name each time: a call of unknown outcome is repeated until its outcome is known.

mod asked;
mod create;
mod parameters;
mod places;
mod reclaim;
mod source;
mod topology;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::Clock;
use api::timely::Timely;
use api::{ApiSource, Claim, Key, Kind, Object, Reference, Resource, Severity};
use async_trait::async_trait;

use crate::events::Events;
use crate::queue::Pauses;
use crate::reconciler::{Reconciler, Running};
use crate::references::References;
use crate::{ProvisionService, ReconcileError};
use asked::{Asked, Step};
use places::Places;

/// The longest pause before what failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Keeps a volume until the driver has deleted what it stands for.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Keeps a claim while the driver may be making its volume: without it, nothing would say what to delete.
const BEING_MADE: &str = "volproof.dev/volume-being-made";

/// Keeps a claim while its volume is copied.
const BEING_CLONED: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// The driver of a provisioner, and the provisioner's settings.
#[derive(Debug, Clone)]
pub struct ProvisionerConfig {
    pub driver: String,
    /// Whether nodes reach only some of its volumes.
    pub topology: bool,
    /// Whether it makes volumes as copies of others.
    pub clones: bool,
    /// Whether it makes volumes from snapshots.
    pub snapshots: bool,
    /// Whether it makes volumes with attributes that can be changed later.
    pub modifies: bool,
    /// Whether the driver distinguishes one writer on a node from many.
    pub fine_modes: bool,
    /// The limit of each call.
    pub call_limit: Duration,
    /// The pause after a first failure. It doubles with each one that follows.
    pub first_pause: Duration,
}

impl ProvisionerConfig {
    /// A provisioner with the limits that the external provisioner has by default.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            topology: false,
            clones: false,
            snapshots: false,
            modifies: false,
            fine_modes: false,
            call_limit: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
        }
    }
}

/// A running provisioner. It stops when this is dropped.
#[derive(Debug)]
pub struct Provisioner {
    _running: Running,
}

impl Provisioner {
    /// Starts a provisioner on the current runtime.
    pub fn start(
        config: ProvisionerConfig,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        service: Arc<dyn ProvisionService>,
    ) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let pauses = Pauses { first: config.first_pause, longest: LONGEST_PAUSE };
        let reconciler = ProvisionReconciler {
            config,
            events: Events::new(Arc::clone(&api)),
            api: Arc::clone(&api),
            service,
            refused: Mutex::default(),
            attached: References::default(),
            copies: References::default(),
            places: Places::default(),
        };
        Self { _running: Running::start(reconciler, api, clock, pauses) }
    }
}

#[derive(Debug)]
struct ProvisionReconciler {
    config: ProvisionerConfig,
    api: Arc<dyn ApiSource>,
    events: Events,
    service: Arc<dyn ProvisionService>,
    /// The claims whose last call was certainly refused: no volume is left of it. After a restart no outcome is known.
    refused: Mutex<BTreeSet<Key>>,
    /// The attachments of each volume.
    attached: References,
    /// The copies of each claim that are being made.
    copies: References,
    places: Places,
}

#[async_trait]
impl Reconciler for ProvisionReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[
            Kind::Class,
            Kind::AttributesClass,
            Kind::Node,
            Kind::CsiNode,
            Kind::Attachment,
            Kind::Snapshot,
            Kind::Volume,
            Kind::Claim,
        ]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        self.attached.replace_attachment(before, after);
        self.places.replace(&self.config.driver, before, after);
        match (before, after) {
            (Some(Object::Claim(_)), _) | (_, Some(Object::Claim(_))) => {
                let claim = |object: Option<&Object>| match object {
                    Some(Object::Claim(claim)) => Some(Arc::clone(claim)),
                    _ => None,
                };
                self.affected_claims(claim(before).as_deref(), claim(after).as_deref())
            }
            (_, Some(Object::Volume(volume))) if reclaim::is_due(volume, &self.config.driver) => {
                vec![Key::cluster(Kind::Volume, &volume.meta.name)]
            }
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        match key.kind {
            Kind::Volume => self.reclaim(&key.name).await,
            _ => {
                self.provision(key).await?;
                self.end_cloning(key).await
            }
        }
    }
}

impl ProvisionReconciler {
    fn refused(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claims to look at because one has changed.
    fn affected_claims(&self, before: Option<&Claim>, after: Option<&Claim>) -> Vec<Key> {
        let mut keys = Vec::new();
        match (before, after) {
            (before, Some(claim)) => {
                let changed = before.is_none_or(|before| Asked::of(before) != Asked::of(claim));
                let step = asked::next(claim, &self.config.driver, false);
                if changed && (step != Step::Nothing || asked::is_cloned(claim)) {
                    keys.push(claim.key());
                }
            }
            (Some(gone), None) => {
                self.refused().remove(&gone.key());
                self.events.forget(&gone.key());
            }
            (None, None) => {}
        }
        if let Some(claim) = after.or(before) {
            let copied = |claim: Option<&Claim>| claim.and_then(source::being_cloned);
            self.copies.replace(&claim.key(), copied(before), copied(after));
        }
        // A copy that is made, or not wanted any more, needs its source no longer.
        if let Some(claim) = before.or(after)
            && before.is_none_or(|before| before.spec.volume.is_empty())
            && after.is_none_or(|after| !after.spec.volume.is_empty())
        {
            keys.extend(source::cloned(claim));
        }
        keys
    }

    async fn write_event(
        &self,
        claim: &Claim,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) -> Result<(), ReconcileError> {
        self.events.write(Reference::to(Kind::Claim, &claim.meta), severity, reason, message).await
    }
}
