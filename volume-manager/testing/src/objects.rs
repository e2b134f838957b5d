//! The objects of an API by kind, namespace and name: one is found without a look at the others, and lists are in order.

use std::collections::BTreeMap;

use api::lookup::Lookup;
use api::{Key, Kind, Object};

#[derive(Debug, Default)]
pub(crate) struct Objects {
    kinds: BTreeMap<Kind, Namespaces>,
    length: usize,
}

/// The objects of a kind, by namespace and name.
type Namespaces = Lookup<String, Lookup<String, Object>>;

impl Objects {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.kinds.get(&key.kind)?.get(&key.namespace)?.get(&key.name)
    }

    /// Puts an object in, and returns the one that it replaces.
    pub(crate) fn insert(&mut self, object: Object) -> Option<Object> {
        let Key { kind, namespace, name } = object.key();
        let names = self.kinds.entry(kind).or_default().get_or_default(namespace);
        let replaced = names.insert(name, object);
        self.length += usize::from(replaced.is_none());
        replaced
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Object> {
        let namespaces = self.kinds.get_mut(&key.kind)?;
        let names = namespaces.get_mut(&key.namespace)?;
        let removed = names.remove(&key.name)?;
        if names.is_empty() {
            namespaces.remove(&key.namespace);
        }
        self.length -= 1;
        Some(removed)
    }

    /// All objects of a kind, in the order of their keys.
    pub(crate) fn list(&self, kind: Kind) -> Vec<Object> {
        let namespaces = self.kinds.get(&kind).into_iter().flat_map(Lookup::values);
        namespaces.flat_map(Lookup::values).cloned().collect()
    }

    /// The objects of a kind in a namespace, in the order of their names.
    pub(crate) fn list_in(&self, kind: Kind, namespace: &str) -> Vec<Object> {
        let names = self.kinds.get(&kind).and_then(|namespaces| namespaces.get(namespace));
        names.into_iter().flat_map(Lookup::values).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use api::{Claim, Meta, Resource};

    use super::*;

    fn claim(namespace: &str, name: &str) -> Object {
        Claim { meta: Meta::named(namespace, name), ..Claim::default() }.into_object()
    }

    #[test]
    fn lists_are_in_the_order_of_keys_whatever_the_order_of_writes() {
        let mut objects = Objects::default();
        for (namespace, name) in [("b", "1"), ("a", "2"), ("a", "10"), ("a", "1"), ("a", "2")] {
            objects.insert(claim(namespace, name));
        }
        let names = |list: Vec<Object>| -> Vec<String> {
            list.iter().map(|object| object.key().namespaced_name().to_string()).collect()
        };
        assert_eq!(names(objects.list(Kind::Claim)), ["a/1", "a/10", "a/2", "b/1"]);
        assert_eq!(names(objects.list_in(Kind::Claim, "a")), ["a/1", "a/10", "a/2"]);
        assert_eq!(objects.list(Kind::Pod), []);
        assert_eq!(objects.len(), 4);
        let gone = objects.remove(&Key::namespaced(Kind::Claim, "b", "1"));
        assert_eq!((gone, objects.len()), (Some(claim("b", "1")), 3));
        assert_eq!(objects.remove(&Key::namespaced(Kind::Claim, "b", "1")), None);
        assert_eq!(names(objects.list(Kind::Claim)), ["a/1", "a/10", "a/2"]);
    }
}
