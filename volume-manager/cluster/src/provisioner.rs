//! The provisioner: has a driver make the volumes that claims of its classes ask for, and delete those that are
//! released (docs/behaviour/09-controllers.md, section 5).
//!
//! It writes a volume that is reserved for its claim, and leaves the rest to the binder. What is asked of the driver has
//! the same name each time: a call of unknown outcome is repeated until its outcome is known.

mod create;
mod parameters;
mod reclaim;
mod source;
mod topology;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::Clock;
use api::timely::Timely;
use api::{ApiSource, Claim, Key, Kind, Object, Reference, Resource, Severity};
use async_trait::async_trait;

use crate::events::Events;
use crate::queue::Pauses;
use crate::reconciler::{Reconciler, Running};
use crate::{ProvisionService, Trouble, annotations};

/// The longest pause before what failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Keeps a volume until the driver has deleted what it stands for.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Which driver a provisioner serves, and how.
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
    /// Whether it tells one writer on a node from many.
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
        let hands = Hands {
            config,
            events: Events::new(Arc::clone(&api)),
            api: Arc::clone(&api),
            service,
            begun: Mutex::default(),
        };
        Self { _running: Running::start(hands, api, clock, pauses) }
    }
}

#[derive(Debug)]
struct Hands {
    config: ProvisionerConfig,
    api: Arc<dyn ApiSource>,
    events: Events,
    service: Arc<dyn ProvisionService>,
    /// The claims whose volumes a driver may have made: each is seen through, even when the claim is gone.
    begun: Mutex<BTreeMap<Key, Arc<Claim>>>,
}

#[async_trait]
impl Reconciler for Hands {
    fn kinds(&self) -> &'static [Kind] {
        &[
            Kind::Class,
            Kind::AttributesClass,
            Kind::CsiNode,
            Kind::Attachment,
            Kind::Snapshot,
            Kind::Volume,
            Kind::Claim,
        ]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        match (before, after) {
            (_, Some(Object::Claim(claim))) if self.is_asked(claim) => vec![claim.key()],
            (_, Some(Object::Volume(volume))) if reclaim::is_due(volume, &self.config.driver) => {
                vec![Key::cluster(Kind::Volume, &volume.meta.name)]
            }
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), Trouble> {
        match key.kind {
            Kind::Volume => self.reclaim(&key.name).await,
            _ => self.provision(key).await,
        }
    }
}

impl Hands {
    fn begun(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Claim>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this provisioner is to make the volume of a claim.
    fn is_asked(&self, claim: &Claim) -> bool {
        let asked = claim.meta.annotations.get(annotations::PROVISIONER);
        claim.spec.volume.is_empty() && !claim.meta.is_deleting() && asked == Some(&self.config.driver)
    }

    async fn tell(
        &self,
        claim: &Claim,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) -> Result<(), Trouble> {
        self.events.tell(Reference::to(Kind::Claim, &claim.meta), severity, reason, message).await
    }
}
