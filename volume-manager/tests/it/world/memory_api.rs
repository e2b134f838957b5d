//! An API in memory: what is put in can be read, watched and patched, and can be made to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use api::{
    ApiError, ApiSource, Change, Key, Kind, Object, Patch, PatchBody, Sensitive, Token, TokenRequest, Watch,
};
use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};

#[derive(Debug, Default)]
pub(crate) struct MemoryApi {
    inner: Mutex<Inner>,
    spoken: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<Key, Object>,
    watchers: Vec<(Kind, mpsc::UnboundedSender<Change>)>,
    down: BTreeSet<Kind>,
    silent: BTreeSet<Kind>,
    late: BTreeSet<Kind>,
    version: u64,
    reads: BTreeMap<Kind, u64>,
}

impl MemoryApi {
    pub(crate) fn put(&self, mut object: Object) {
        let mut inner = self.lock();
        inner.version += 1;
        object.meta_mut().resource_version = inner.version.to_string();
        inner.objects.insert(object.key(), object.clone());
        inner.tell(&Change::Applied(object));
    }

    pub(crate) fn remove(&self, key: &Key) {
        let mut inner = self.lock();
        if let Some(object) = inner.objects.remove(key) {
            inner.tell(&Change::Deleted(object));
        }
    }

    /// Ends every stream of changes. Whoever listened begins again, and has missed what happens until then.
    pub(crate) fn hang_up(&self) {
        self.lock().watchers.clear();
    }

    /// Makes a kind unreadable, or readable again.
    pub(crate) fn set_down(&self, kind: Kind, down: bool) {
        let mut inner = self.lock();
        if down {
            inner.down.insert(kind)
        } else {
            inner.down.remove(&kind)
        };
    }

    /// Makes a kind take requests and answer none of them, or all of them again.
    pub(crate) fn set_silent(&self, kind: Kind, silent: bool) {
        let mut inner = self.lock();
        if silent {
            inner.silent.insert(kind);
        } else {
            inner.silent.remove(&kind);
            self.spoken.notify_waiters();
        }
    }

    /// Makes a kind change at once when it is patched, or be listed as it is, and say so only later; or say so again.
    pub(crate) fn set_late(&self, kind: Kind, late: bool) {
        let mut inner = self.lock();
        if late {
            inner.late.insert(kind);
        } else {
            inner.late.remove(&kind);
            self.spoken.notify_waiters();
        }
    }

    async fn answers(&self, kind: Kind, holds: impl Fn(&Inner) -> &BTreeSet<Kind>) {
        loop {
            let spoken = self.spoken.notified();
            if !holds(&self.lock()).contains(&kind) {
                return;
            }
            spoken.await;
        }
    }

    /// How often one object of a kind was asked for.
    pub(crate) fn reads(&self, kind: Kind) -> u64 {
        self.lock().reads.get(&kind).copied().unwrap_or_default()
    }

    pub(crate) fn all(&self, kind: Kind) -> Vec<Object> {
        self.lock().objects.values().filter(|object| object.kind() == kind).cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no test panics while it holds this")
    }
}

impl Inner {
    fn tell(&mut self, change: &Change) {
        let (Change::Applied(object) | Change::Deleted(object)) = change else { return };
        let kind = object.kind();
        self.watchers.retain(|(of, watcher)| *of != kind || watcher.send(change.clone()).is_ok());
    }

    fn check(&self, kind: Kind) -> Result<(), ApiError> {
        if self.down.contains(&kind) {
            return Err(ApiError::Unavailable { reason: "connection refused".to_owned() });
        }
        Ok(())
    }
}

#[async_trait]
impl ApiSource for MemoryApi {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        *self.lock().reads.entry(key.kind).or_default() += 1;
        self.answers(key.kind, |inner| &inner.silent).await;
        let inner = self.lock();
        inner.check(key.kind)?;
        inner.objects.get(key).cloned().ok_or_else(|| ApiError::NotFound { key: key.clone() })
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        self.lock().check(kind)?;
        let listed = self.all(kind);
        self.answers(kind, |inner| &inner.late).await;
        Ok(listed)
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        self.lock().check(kind)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        for object in self.all(kind) {
            sender.send(Change::Applied(object)).expect("the receiver is below");
        }
        sender.send(Change::Synced).expect("the receiver is below");
        self.lock().watchers.push((kind, sender));
        Ok(receiver)
    }

    async fn create(&self, mut object: Object) -> Result<Object, ApiError> {
        self.lock().check(object.kind())?;
        if let Object::Notification(event) = &object {
            let name = format!("{}.{:04x}", event.about.name, self.lock().version + 1);
            object.meta_mut().name = name;
        }
        self.put(object.clone());
        Ok(object)
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.create(object).await
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        let mut object = self.get(&patch.key).await?;
        match (&mut object, patch.body) {
            (Object::Node(node), PatchBody::VolumesAttached(volumes)) => {
                std::sync::Arc::make_mut(node).volumes_attached = volumes;
            }
            (Object::Node(node), PatchBody::VolumesInUse(volumes)) => {
                std::sync::Arc::make_mut(node).volumes_in_use = volumes;
            }
            (Object::Claim(claim), PatchBody::ClaimStatus(patch)) => {
                let status = &mut std::sync::Arc::make_mut(claim).status;
                status.capacity = patch.capacity.unwrap_or(status.capacity);
                status.allocated = patch.allocated.or(status.allocated);
                status.resize = patch.resize.unwrap_or(std::mem::take(&mut status.resize));
                status.conditions = patch.conditions.unwrap_or(std::mem::take(&mut status.conditions));
            }
            (_, body) => panic!("no test needs this yet: {body:?}"),
        }
        self.put(object.clone());
        self.answers(patch.key.kind, |inner| &inner.late).await;
        Ok(object)
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.remove(key);
        Ok(())
    }

    async fn request_token(&self, _: &TokenRequest) -> Result<Token, ApiError> {
        Ok(Token { token: Sensitive::new("token".to_owned()), expires: String::new() })
    }
}
