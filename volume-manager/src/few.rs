//! Sorted maps and sets of a few entries, which take the memory of those entries and no more.
//!
//! Most volumes have one pod, and most pods one volume. A node of a `BTreeMap` has room for eleven entries, and the manager
//! keeps several such maps for each volume.

use std::borrow::Borrow;
use std::ops::Index;

/// As many entries are held without spare room. Beyond them, room is taken in advance, as a `Vec` does.
const EXACT: usize = 4;

/// A map in the order of its keys. Inserting and removing take time in proportion to its size.
#[derive(Debug, Clone, PartialEq)]
pub struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Few<K, V> {
    /// The place of a key, or the place to insert it at.
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(other, _)| other.borrow().cmp(key))
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|at| &self.0[at].1)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|at| &mut self.0[at].1)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_ok()
    }

    /// Inserts an entry, and returns the value that the key had before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                if self.0.len() < EXACT {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|at| self.0.remove(at).1)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The keys from `first` on, and then those before it; in their order without `first`.
    pub fn keys_from<Q: Ord + ?Sized>(&self, first: Option<&Q>) -> impl Iterator<Item = &K>
    where
        K: Borrow<Q>,
    {
        let at = first.map_or(0, |key| self.place(key).unwrap_or_else(|at| at));
        let (before, from) = self.0.split_at(at);
        from.iter().chain(before).map(|(key, _)| key)
    }

    pub fn into_keys(self) -> impl Iterator<Item = K> {
        self.0.into_iter().map(|(key, _)| key)
    }
}

impl<K: Ord + Borrow<Q>, V, Q: Ord + ?Sized> Index<&Q> for Few<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key is in the map")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn map_of_few_does_as_the_map_of_the_library(steps in prop::collection::vec((any::<bool>(), 0u8..12, any::<u8>()), 0..64)) {
            let (mut few, mut map) = (Few::default(), BTreeMap::new());
            for (is_insert, key, value) in steps {
                match is_insert {
                    true => prop_assert_eq!(few.insert(key, value), map.insert(key, value)),
                    false => prop_assert_eq!(few.remove(&key), map.remove(&key)),
                }
                prop_assert!(few.iter().eq(map.iter()));
                prop_assert_eq!(few.get(&key), map.get(&key));
                let turned = map.range(key..).chain(map.range(..key)).map(|(key, _)| key);
                prop_assert!(few.keys_from(Some(&key)).eq(turned));
            }
        }
    }

    #[test]
    fn single_entry_takes_no_room_for_others() {
        let mut few = Few::default();
        few.insert(1, "one");
        assert_eq!(few.0.capacity(), 1);
        few.insert(2, "two");
        assert_eq!(few.0.capacity(), 2);
    }
}
