//! The binder: gives each claim a volume of its own, and each volume its phase (docs/behaviour/09-controllers.md,
//! section 4).
//!
//! A claim gets a volume that is written down and fits, or else one is asked for from the provisioner of its class. The
//! volume's reference to its claim is written first and the claim's to its volume last: a node that sees the claim
//! bound finds the volume bound to it.

mod matching;
mod offers;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::clock::Clock;
use api::lookup::Lookup;
use api::names::Namespaced;
use api::storage::ClaimReference;
use api::timely::Timely;
use api::{
    ApiSource, Claim, ClaimPhase, Class, Key, Kind, Node, Object, Reference, Resource, Severity, Volume,
};
use async_trait::async_trait;

use crate::events::Events;
use crate::found::find;
use crate::reconciler::{PAUSES, Reconciler, Running};
use crate::{ReconcileError, annotations};
use matching::Volumes;
use offers::Unbound;

/// Has no provisioner: its volumes are written down.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A running binder. It stops when this is dropped.
#[derive(Debug)]
pub struct Binder {
    _running: Running,
}

impl Binder {
    /// Starts a binder on the current runtime.
    pub fn start(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let reconciler = BindReconciler {
            events: Events::new(Arc::clone(&api)),
            api: Arc::clone(&api),
            seen: Mutex::default(),
        };
        Self { _running: Running::start(reconciler, api, clock, PAUSES) }
    }
}

#[derive(Debug)]
struct BindReconciler {
    api: Arc<dyn ApiSource>,
    events: Events,
    seen: Mutex<Seen>,
}

/// The objects by what a decision asks for.
#[derive(Debug, Default)]
struct Seen {
    volumes: Volumes,
    /// The claims without a volume.
    unbound: Unbound,
    /// The claims that ask for a volume by its name, or have it.
    by_volume: Lookup<String, BTreeSet<Key>>,
}

#[async_trait]
impl Reconciler for BindReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Volume, Kind::Class, Kind::Node, Kind::Claim]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        let mut seen = self.seen();
        match (before, after) {
            (Some(Object::Claim(_)), _) | (_, Some(Object::Claim(_))) => {
                let (before, after) = (before.and_then(as_claim), after.and_then(as_claim));
                seen.replace_claim(before, after);
                let others = seen.unbound.after_claim(before, after);
                let claim = after.or(before).map(|claim| claim.key());
                let left = if after.is_none() { before } else { None };
                let left = left.map(|claim| seen.left_behind(claim)).unwrap_or_default();
                claim
                    .into_iter()
                    .chain(left.into_iter().map(|left| Key::cluster(Kind::Volume, left)))
                    .chain(others)
                    .collect()
            }
            (Some(Object::Volume(_)), _) | (_, Some(Object::Volume(_))) => {
                let (before, after) = (before.and_then(as_volume), after.and_then(as_volume));
                seen.volumes.replace(before, after);
                let Some(volume) = after.or(before) else { return Vec::new() };
                let mut keys = vec![volume.key()];
                keys.extend(seen.by_volume.get(&volume.meta.name).into_iter().flatten().cloned());
                if let Some(reference) = &volume.claim {
                    let (namespace, name) = (&reference.claim.namespace, &reference.claim.name);
                    keys.push(Key::namespaced(Kind::Claim, namespace, name));
                }
                keys.extend(seen.unbound.after_volume(before, after));
                keys
            }
            (_, Some(Object::Class(class))) => {
                seen.unbound.waits(&class.meta.name, class.wait_for_consumer);
                let is_new = before.is_none();
                let waiting = ["", class.meta.name.as_str()].map(|name| seen.unbound.of_class(name));
                waiting.into_iter().flatten().filter(|_| is_new).cloned().collect()
            }
            (_, Some(Object::Node(node))) => {
                seen.unbound.node(&node.meta.name, Some(&node.meta.labels));
                Vec::new()
            }
            (Some(Object::Node(node)), None) => {
                seen.unbound.node(&node.meta.name, None);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        match key.kind {
            Kind::Volume => self.volume(key).await,
            _ => self.claim(key).await,
        }
    }
}

impl BindReconciler {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
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

    async fn claim(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(claim) = find::<Claim>(&*self.api, key).await? else {
            self.events.forget(key);
            return Ok(());
        };
        match claim.meta.annotations.contains_key(annotations::BIND_COMPLETED) {
            true => self.look_after_bound(&claim).await,
            false if claim.status.phase == ClaimPhase::Bound => Ok(()),
            false if claim.spec.volume.is_empty() => self.choose(&claim).await,
            false => self.bind_as_asked(&claim).await,
        }
    }

