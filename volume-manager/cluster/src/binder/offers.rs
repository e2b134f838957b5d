//! Which claim a free volume is offered to: one at a time, and the next when that claim has another volume or is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::lookup::Lookup;
use api::{Bytes, Claim, Key, Resource, Volume};

use super::matching::{fits, is_reachable};
use crate::annotations::SELECTED_NODE;

/// The claims without a volume, and the free volumes that they are offered.
#[derive(Debug, Default)]
pub(super) struct Unbound {
    /// The claims of each class, by the size that they ask for.
    claims: BTreeMap<String, BTreeMap<(Bytes, Key), Arc<Claim>>>,
    /// The free volumes that are offered to a claim, by name.
    offers: Lookup<String, (Key, Arc<Volume>)>,
    /// The names of the volumes that each claim is offered.
    offered: Lookup<Key, BTreeSet<String>>,
    /// The classes whose claims wait for a node.
    waiting: BTreeSet<String>,
    /// The labels of the nodes.
    nodes: Lookup<String, BTreeMap<String, String>>,
}

impl Unbound {
    /// The claims of a class.
    pub(super) fn of_class(&self, class: &str) -> impl Iterator<Item = &Key> {
        self.claims.get(class).into_iter().flat_map(BTreeMap::keys).map(|(_, key)| key)
    }

    /// Takes in whether the claims of a class wait for a node.
    pub(super) fn waits(&mut self, class: &str, waits: bool) {
        match waits {
            true => _ = self.waiting.insert(class.to_owned()),
            false => _ = self.waiting.remove(class),
        }
    }

    /// Takes in the labels of a node, or its end.
    pub(super) fn node(&mut self, name: &str, labels: Option<&BTreeMap<String, String>>) {
        match labels {
            Some(labels) => _ = self.nodes.insert(name.to_owned(), labels.clone()),
            None => _ = self.nodes.remove(name),
        }
    }

    /// Takes in a change of a claim. Returns the claims that are offered what it has left.
    pub(super) fn after_claim(
        &mut self,
        before: Option<&Arc<Claim>>,
        after: Option<&Arc<Claim>>,
    ) -> Vec<Key> {
        let Some(key) = after.or(before).map(|claim| claim.key()) else { return Vec::new() };
        if let Some(claim) = before {
            let class = class(claim);
            if let Some(claims) = self.claims.get_mut(class) {
                claims.remove(&(claim.spec.request, key.clone()));
                if claims.is_empty() {
                    self.claims.remove(class);
                }
            }
        }
        if let Some(claim) = after.filter(|claim| claim.spec.volume.is_empty()) {
            let claims = self.claims.entry(class(claim).to_owned()).or_default();
            claims.insert((claim.spec.request, key.clone()), Arc::clone(claim));
        }
        let taken = after.map(|claim| claim.spec.volume.as_str()).unwrap_or_default();
        let left = self.offered.remove(&key).unwrap_or_default();
        let left: Vec<_> = left.iter().filter_map(|name| self.offers.remove(name)).collect();
        let others = left.into_iter().filter(|(_, volume)| volume.meta.name != taken);
        others.filter_map(|(_, volume)| self.offer(&volume)).collect()
    }

    /// Takes in a change of a volume. Returns the claim that it is offered to, if it is free.
    pub(super) fn after_volume(
        &mut self,
        before: Option<&Arc<Volume>>,
        after: Option<&Arc<Volume>>,
    ) -> Option<Key> {
        let name = &after.or(before)?.meta.name;
        if let Some((claim, _)) = self.offers.remove(name)
            && let Some(names) = self.offered.get_mut(&claim)
        {
            names.remove(name);
            if names.is_empty() {
                self.offered.remove(&claim);
            }
        }
        self.offer(after.filter(|volume| volume.claim.is_none())?)
    }

