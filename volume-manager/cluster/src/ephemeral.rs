//! Ephemeral claims: made for the pods whose volumes have a template, and collected with them
//! (docs/behaviour/09-controllers.md, section 8).

use std::sync::Arc;

use api::clock::Clock;
use api::timely::Timely;
use api::{
    ApiSource, Claim, Key, Kind, Meta, Object, Owner, Pod, Reference, Resource, Severity, VolumeSource,
};
use async_trait::async_trait;

use crate::ReconcileError;
use crate::events::Events;
use crate::found::find;
use crate::reconciler::{PAUSES, Reconciler, Running};

/// A running controller of ephemeral claims. It stops when this is dropped.
#[derive(Debug)]
pub struct Ephemeral {
    _running: Running,
}

impl Ephemeral {
    /// Starts it on the current runtime.
    pub fn start(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let reconciler = EphemeralReconciler { events: Events::new(Arc::clone(&api)), api: Arc::clone(&api) };
        Self { _running: Running::start(reconciler, api, clock, PAUSES) }
    }
}

#[derive(Debug)]
struct EphemeralReconciler {
    api: Arc<dyn ApiSource>,
    events: Events,
}

#[async_trait]
impl Reconciler for EphemeralReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::Claim]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        match (before, after) {
            (None, Some(Object::Pod(pod))) => vec![pod.key()],
            (Some(Object::Pod(pod)), None) => templates(pod).map(|(claim, _)| key(pod, claim)).collect(),
            (None, Some(Object::Claim(claim))) if owner(claim).is_some() => vec![claim.key()],
            // The claim was deleted, and its pod may still be there.
            (Some(Object::Claim(claim)), None) => {
                let pod =
                    owner(claim).map(|pod| Key::namespaced(Kind::Pod, &claim.meta.namespace, &pod.name));
                pod.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        match key.kind {
            Kind::Claim => self.collect(key).await,
            _ => self.make(key).await,
        }
    }
}

impl EphemeralReconciler {
    /// Makes the claims that a pod lacks.
    async fn make(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(pod) = find::<Pod>(&*self.api, key).await? else { return Ok(()) };
        if pod.meta.is_deleting() {
            return Ok(());
        }
        for (name, template) in templates(&pod) {
            match find::<Claim>(&*self.api, &self::key(&pod, name.clone())).await? {
                Some(claim) if owner(&claim).is_some_and(|owner| owner.uid == pod.meta.uid) => {}
                Some(_) => {
                    let message =
                        format!("PersistentVolumeClaim {name:?} was not created for pod {:?}", pod.meta.name);
                    let about = Reference::to(Kind::Pod, &pod.meta);
                    self.events.write(about, Severity::Warning, "FailedBinding", message.clone()).await?;
                    return Err(ReconcileError::until(self::key(&pod, name), message));
                }
                None => {
                    let mut meta = Meta::named(&pod.meta.namespace, &name);
                    (meta.labels, meta.annotations) = (template.labels.clone(), template.annotations.clone());
                    meta.owners.push(Owner {
                        api_version: "v1".to_owned(),
                        kind: "Pod".to_owned(),
                        name: pod.meta.name.clone(),
                        uid: pod.meta.uid.clone(),
                        controller: true,
                        block_deletion: true,
                    });
                    let claim = Claim { meta, spec: template.spec.clone(), ..Claim::default() };
                    self.api.create(claim.into_object()).await?;
                }
            }
        }
        Ok(())
    }

    /// Deletes a claim whose pod is gone.
    async fn collect(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(claim) = find::<Claim>(&*self.api, key).await? else { return Ok(()) };
        let Some(owner) = owner(&claim).filter(|_| !claim.meta.is_deleting()) else { return Ok(()) };
        let pod = find::<Pod>(&*self.api, &Key::namespaced(Kind::Pod, &key.namespace, &owner.name)).await?;
        if pod.is_none_or(|pod| pod.meta.uid != owner.uid) {
            self.api.delete(key).await?;
        }
        Ok(())
    }
}

/// The pod that a claim was made for.
fn owner(claim: &Claim) -> Option<&Owner> {
    claim.meta.controller().filter(|owner| owner.kind == "Pod")
}

/// The names and templates of the claims that a pod wants to be made.
fn templates(pod: &Pod) -> impl Iterator<Item = (String, &api::storage::ClaimTemplate)> {
    pod.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Ephemeral { template } => pod.claim(volume).map(|name| (name, &**template)),
        _ => None,
    })
}

fn key(pod: &Pod, claim: String) -> Key {
    Key::namespaced(Kind::Claim, &pod.meta.namespace, claim)
}