    /// A bound claim whose volume is gone, or is another's, is lost.
    async fn look_after_bound(&self, claim: &Claim) -> Result<(), ReconcileError> {
        let volume = find::<Volume>(&*self.api, &Key::cluster(Kind::Volume, &claim.spec.volume)).await?;
        let (reason, message) = match volume {
            None => {
                let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                ("ClaimLost", message)
            }
            Some(volume) if names(&volume, claim) => return Ok(()),
            Some(_) => {
                let message = "Two claims are bound to the same volume, this one is bound incorrectly";
                ("ClaimMisbound", message)
            }
        };
        if claim.status.phase != ClaimPhase::Lost {
            let mut lost = claim.clone();
            lost.status.phase = ClaimPhase::Lost;
            self.api.update(lost.into_object()).await?;
        }
        self.write_event(claim, Severity::Warning, reason, message).await
    }

    /// Binds a claim that asks for a volume by its name.
    async fn bind_as_asked(&self, claim: &Claim) -> Result<(), ReconcileError> {
        let Some(volume) =
            find::<Volume>(&*self.api, &Key::cluster(Kind::Volume, &claim.spec.volume)).await?
        else {
            return Ok(());
        };
        match &volume.claim {
            Some(_) if names(&volume, claim) => self.bind(claim, &volume).await,
            Some(reference) if reference.uid.is_empty() && is_named(&reference.claim, claim) => {
                self.bind(claim, &volume).await
            }
            Some(_) => {
                let message = format!("volume {:?} already bound to a different claim.", volume.meta.name);
                self.write_event(claim, Severity::Warning, "FailedBinding", message).await
            }
            None => match matching::misfit(&volume, claim) {
                None => self.bind(claim, &volume).await,
                Some(misfit) => {
                    let message = format!("Cannot bind to requested volume {:?}: {misfit}", volume.meta.name);
                    self.write_event(claim, Severity::Warning, "VolumeMismatch", message).await
                }
            },
        }
    }

    /// Finds a volume for a claim that leaves the choice, or asks for one to be made.
    async fn choose(&self, claim: &Claim) -> Result<(), ReconcileError> {
        let class = match &claim.spec.class {
            Some(name) if !name.is_empty() => {
                find::<Class>(&*self.api, &Key::cluster(Kind::Class, name)).await?
            }
            Some(_) => None,
            None => match self.default_class().await? {
                Some(class) => return self.set_class(claim, &class).await,
                None => None,
            },
        };
        let waits = class.as_ref().is_some_and(|class| class.wait_for_consumer);
        let node = match claim.meta.annotations.get(annotations::SELECTED_NODE) {
            Some(name) => Some(api::get::<Node>(&*self.api, "", name).await?),
            None => None,
        };
        let found = {
            let seen = self.seen();
            let best = seen.volumes.best(claim, node.as_ref().map(|node| &node.meta.labels)).cloned();
            // A volume that is reserved for the claim needs no node to be chosen first.
            best.filter(|volume| !waits || node.is_some() || volume.claim.is_some())
        };
        if let Some(volume) = found {
            // As it is now: another claim may have got it since.
            let volume: Arc<Volume> = api::get(&*self.api, "", &volume.meta.name).await?;
            if volume.claim.as_ref().is_none_or(|reference| is_named(&reference.claim, claim)) {
                return self.bind(claim, &volume).await;
            }
            return Err(ReconcileError::unfit(format!(
                "{:?} has just been taken by another claim",
                volume.meta.name
            )));
        }
        match (class, &claim.spec.class) {
            (Some(_), _) if waits && node.is_none() => {
                let message = "waiting for first consumer to be created before binding";
                self.write_event(claim, Severity::Normal, "WaitForFirstConsumer", message).await
            }
            (Some(class), _) if class.provisioner == NO_PROVISIONER => {
                let message = format!(
                    "no persistent volumes fit this claim, and none is made for the storage class {:?}",
                    class.meta.name
                );
                self.write_event(claim, Severity::Normal, "FailedBinding", message).await
            }
            (Some(class), _) => self.ask_for_one(claim, &class).await,
            (None, Some(name)) if !name.is_empty() => {
                let message = format!("storageclass.storage.k8s.io {name:?} not found");
                self.write_event(claim, Severity::Warning, "ProvisioningFailed", message).await
            }
            (None, _) => {
                let message = "no persistent volumes available for this claim and no storage class is set";
                self.write_event(claim, Severity::Normal, "FailedBinding", message).await
            }
        }
    }

    async fn default_class(&self) -> Result<Option<Arc<Class>>, ReconcileError> {
        let classes = api::list::<Class>(&*self.api).await?;
        let is_default = |class: &Arc<Class>| {
            class.meta.annotations.get(annotations::IS_DEFAULT_CLASS).is_some_and(|value| value == "true")
        };
        // The newest, where an administrator has marked several.
        Ok(classes.into_iter().filter(is_default).max_by(|a, b| a.meta.created.cmp(&b.meta.created)))
    }

