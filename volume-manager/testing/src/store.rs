//! Objects by key, their versions, and who watches them, as an API server keeps them.

use std::sync::Arc;

use api::{ApiError, Change, Key, Kind, Object, Patch, Resource, Watch};
use tokio::sync::mpsc;

use crate::objects::Objects;

/// The objects of an API. `W` identifies the client of a watch.
#[derive(Debug)]
pub struct Store<W = ()> {
    objects: Objects,
    watchers: Vec<Watcher<W>>,
    version: u64,
}

#[derive(Debug)]
struct Watcher<W> {
    kind: Kind,
    of: W,
    sender: mpsc::UnboundedSender<Change>,
}

impl<W> Default for Store<W> {
    fn default() -> Self {
        Self { objects: Objects::default(), watchers: Vec::new(), version: 0 }
    }
}

impl<W> Store<W> {
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.len() == 0
    }

    /// # Errors
    /// When there is no such object.
    pub fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.objects.get(key).cloned().ok_or_else(|| ApiError::NotFound { key: key.clone() })
    }

    /// The present state of an object.
    pub fn read<R: Resource>(&self, namespace: &str, name: &str) -> Option<Arc<R>> {
        R::from_object(self.objects.get(&Key::namespaced(R::KIND, namespace, name))?.clone())
    }

    /// All objects of a kind, in the order of their keys.
    pub fn list(&self, kind: Kind) -> Vec<Object> {
        self.objects.list(kind)
    }

    /// The objects of a kind in a namespace, in the order of their keys.
    pub fn list_in(&self, kind: Kind, namespace: &str) -> Vec<Object> {
        self.objects.list_in(kind, namespace)
    }

    /// All objects of a kind and every change from now on.
    pub fn watch(&mut self, kind: Kind, of: W) -> Watch {
        let (sender, receiver) = mpsc::unbounded_channel();
        let present = self.list(kind).into_iter().map(Change::Applied);
        for change in present.chain([Change::Synced]) {
            sender.send(change).expect("the receiver is returned below");
        }
        self.watchers.push(Watcher { kind, of, sender });
        receiver
    }

    /// Ends watches, and returns the kind and owner of each.
    pub fn hang_up(&mut self, ends: impl Fn(&W) -> bool) -> Vec<(Kind, W)> {
        let ended = self.watchers.extract_if(.., |watcher| ends(&watcher.of));
        ended.map(|watcher| (watcher.kind, watcher.of)).collect()
    }

    /// Creates or replaces an object, under a new version. Whether it is new, and the object as stored.
    pub fn put(&mut self, mut object: Object) -> (bool, Object) {
        self.version += 1;
        object.meta_mut().resource_version = self.version.to_string();
        let replaced = self.objects.insert(object.clone());
        self.notify(object.kind(), &Change::Applied(object.clone()));
        (replaced.is_none(), object)
    }

    /// The version of the next change.
    pub fn next_version(&self) -> u64 {
        self.version + 1
    }

    /// Removes an object; `false` if there is none.
    pub fn remove(&mut self, key: &Key) -> bool {
        let Some(object) = self.objects.remove(key) else { return false };
        self.notify(key.kind, &Change::Deleted(object));
        true
    }

    /// # Errors
    /// A conflict when there is such an object.
    pub fn expect_absent(&self, key: &Key) -> Result<(), ApiError> {
        match self.objects.get(key).is_some() {
            true => Err(ApiError::Conflict { key: key.clone(), reason: "it exists already".to_owned() }),
            false => Ok(()),
        }
    }

    /// Changes some fields of an object, and removes it if only its last finalizer was awaited. The object as stored,
    /// and whether it was removed.
    ///
    /// # Errors
    /// When there is no such object, it has another version, or the patch does not fit its kind.
    pub fn patch(&mut self, patch: Patch) -> Result<(Object, bool), ApiError> {
        let Patch { key, resource_version, body } = patch;
        let mut object = self.expect_version(&key, &resource_version)?;
        let refused = |reason: &str| ApiError::Refused { key: key.clone(), reason: reason.to_owned() };
        body.apply(&mut object).map_err(refused)?;
        Ok(self.replace(object))
    }

    /// Replaces an object, and removes it if only its last finalizer was awaited. The object as stored, and whether it
    /// was removed.
    ///
    /// # Errors
    /// When there is no such object, or it has another version.
    pub fn update(&mut self, object: Object) -> Result<(Object, bool), ApiError> {
        let key = object.key();
        self.expect_version(&key, &object.meta().resource_version)?;
        Ok(self.replace(object))
    }

    fn replace(&mut self, object: Object) -> (Object, bool) {
        let (_, stored) = self.put(object);
        let is_released = stored.meta().is_deleting() && stored.meta().finalizers.is_empty();
        let is_removed = is_released && self.remove(&stored.key());
        (stored, is_removed)
    }

    fn expect_version(&self, key: &Key, version: &str) -> Result<Object, ApiError> {
        let object = self.get(key)?;
        let stored = &object.meta().resource_version;
        if !version.is_empty() && version != stored {
            let reason = format!("it is at version {stored} by now");
            return Err(ApiError::Conflict { key: key.clone(), reason });
        }
        Ok(object)
    }

    /// Deletes an object: at once if it has no finalizers, else by marking it.
    ///
    /// # Errors
    /// When there is no such object.
    pub fn delete(&mut self, key: &Key) -> Result<Deletion, ApiError> {
        let object = self.get(key)?;
        if object.meta().finalizers.is_empty() {
            self.remove(key);
            return Ok(Deletion::Done);
        }
        Ok(self.mark(object))
    }

    /// Marks an object as deleted.
    pub fn mark(&mut self, mut object: Object) -> Deletion {
        if object.meta().is_deleting() {
            return Deletion::Awaited;
        }
        object.meta_mut().deleted = Some("2026-01-01T00:00:00Z".to_owned());
        Deletion::Marked(self.put(object).1)
    }

    fn notify(&mut self, kind: Kind, change: &Change) {
        self.watchers.retain(|watcher| watcher.kind != kind || watcher.sender.send(change.clone()).is_ok());
    }
}

/// The effect of a deletion.
#[derive(Debug, Clone, PartialEq)]
pub enum Deletion {
    /// The object is gone.
    Done,
    /// The object is marked now, and is stored like this.
    Marked(Object),
    /// The object was marked before.
    Awaited,
}
