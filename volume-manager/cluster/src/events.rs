//! The events that controllers write: none is repeated before another is written about the same object for the same
//! reason.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::lookup::Lookup;
use api::{ApiSource, Key, Notification, Object, Reference, Severity};

use crate::ReconcileError;

#[derive(Debug)]
pub(crate) struct Events {
    api: Arc<dyn ApiSource>,
    /// The last message about an object for each reason.
    last: Mutex<Lookup<Key, BTreeMap<String, String>>>,
}

impl Events {
    pub(crate) fn new(api: Arc<dyn ApiSource>) -> Self {
        Self { api, last: Mutex::default() }
    }

    /// Writes an event about an object, unless it is the one that was written last for this reason.
    pub(crate) async fn write(
        &self,
        about: Reference,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) -> Result<(), ReconcileError> {
        let message = message.into();
        let key = Key { kind: about.kind, namespace: about.namespace.clone(), name: about.name.clone() };
        let before = self.last().get_or_default(key.clone()).insert(reason.to_owned(), message.clone());
        if before.as_ref() == Some(&message) {
            return Ok(());
        }
        let event = Notification::about(about, severity, reason, message);
        if let Err(error) = self.api.create(Object::Notification(Arc::new(event))).await {
            self.forget(&key);
            return Err(error.into());
        }
        Ok(())
    }

    /// Nothing has to be said of an object any more.
    pub(crate) fn forget(&self, key: &Key) {
        self.last().remove(key);
    }

    fn last(&self) -> MutexGuard<'_, Lookup<Key, BTreeMap<String, String>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