    async fn set_class(&self, claim: &Claim, class: &Class) -> Result<(), ReconcileError> {
        let mut claim = claim.clone();
        claim.spec.class = Some(class.meta.name.clone());
        self.api.update(claim.into_object()).await?;
        Ok(())
    }

    /// Has the provisioner of the class make a volume.
    async fn ask_for_one(&self, claim: &Claim, class: &Class) -> Result<(), ReconcileError> {
        let provisioner = &class.provisioner;
        if claim.meta.annotations.get(annotations::PROVISIONER) != Some(provisioner) {
            let mut asking = claim.clone();
            asking.meta.annotations.insert(annotations::PROVISIONER.to_owned(), provisioner.clone());
            self.api.update(asking.into_object()).await?;
        }
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
             the system administrator. If volume creation is delayed, please verify that the provisioner is running \
             and correctly registered."
        );
        self.write_event(claim, Severity::Normal, "ExternalProvisioning", message).await
    }

    async fn bind(&self, claim: &Claim, volume: &Volume) -> Result<(), ReconcileError> {
        let mut reserved = volume.clone();
        if volume.claim.is_none() {
            let annotations = &mut reserved.meta.annotations;
            annotations.insert(annotations::BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        let name = Namespaced::new(&claim.meta.namespace, &claim.meta.name);
        reserved.claim = Some(ClaimReference { claim: name, uid: claim.meta.uid.clone() });
        reserved.phase = "Bound".to_owned();
        if reserved != *volume {
            self.api.update(reserved.into_object()).await?;
        }
        let mut bound = claim.clone();
        let annotations = &mut bound.meta.annotations;
        if claim.spec.volume.is_empty() {
            annotations.insert(annotations::BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        annotations.insert(annotations::BIND_COMPLETED.to_owned(), "yes".to_owned());
        bound.spec.volume = volume.meta.name.clone();
        bound.status.phase = ClaimPhase::Bound;
        bound.status.capacity = volume.capacity;
        bound.status.attributes_class = volume.attributes_class.clone();
        self.api.update(bound.into_object()).await?;
        Ok(())
    }

    /// Gives a volume the phase that follows from its claim.
    async fn volume(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(volume) = find::<Volume>(&*self.api, key).await? else {
            self.events.forget(key);
            return Ok(());
        };
        let phase = match &volume.claim {
            None => "Available",
            Some(reference) if reference.uid.is_empty() => "Available",
            Some(reference) => {
                let (namespace, name) = (&reference.claim.namespace, &reference.claim.name);
                match find::<Claim>(&*self.api, &Key::namespaced(Kind::Claim, namespace, name)).await? {
                    Some(claim) if claim.meta.uid == reference.uid => return Ok(()),
                    _ => "Released",
                }
            }
        };
        if volume.phase != phase {
            let volume = Volume { phase: phase.to_owned(), ..Volume::clone(&volume) };
            self.api.update(volume.into_object()).await?;
        }
        Ok(())
    }
}

impl Seen {
    fn replace_claim(&mut self, before: Option<&Arc<Claim>>, after: Option<&Arc<Claim>>) {
        if let Some(claim) = before
            && let Some(keys) = self.by_volume.get_mut(&claim.spec.volume)
        {
            keys.remove(&claim.key());
            if keys.is_empty() {
                self.by_volume.remove(&claim.spec.volume);
            }
        }
        if let Some(claim) = after.filter(|claim| !claim.spec.volume.is_empty()) {
            self.by_volume.get_or_default(claim.spec.volume.clone()).insert(claim.key());
        }
    }

    /// The volumes that are released because a claim is gone: its own, and those that are reserved for it.
    fn left_behind(&self, claim: &Claim) -> BTreeSet<String> {
        let name = Namespaced::new(&claim.meta.namespace, &claim.meta.name);
        let reserved = self.volumes.naming(&name).map(|volume| volume.meta.name.clone());
        let own = Some(claim.spec.volume.clone()).filter(|volume| !volume.is_empty());
        reserved.chain(own).collect()
    }
}

/// Whether a volume is bound to this very claim.
fn names(volume: &Volume, claim: &Claim) -> bool {
    volume
        .claim
        .as_ref()
        .is_some_and(|reference| reference.uid == claim.meta.uid && is_named(&reference.claim, claim))
}

fn is_named(name: &Namespaced, claim: &Claim) -> bool {
    name.namespace == claim.meta.namespace && name.name == claim.meta.name
}

fn as_claim(object: &Object) -> Option<&Arc<Claim>> {
    match object {
        Object::Claim(claim) => Some(claim),
        _ => None,
    }
}

fn as_volume(object: &Object) -> Option<&Arc<Volume>> {
    match object {
        Object::Volume(volume) => Some(volume),
        _ => None,
    }
}