    /// Offers a free volume to the claim that leaves the least of it unused.
    fn offer(&mut self, volume: &Arc<Volume>) -> Option<Key> {
        let claims = self.claims.get(&volume.class)?.iter().rev();
        let mut small_enough = claims.skip_while(|((request, _), _)| *request > volume.capacity);
        let (_, key) = small_enough.find(|(_, claim)| self.takes(claim, volume))?.0.clone();
        self.offered.get_or_default(key.clone()).insert(volume.meta.name.clone());
        self.offers.insert(volume.meta.name.clone(), (key.clone(), Arc::clone(volume)));
        Some(key)
    }

    /// Whether a claim takes a free volume as soon as it is looked at, unless there is a better one. What it would not
    /// take now it is not offered: with the node that is missing it is looked at by itself.
    fn takes(&self, claim: &Claim, volume: &Volume) -> bool {
        let node = claim.meta.annotations.get(SELECTED_NODE);
        let labels = node.and_then(|node| self.nodes.get(node));
        let knows_its_node = match node {
            Some(_) => labels.is_some(),
            None => !self.waiting.contains(class(claim)),
        };
        knows_its_node && fits(volume, claim) && is_reachable(volume, labels)
    }
}

fn class(claim: &Claim) -> &str {
    claim.spec.class.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api::{ClaimPhase, Meta};

    use super::*;

    fn claim(name: &str, size: u64) -> Arc<Claim> {
        let mut claim = Claim { meta: Meta::named("n", name), ..Claim::default() };
        claim.spec.request = Bytes(size);
        Arc::new(claim)
    }

    fn volume(name: &str, size: u64) -> Arc<Volume> {
        Arc::new(Volume { meta: Meta::named("", name), capacity: Bytes(size), ..Volume::default() })
    }

    fn names(keys: impl IntoIterator<Item = Key>) -> Vec<String> {
        keys.into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn volume_is_offered_to_one_claim_after_another_until_it_is_taken() {
        let mut unbound = Unbound::default();
        for one in [claim("small", 1), claim("middle", 5), claim("large", 9)] {
            unbound.after_claim(None, Some(&one));
        }
        let (first, second) = (volume("v", 6), volume("w", 6));
        assert_eq!(names(unbound.after_volume(None, Some(&first))), ["middle"]);
        assert_eq!(names(unbound.after_volume(None, Some(&second))), ["middle"]);
        let mut bound = Claim::clone(&claim("middle", 5));
        bound.spec.volume = "w".to_owned();
        bound.status.phase = ClaimPhase::Bound;
        let middle = claim("middle", 5);
        assert_eq!(names(unbound.after_claim(Some(&middle), Some(&Arc::new(bound)))), ["small"]);
        assert_eq!(names(unbound.after_claim(Some(&claim("small", 1)), None)), [""; 0]);
        assert!(unbound.offers.is_empty() && unbound.offered.is_empty());
    }

    #[test]
    fn claim_that_waits_for_its_node_is_offered_nothing_before() {
        let mut unbound = Unbound::default();
        unbound.waits("late", true);
        let mut waiting = Claim::clone(&claim("c", 1));
        waiting.spec.class = Some("late".to_owned());
        let mut free = Volume::clone(&volume("v", 1));
        free.class = "late".to_owned();
        let (waiting, free) = (Arc::new(waiting), Arc::new(free));
        unbound.after_claim(None, Some(&waiting));
        assert_eq!(unbound.after_volume(None, Some(&free)), None);
        let mut placed = Claim::clone(&waiting);
        placed.meta.annotations.insert(SELECTED_NODE.to_owned(), "a".to_owned());
        unbound.after_claim(Some(&waiting), Some(&Arc::new(placed)));
        assert_eq!(unbound.after_volume(None, Some(&free)), None, "the node is not known");
        unbound.node("a", Some(&BTreeMap::new()));
        assert_eq!(names(unbound.after_volume(None, Some(&free))), ["c"]);
    }
}
