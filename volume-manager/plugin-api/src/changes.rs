//! Waiting for an API object to change: operations wait, and the watch of the objects notifies them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::Key;
use tokio::sync::Notify;

/// Wakes the operations that wait for an object to change. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    waiting: Arc<Mutex<BTreeMap<Key, Arc<Notify>>>>,
}

impl Changes {
    /// The notifier for changes of one object. A change wakes only the waiters that are registered at that time.
    pub fn of(&self, key: &Key) -> Arc<Notify> {
        Arc::clone(self.table().entry(key.clone()).or_default())
    }

    /// Notifies the waiters for an object that has changed or was deleted.
    pub fn notify(&self, key: &Key) {
        let mut table = self.table();
        let Some(waiting) = table.get(key) else { return };
        waiting.notify_waiters();
        if Arc::strong_count(waiting) == 1 {
            table.remove(key);
        }
    }

    /// Notifies all waiters, since any object may have changed.
    pub fn tell_all(&self) {
        self.table().values().for_each(|waiting| waiting.notify_waiters());
    }

    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
