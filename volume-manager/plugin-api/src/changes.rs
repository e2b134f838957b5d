//! Waiting for an object to change: whoever follows objects tells, and operations wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::Key;
use tokio::sync::Notify;

/// Wakes those who wait for an object to change. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    waiting: Arc<Mutex<BTreeMap<Key, Arc<Notify>>>>,
}

impl Changes {
    /// The changes of one object. Only those who wait at the time hear of one.
    pub fn of(&self, key: &Key) -> Arc<Notify> {
        Arc::clone(self.table().entry(key.clone()).or_default())
    }

    /// An object has changed or is gone.
    pub fn tell(&self, key: &Key) {
        let mut table = self.table();
        let Some(waiting) = table.get(key) else { return };
        waiting.notify_waiters();
        if Arc::strong_count(waiting) == 1 {
            table.remove(key);
        }
    }

    /// Any object may have changed.
    pub fn tell_all(&self) {
        self.table().values().for_each(|waiting| waiting.notify_waiters());
    }

    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
