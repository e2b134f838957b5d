//! An API in memory: its objects can be read, watched and patched, and it can be made to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use api::{
    ApiError, ApiSource, Claim, Key, Kind, Object, Patch, Resource, Sensitive, Token, TokenRequest, Watch,
};
use async_trait::async_trait;
use tokio::sync::Notify;

use crate::store::Store;

#[derive(Debug, Default)]
pub struct MemoryApi {
    inner: Mutex<Inner>,
    resumed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    store: Store,
    reads: BTreeMap<Kind, u64>,
    patches: Vec<Patch>,
    tokens: Vec<TokenRequest>,
    /// Kinds that cannot be reached.
    down: BTreeSet<Kind>,
    /// Kinds whose requests are not answered.
    silent: BTreeSet<Kind>,
    /// Kinds whose lists and patches are answered late.
    late: BTreeSet<Kind>,
    /// Whether single objects cannot be read.
    hidden: bool,
    /// Whether patches are refused.
    frozen: bool,
    /// Whether a deleted object stays, marked.
    lingers: bool,
}

impl MemoryApi {
    /// Creates or replaces an object.
    pub fn put(&self, object: Object) {
        self.lock().store.put(object);
    }

    pub fn remove(&self, key: &Key) {
        self.lock().store.remove(key);
    }

    /// Ends every stream of changes. A follower begins again, and has missed the changes until then.
    pub fn hang_up(&self) {
        self.lock().store.hang_up(|()| true);
    }

    /// Makes every kind unreachable, or reachable again.
    pub fn set_away(&self, away: bool) {
        Kind::ALL.iter().for_each(|kind| self.set_down(*kind, away));
    }

    /// Makes a kind unreachable, or reachable again.
    pub fn set_down(&self, kind: Kind, down: bool) {
        set(&mut self.lock().down, kind, down);
    }

    /// Makes a kind take requests and answer none of them, or all of them again.
    pub fn set_silent(&self, kind: Kind, silent: bool) {
        set(&mut self.lock().silent, kind, silent);
        self.resumed.notify_waiters();
    }

    /// Makes a kind change at once when it is patched, or be listed as it is, and answer only later; or answer again.
    pub fn set_late(&self, kind: Kind, late: bool) {
        set(&mut self.lock().late, kind, late);
        self.resumed.notify_waiters();
    }

    /// Lets later reads of single objects fail, and not writes.
    pub fn hide(&self) {
        self.lock().hidden = true;
    }

    /// Refuses every later patch as a conflict.
    pub fn freeze(&self) {
        self.lock().frozen = true;
    }

    /// Marks later deleted objects only as deleted, until they are [removed](Self::remove).
    pub fn keep_deleted(&self) {
        self.lock().lingers = true;
    }

    /// The number of requests for one object of a kind.
    pub fn reads(&self, kind: Kind) -> u64 {
        self.lock().reads.get(&kind).copied().unwrap_or_default()
    }

    /// The patches that were asked for.
    pub fn patches(&self) -> Vec<Patch> {
        self.lock().patches.clone()
    }

    /// The tokens that were asked for.
    pub fn tokens(&self) -> Vec<TokenRequest> {
        self.lock().tokens.clone()
    }

    /// All objects of a kind, also while it is unreachable.
    pub fn all(&self, kind: Kind) -> Vec<Object> {
        self.lock().store.list(kind)
    }

    /// All objects of a kind in a namespace, also while it is unreachable.
    pub fn all_in(&self, kind: Kind, namespace: &str) -> Vec<Object> {
        self.lock().store.list_in(kind, namespace)
    }

    /// An object as it is now, also while it is unreachable.
    pub fn read<R: Resource>(&self, namespace: &str, name: &str) -> Option<R> {
        self.lock().store.read(namespace, name).map(|object| R::clone(&object))
    }

    /// A claim, which was put in.
    pub fn claim(&self, namespace: &str, name: &str) -> Claim {
        self.read(namespace, name).expect("the claim was put in")
    }

    /// Returns once no answer about a kind is held back any more.
    async fn resumed(&self, kind: Kind, held: impl Fn(&Inner) -> &BTreeSet<Kind>) {
        loop {
            let resumed = self.resumed.notified();
            if !held(&self.lock()).contains(&kind) {
                return;
            }
            resumed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no test panics while it holds this")
    }

    /// The objects, if a kind can be reached.
    fn reach(&self, kind: Kind) -> Result<MutexGuard<'_, Inner>, ApiError> {
        let inner = self.lock();
        match inner.down.contains(&kind) {
            true => Err(unavailable("connection refused")),
            false => Ok(inner),
        }
    }
}

fn set(kinds: &mut BTreeSet<Kind>, kind: Kind, on: bool) {
    if on {
        kinds.insert(kind);
    } else {
        kinds.remove(&kind);
    }
}

fn unavailable(reason: &str) -> ApiError {
    ApiError::Unavailable { reason: reason.to_owned() }
}

#[async_trait]
impl ApiSource for MemoryApi {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        *self.lock().reads.entry(key.kind).or_default() += 1;
        self.resumed(key.kind, |inner| &inner.silent).await;
        let inner = self.reach(key.kind)?;
        if inner.hidden {
            return Err(unavailable("it cannot be read"));
        }
        inner.store.get(key)
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        let listed = self.reach(kind)?.store.list(kind);
        self.resumed(kind, |inner| &inner.late).await;
        Ok(listed)
    }

    async fn list_in(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, ApiError> {
        let listed = self.reach(kind)?.store.list_in(kind, namespace);
        self.resumed(kind, |inner| &inner.late).await;
        Ok(listed)
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        Ok(self.reach(kind)?.store.watch(kind, ()))
    }

    async fn create(&self, mut object: Object) -> Result<Object, ApiError> {
        let mut inner = self.reach(object.kind())?;
        if let Object::Notification(event) = &object {
            let name = format!("{}.{:04x}", event.about.name, inner.store.next_version());
            object.meta_mut().name = name;
        }
        inner.store.expect_absent(&object.key())?;
        Ok(inner.store.put(object).1)
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        Ok(self.reach(object.kind())?.store.put(object).1)
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        let kind = patch.key.kind;
        self.resumed(kind, |inner| &inner.silent).await;
        let stored = {
            let mut inner = self.reach(kind)?;
            inner.patches.push(patch.clone());
            if inner.frozen {
                return Err(ApiError::Conflict { key: patch.key, reason: "it has changed".to_owned() });
            }
            inner.store.patch(patch)?.0
        };
        self.resumed(kind, |inner| &inner.late).await;
        Ok(stored)
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        let mut inner = self.reach(key.kind)?;
        if inner.lingers {
            let object = inner.store.get(key)?;
            inner.store.mark(object);
        } else {
            inner.store.delete(key)?;
        }
        Ok(())
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        let mut inner = self.reach(Kind::Pod)?;
        inner.tokens.push(request.clone());
        let token = format!("secret-token-for-{}", request.audiences.join("+"));
        Ok(Token { token: Sensitive::new(token), expires: "2030-01-01T00:00:00Z".to_owned() })
    }
}
