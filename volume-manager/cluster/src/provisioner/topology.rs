//! Topology: the accessibility requirement of CreateVolume, and the node affinity of the PersistentVolume.

use std::collections::BTreeSet;

use api::storage::{AllowedValues, NodeAffinity, Requirement};
use api::{Claim, Class, CsiNode, Key, Kind, Node};
use csi_proto::v1;

use super::ProvisionReconciler;
use super::places::{Segments, keys, segments};
use crate::found::find;
use crate::{ReconcileError, annotations};

impl ProvisionReconciler {
    /// The accessibility requirement of CreateVolume: the places that the class allows, or else those of all nodes with
    /// the driver, and as the first preference that of the claim's selected node. `None` without topology.
    pub(super) async fn requirement(
        &self,
        claim: &Claim,
        class: &Class,
    ) -> Result<Option<v1::TopologyRequirement>, ReconcileError> {
        if !self.config.topology {
            return Ok(None);
        }
        let places = match class.allowed_topologies.as_slice() {
            [] => self.places.all().map_err(|(node, label)| unlabelled(&node, &label))?,
            allowed => allowed.iter().flat_map(|term| places_of(term)).collect(),
        };
        let first = match claim.meta.annotations.get(annotations::SELECTED_NODE) {
            Some(name) => {
                let node = api::get::<CsiNode>(&*self.api, "", name).await?;
                let place = self.place(&node).await?.ok_or_else(|| self.no_place(&node))?;
                Some(preference(&places, &place).ok_or_else(|| not_allowed(name, &place))?)
            }
            None => places.first().cloned(),
        };
        let Some(first) = first else {
            let reason = "error generating accessibility requirements: no topology key found on any CSINode";
            return Err(ReconcileError::unfit(reason));
        };
        // Preferred are the first place, then the places after it in their order, then those before it.
        let (before, after): (Vec<_>, Vec<_>) = places.iter().partition(|place| **place < first);
        let preferred = after.into_iter().chain(before).map(|place| topology(place.clone()));
        Ok(Some(v1::TopologyRequirement {
            requisite: places.iter().map(|place| topology(place.clone())).collect(),
            preferred: preferred.collect(),
        }))
    }

    /// Why a node with a CSINode has no place.
    fn no_place(&self, node: &CsiNode) -> ReconcileError {
        let (node_name, driver) = (node.meta.name.clone(), &self.config.driver);
        if !node.drivers.iter().any(|on_node| on_node.name == *driver) {
            return ReconcileError::Unregistered { node: node_name, driver: driver.clone() };
        }
        let reason = format!(
            "error generating accessibility requirements: no topology key found on CSINode {node_name}"
        );
        ReconcileError::until(Key::cluster(Kind::CsiNode, node_name), reason)
    }

    /// The place of a node; `None` if it has no object, or no topology keys of the driver.
    async fn place(&self, node: &CsiNode) -> Result<Option<Segments>, ReconcileError> {
        let keys = keys(node, &self.config.driver);
        if keys.is_empty() {
            return Ok(None);
        }
        let key = Key::cluster(Kind::Node, &node.meta.name);
        let Some(object) = find::<Node>(&*self.api, &key).await? else { return Ok(None) };
        let place = segments(&keys, &object.meta.labels);
        place.map(Some).map_err(|label| unlabelled(&node.meta.name, &label))
    }
}

/// The places that a term of a class allows: one for each choice of values.
fn places_of(term: &[AllowedValues]) -> Vec<Segments> {
    term.iter().fold(vec![Segments::new()], |places, AllowedValues { key, values }| {
        let with = |place: &Segments, value: &String| {
            let mut place = place.clone();
            place.insert(key.clone(), value.clone());
            place
        };
        places.iter().flat_map(|place| values.iter().map(move |value| with(place, value))).collect()
    })
}

/// The first of these places that a node is in.
fn preference(places: &BTreeSet<Segments>, node: &Segments) -> Option<Segments> {
    let has = |place: &&Segments| place.iter().all(|(key, value)| node.get(key) == Some(value));
    places.iter().find(has).cloned()
}

fn not_allowed(node: &str, place: &Segments) -> ReconcileError {
    let reason = format!(
        "error generating accessibility requirements: selected node {node:?} is in {place:?}, which `allowedTopologies` of the \
         class does not have"
    );
    ReconcileError::unfit(reason)
}

fn unlabelled(node: &str, label: &str) -> ReconcileError {
    ReconcileError::until(Key::cluster(Kind::Node, node), format!("node {node:?} has no label {label:?}"))
}

fn topology(place: Segments) -> v1::Topology {
    v1::Topology { segments: place.into_iter().collect() }
}

/// The affinity to the nodes in these places, the `accessible_topology` of a created volume; `None` without places.
pub(super) fn affinity(places: &[v1::Topology]) -> Option<NodeAffinity> {
    let term = |place: &v1::Topology| {
        let segments: Segments = place.segments.clone().into_iter().collect();
        let requirement = |(key, value)| Requirement { key, operator: "In".to_owned(), values: vec![value] };
        segments.into_iter().map(requirement).collect()
    };
    let terms: Vec<_> = places.iter().map(term).collect();
    (!terms.is_empty()).then_some(NodeAffinity { terms })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(segments: &[(&str, &str)]) -> Segments {
        segments.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn allowed(key: &str, values: &[&str]) -> AllowedValues {
        AllowedValues {
            key: key.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }
    }

    #[test]
    fn term_of_a_class_allows_each_choice_of_its_values() {
        let places = places_of(&[allowed("region", &["r"]), allowed("zone", &["a", "b"])]);
        let both = [place(&[("region", "r"), ("zone", "a")]), place(&[("region", "r"), ("zone", "b")])];
        assert_eq!(places, both);
    }

    #[test]
    fn preferred_is_the_place_that_the_node_is_in() {
        let places: BTreeSet<Segments> = ["a", "b"].map(|zone| place(&[("zone", zone)])).into();
        let node = place(&[("zone", "b"), ("rack", "7")]);
        assert_eq!(preference(&places, &node), Some(place(&[("zone", "b")])));
        assert_eq!(preference(&places, &place(&[("zone", "c")])), None);
    }
}
