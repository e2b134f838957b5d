//! The scheduler's part in the life of a volume: a claim whose class waits for its first consumer is annotated with
//! the node of that pod.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::clock::Clock;
use api::lookup::Lookup;
use api::timely::Timely;
use api::{ApiSource, Claim, Class, Key, Kind, Object, Patch, PatchBody, Pod, Resource};
use async_trait::async_trait;

use crate::reconciler::{PAUSES, Reconciler, Running};
use crate::{ReconcileError, annotations};

/// Tells claims the nodes of their pods. It stops when this is dropped.
#[derive(Debug)]
pub struct Placement {
    _running: Running,
}

impl Placement {
    /// Starts it on the current runtime.
    pub fn start(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let reconciler = PlacementReconciler { api: Arc::clone(&api), pods: Mutex::default() };
        Self { _running: Running::start(reconciler, api, clock, PAUSES) }
    }
}

#[derive(Debug)]
struct PlacementReconciler {
    api: Arc<dyn ApiSource>,
    /// The pods that use a claim, by their names, and the node of each.
    pods: Mutex<Lookup<Key, BTreeMap<String, String>>>,
}

#[async_trait]
impl Reconciler for PlacementReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Class, Kind::Pod, Kind::Claim]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Object::Pod(pod)) = before {
            for claim in claims(pod) {
                if let Some(users) = pods.get_mut(&claim) {
                    users.remove(&pod.meta.name);
                    if users.is_empty() {
                        pods.remove(&claim);
                    }
                }
            }
        }
        match after {
            Some(Object::Pod(pod)) if !pod.node.is_empty() => {
                for claim in claims(pod) {
                    pods.get_or_default(claim).insert(pod.meta.name.clone(), pod.node.clone());
                }
                claims(pod).collect()
            }
            Some(Object::Claim(claim)) => vec![claim.key()],
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        let node = {
            let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            pods.get(key).and_then(|users| users.values().next().cloned())
        };
        let Some(node) = node else { return Ok(()) };
        let claim: Arc<Claim> = api::get(&*self.api, &key.namespace, &key.name).await?;
        let class = claim.spec.class.as_deref().unwrap_or_default();
        if class.is_empty()
            || !claim.spec.volume.is_empty()
            || claim.meta.annotations.contains_key(annotations::SELECTED_NODE)
        {
            return Ok(());
        }
        let class: Arc<Class> = api::get(&*self.api, "", class).await?;
        if class.wait_for_consumer {
            let annotations = [(annotations::SELECTED_NODE.to_owned(), Some(node))].into();
            let body = PatchBody::Metadata { labels: BTreeMap::new(), annotations };
            self.api.patch(Patch::of(key.clone(), body)).await?;
        }
        Ok(())
    }
}

fn claims(pod: &Pod) -> impl Iterator<Item = Key> {
    pod.claims().map(|claim| Key::namespaced(Kind::Claim, &pod.meta.namespace, claim))
}
