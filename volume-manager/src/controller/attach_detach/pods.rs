//! The pods, by what decides which volumes they want attached: their node, their claims and the volumes of these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::names::Namespaced;
use api::{Claim, ClaimPhase, Pod};

/// Pods and claims, as last seen.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pods: BTreeMap<Namespaced, Arc<Pod>>,
    claims: BTreeMap<Namespaced, Arc<Claim>>,
    of_node: BTreeMap<String, BTreeSet<Namespaced>>,
    of_claim: BTreeMap<Namespaced, BTreeSet<Namespaced>>,
    claims_of_volume: BTreeMap<String, BTreeSet<Namespaced>>,
    /// The pods whose volumes may be others than they were.
    unresolved: BTreeSet<Namespaced>,
}

impl Pods {
    pub(super) fn get(&self, pod: &Namespaced) -> Option<&Arc<Pod>> {
        self.pods.get(pod)
    }

    pub(super) fn claim(&self, claim: &Namespaced) -> Option<&Arc<Claim>> {
        self.claims.get(claim)
    }

    /// Takes the pods whose volumes may be others than they were.
    pub(super) fn take_unresolved(&mut self) -> BTreeSet<Namespaced> {
        std::mem::take(&mut self.unresolved)
    }

    pub(super) fn put(&mut self, key: Namespaced, pod: Arc<Pod>) {
        self.remove(&key);
        self.of_node.entry(pod.node.clone()).or_default().insert(key.clone());
        for claim in claims(&pod) {
            self.of_claim.entry(claim).or_default().insert(key.clone());
        }
        self.pods.insert(key, pod);
    }

    pub(super) fn remove(&mut self, key: &Namespaced) {
        self.unresolved.insert(key.clone());
        let Some(pod) = self.pods.remove(key) else { return };
        leave(&mut self.of_node, &pod.node, key);
        for claim in claims(&pod) {
            leave(&mut self.of_claim, &claim, key);
        }
    }

    pub(super) fn put_claim(&mut self, key: Namespaced, claim: Arc<Claim>) {
        if self.claims.get(&key).is_some_and(|known| decides(known) == decides(&claim)) {
            self.claims.insert(key, claim);
            return;
        }
        self.remove_claim(&key);
        if !claim.spec.volume.is_empty() {
            self.claims_of_volume.entry(claim.spec.volume.clone()).or_default().insert(key.clone());
        }
        self.claims.insert(key, claim);
    }

    pub(super) fn remove_claim(&mut self, key: &Namespaced) {
        self.unresolved.extend(self.of_claim.get(key).into_iter().flatten().cloned());
        if let Some(claim) = self.claims.remove(key) {
            leave(&mut self.claims_of_volume, &claim.spec.volume, key);
        }
    }

    pub(super) fn volume_changed(&mut self, volume: &str) {
        let claims = self.claims_of_volume.get(volume).into_iter().flatten();
        let pods = claims.filter_map(|claim| self.of_claim.get(claim)).flatten();
        self.unresolved.extend(pods.cloned());
    }

    pub(super) fn node_changed(&mut self, node: &str) {
        self.unresolved.extend(self.of_node.get(node).into_iter().flatten().cloned());
    }

    pub(super) fn all_changed(&mut self) {
        self.unresolved.extend(self.pods.keys().cloned());
    }

    /// The pods, and the claims, that are not among these.
    pub(super) fn others(&self, are: impl Fn(&Namespaced) -> bool) -> Vec<Namespaced> {
        self.pods.keys().filter(|key| !are(key)).cloned().collect()
    }

    pub(super) fn other_claims(&self, are: impl Fn(&Namespaced) -> bool) -> Vec<Namespaced> {
        self.claims.keys().filter(|key| !are(key)).cloned().collect()
    }
}

/// The claims that a pod names.
fn claims(pod: &Pod) -> impl Iterator<Item = Namespaced> {
    pod.claims().map(|claim| Namespaced::new(&pod.meta.namespace, claim))
}

/// The fields of a claim that decide which volume its pods have.
fn decides(claim: &Claim) -> (&str, &str, ClaimPhase) {
    (&claim.meta.uid, &claim.spec.volume, claim.status.phase)
}

fn leave<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Namespaced>>, key: &K, member: &Namespaced) {
    if let Some(members) = index.get_mut(key) {
        members.remove(member);
        if members.is_empty() {
            index.remove(key);
        }
    }
}
