//! Values that are only looked up by their keys: as fast among many as among few, where a map in order compares more
//! keys the more there are.

use std::borrow::Borrow;
#[expect(clippy::disallowed_types, reason = "its order is never seen: keys leave it sorted")]
use std::collections::HashMap;
use std::hash::Hash;

/// Values by key, in no order.
#[derive(Debug, Clone)]
#[expect(clippy::disallowed_types, reason = "its order is never seen: keys leave it sorted")]
pub struct Lookup<K, V>(HashMap<K, V>);

impl<K, V> Default for Lookup<K, V> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<K: Hash + Eq + Ord, V> Lookup<K, V> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(key)
    }

    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// The value of a key, which is put in if there is none.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.0.entry(key).or_default()
    }

    /// Puts a value in, and returns the one that it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.remove(key)
    }

    /// The keys that pass a test, in order.
    pub fn keys(&self, test: impl Fn(&K) -> bool) -> Vec<&K> {
        let mut keys: Vec<&K> = self.0.keys().filter(|key| test(key)).collect();
        keys.sort_unstable();
        keys
    }

    /// The values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        let mut entries: Vec<(&K, &V)> = self.0.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries.into_iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_leave_in_order() {
        let mut lookup = Lookup::default();
        for number in (0..100).rev() {
            assert_eq!(lookup.insert(number, -number), None);
        }
        assert_eq!(lookup.insert(7, 0), Some(-7));
        assert_eq!(lookup.remove(&8), Some(-8));
        *lookup.get_or_default(200) += 1;
        assert_eq!((lookup.get(&200), lookup.len()), (Some(&1), 100));
        assert_eq!(lookup.keys(|key| *key < 12 && *key > 4), [&5, &6, &7, &9, &10, &11]);
        let first: Vec<&i32> = lookup.values().take(2).collect();
        assert_eq!(first, [&0, &-1]);
    }
}
