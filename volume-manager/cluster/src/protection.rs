//! Protection of what is in use: a claim outlives the pods that refer to it, and a volume its claim
//! (docs/behaviour/09-controllers.md, sections 4 and 7).

use std::collections::BTreeSet;
use std::sync::Arc;

use api::clock::Clock;
use api::protection::{CLAIM, VOLUME};
use api::timely::Timely;
use api::{ApiSource, Claim, Key, Kind, Object, Pod, Resource, Volume, VolumeSource};
use async_trait::async_trait;

use crate::ReconcileError;
use crate::found::{find, hold, release};
use crate::reconciler::{PAUSES, Reconciler, Running};
use crate::references::References;

/// Protects claims and volumes in use. It stops when this is dropped.
#[derive(Debug)]
pub struct Protection {
    _running: Running,
}

impl Protection {
    /// Starts it on the current runtime.
    pub fn start(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let reconciler = ProtectionReconciler { api: Arc::clone(&api), users: References::default() };
        Self { _running: Running::start(reconciler, api, clock, PAUSES) }
    }
}

#[derive(Debug)]
struct ProtectionReconciler {
    api: Arc<dyn ApiSource>,
    /// The pods that use a claim, as far as they were heard of.
    users: References,
}

#[async_trait]
impl Reconciler for ProtectionReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::Volume, Kind::Claim]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        match after.or(before) {
            Some(Object::Pod(_)) => self.no_longer_used(before, after),
            // A volume is bound to a claim as long as that is there.
            Some(Object::Claim(claim)) if after.is_none() => {
                let volume = Some(&claim.spec.volume).filter(|volume| !volume.is_empty());
                volume.map(|volume| Key::cluster(Kind::Volume, volume)).into_iter().collect()
            }
            Some(Object::Claim(claim)) if claim.meta.is_deleting() == claim.meta.has_finalizer(CLAIM) => {
                vec![claim.key()]
            }
            Some(Object::Volume(_)) if after.is_none() => Vec::new(),
            Some(Object::Volume(volume))
                if volume.meta.is_deleting() == volume.meta.has_finalizer(VOLUME) =>
            {
                vec![volume.key()]
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

impl ProtectionReconciler {
    /// The claims that a pod used before a change and does not use after it.
    fn no_longer_used(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        let Some(pod) = after.or(before).map(Object::key) else { return Vec::new() };
        let (before, after) = (before.map(used), after.map(used));
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let ended: Vec<Key> = before.difference(&after).cloned().collect();
        self.users.replace(&pod, before, after);
        ended
    }

    async fn claim(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(claim) = find::<Claim>(&*self.api, key).await? else { return Ok(()) };
        if !claim.meta.is_deleting() {
            hold(&*self.api, key, &claim.meta, CLAIM).await?;
            return Ok(());
        }
        if !claim.meta.has_finalizer(CLAIM) || self.users.has(key) {
            return Ok(());
        }
        // A pod may have been bound to a node since the last news of pods.
        let pods = api::list_in::<Pod>(&*self.api, &key.namespace).await?;
        if pods.iter().any(|pod| uses(pod, key)) {
            return Ok(());
        }
        release(&*self.api, key, &claim.meta, &[CLAIM]).await
    }

    async fn volume(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(volume) = find::<Volume>(&*self.api, key).await? else { return Ok(()) };
        if !volume.meta.is_deleting() {
            return hold(&*self.api, key, &volume.meta, VOLUME).await.map(drop);
        }
        if volume.phase == "Bound" && self.has_its_claim(&volume).await? {
            return Ok(());
        }
        release(&*self.api, key, &volume.meta, &[VOLUME]).await
    }

    /// Whether the claim that a volume is bound to is there.
    async fn has_its_claim(&self, volume: &Volume) -> Result<bool, ReconcileError> {
        let Some(reference) = &volume.claim else { return Ok(false) };
        let key = Key::namespaced(Kind::Claim, &reference.claim.namespace, &reference.claim.name);
        let claim = find::<Claim>(&*self.api, &key).await?;
        Ok(claim.is_some_and(|claim| reference.uid.is_empty() || claim.meta.uid == reference.uid))
    }
}

/// The claims that a pod uses.
fn used(pod: &Object) -> BTreeSet<Key> {
    let Object::Pod(pod) = pod else { return BTreeSet::new() };
    claims(pod).collect()
}

fn uses(pod: &Pod, claim: &Key) -> bool {
    claims(pod).any(|used| used == *claim)
}

/// The claims that a pod protects: any pod that was scheduled counts, also one that has ended. A claim that was made for
/// a pod is given up with it.
fn claims(pod: &Pod) -> impl Iterator<Item = Key> {
    let given_up = pod.meta.is_deleting() && pod.meta.deletion_grace == Some(0);
    let scheduled = pod.volumes.iter().filter(|_| !pod.node.is_empty());
    let kept = scheduled
        .filter(move |volume| !(given_up && matches!(volume.source, VolumeSource::Ephemeral { .. })));
    kept.filter_map(|volume| pod.claim(volume))
        .map(|claim| Key::namespaced(Kind::Claim, &pod.meta.namespace, claim))
}
