//! The places of the nodes that have the driver, as they were last heard of: a volume is made without a look at each node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::{CsiNode, Object};

/// The place of a node, in the driver's keys.
pub(super) type Segments = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    nodes: BTreeMap<String, Parts>,
    /// Each place with its nodes.
    places: BTreeMap<Segments, BTreeSet<String>>,
    /// The nodes that lack a label, with that: a node writes its labels and its drivers one after the other.
    unlabelled: BTreeMap<String, String>,
}

/// The facts about a node from its Node and CSINode objects.
#[derive(Debug, Clone, Default, PartialEq)]
struct Parts {
    /// The driver's keys, from the CSINode.
    keys: Vec<String>,
    /// The labels, from the Node if there is one.
    labels: Option<BTreeMap<String, String>>,
}

impl Places {
    /// Takes in a change of a node or of its drivers. Other objects say nothing of places.
    pub(super) fn replace(&self, driver: &str, before: Option<&Object>, after: Option<&Object>) {
        let Some(object @ (Object::Node(_) | Object::CsiNode(_))) = after.or(before) else { return };
        let name = &object.meta().name;
        let mut known = self.lock();
        let mut parts = known.nodes.get(name).cloned().unwrap_or_default();
        match object {
            Object::Node(node) => parts.labels = after.map(|_| node.meta.labels.clone()),
            Object::CsiNode(node) => parts.keys = after.map(|_| keys(node, driver)).unwrap_or_default(),
            _ => {}
        }
        known.put(name, parts);
    }

    /// The places of all nodes.
    ///
    /// # Errors
    /// A node and the label that it lacks.
    pub(super) fn all(&self) -> Result<BTreeSet<Segments>, (String, String)> {
        let known = self.lock();
        match known.unlabelled.first_key_value() {
            Some((node, label)) => Err((node.clone(), label.clone())),
            None => Ok(known.places.keys().cloned().collect()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn put(&mut self, name: &str, parts: Parts) {
        let before = self.nodes.get(name);
        // Most changes of a node are of its status.
        if before == Some(&parts) {
            return;
        }
        if let Some(Ok(place)) = before.and_then(Parts::place)
            && let Some(nodes) = self.places.get_mut(&place)
        {
            nodes.remove(name);
            if nodes.is_empty() {
                self.places.remove(&place);
            }
        }
        self.unlabelled.remove(name);
        match parts.place() {
            Some(Ok(place)) => _ = self.places.entry(place).or_default().insert(name.to_owned()),
            Some(Err(label)) => _ = self.unlabelled.insert(name.to_owned(), label),
            None => {}
        }
        match parts == Parts::default() {
            true => self.nodes.remove(name),
            false => self.nodes.insert(name.to_owned(), parts),
        };
    }
}

impl Parts {
    /// The place of the node, if the driver is there, or the label that is missing.
    fn place(&self) -> Option<Result<Segments, String>> {
        let labels = self.labels.as_ref().filter(|_| !self.keys.is_empty())?;
        Some(segments(&self.keys, labels))
    }
}

/// The driver's keys on a node; none where it has no topology.
pub(super) fn keys(node: &CsiNode, driver: &str) -> Vec<String> {
    let on_node = node.drivers.iter().find(|on_node| on_node.name == driver);
    on_node.map(|on_node| on_node.topology_keys.clone()).unwrap_or_default()
}

/// The values of keys, or the first that is missing.
pub(super) fn segments(keys: &[String], labels: &BTreeMap<String, String>) -> Result<Segments, String> {
    let segment = |key: &String| Ok((key.clone(), labels.get(key).ok_or_else(|| key.clone())?.clone()));
    keys.iter().map(segment).collect()
}

#[cfg(test)]
mod tests {
    use api::{CsiNodeDriver, Meta, Node, Resource};

    use super::*;

    fn node(name: &str, zone: Option<&str>) -> Object {
        let mut node = Node { meta: Meta::named("", name), ..Node::default() };
        node.meta.labels = zone.iter().map(|zone| ("zone".to_owned(), (*zone).to_owned())).collect();
        node.into_object()
    }

    fn drivers(name: &str) -> Object {
        let mut driver = CsiNodeDriver { name: "a.csi".to_owned(), ..CsiNodeDriver::default() };
        driver.topology_keys.push("zone".to_owned());
        CsiNode { meta: Meta::named("", name), drivers: vec![driver] }.into_object()
    }

    fn zones(places: &Places) -> Vec<String> {
        let all = places.all().expect("each node has its labels");
        all.iter().map(|place| place["zone"].clone()).collect()
    }

    #[test]
    fn place_is_there_as_long_as_a_node_is_in_it() {
        let places = Places::default();
        for (name, zone) in [("1", "b"), ("2", "a"), ("3", "a")] {
            places.replace("a.csi", None, Some(&node(name, Some(zone))));
            places.replace("a.csi", None, Some(&drivers(name)));
        }
        assert_eq!(zones(&places), ["a", "b"]);
        places.replace("a.csi", Some(&node("1", Some("b"))), None);
        assert_eq!(zones(&places), ["a"]);
        places.replace("a.csi", Some(&drivers("2")), None);
        assert_eq!(zones(&places), ["a"]);
        places.replace("a.csi", Some(&node("3", Some("a"))), Some(&node("3", Some("c"))));
        assert_eq!(zones(&places), ["c"]);
    }

    #[test]
    fn node_without_its_label_is_named_until_it_has_it() {
        let places = Places::default();
        places.replace("a.csi", None, Some(&drivers("1")));
        assert_eq!(zones(&places), Vec::<String>::new());
        places.replace("a.csi", None, Some(&node("1", None)));
        assert_eq!(places.all(), Err(("1".to_owned(), "zone".to_owned())));
        places.replace("a.csi", Some(&node("1", None)), Some(&node("1", Some("a"))));
        assert_eq!(zones(&places), ["a"]);
    }
}
