//! A few API objects that can be read and patched, and an API that can be away.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::{
    ApiError, ApiSource, Change, Claim, CsiNode, Key, Kind, Object, Patch, PatchBody, Resource, Sensitive,
    Token, TokenRequest, Watch,
};
use async_trait::async_trait;
use tokio::sync::mpsc;

#[derive(Debug, Default)]
pub(crate) struct ToyApi {
    objects: Mutex<BTreeMap<Key, Object>>,
    away: Mutex<bool>,
    /// Whether single objects cannot be read, while writes go through.
    unreadable: Mutex<bool>,
    /// Whether somebody has still to finish what is deleted.
    lingers: Mutex<bool>,
    tokens: Mutex<Vec<TokenRequest>>,
    patches: Mutex<Vec<Patch>>,
    /// Whether patches are refused.
    frozen: Mutex<bool>,
    watchers: Mutex<Vec<(Kind, mpsc::UnboundedSender<Change>)>>,
}

impl ToyApi {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<Key, Object>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, object: Object) {
        self.objects().insert(object.key(), object.clone());
        for (_, watcher) in self.watchers().iter().filter(|(kind, _)| *kind == object.kind()) {
            // Who has stopped listening does not want to know.
            let _ = watcher.send(Change::Applied(object.clone()));
        }
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<(Kind, mpsc::UnboundedSender<Change>)>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on every patch is refused as a conflict.
    pub(crate) fn freeze(&self) {
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// The patches that were asked for.
    pub(crate) fn patches(&self) -> Vec<Patch> {
        self.patches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether nobody answers.
    pub(crate) fn set_away(&self, away: bool) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = away;
    }

    /// From now on no single object can be read, while writes go through.
    pub(crate) fn hide(&self) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// From now on what is deleted is only marked so, until somebody [removes](Self::remove) it.
    pub(crate) fn keep_deleted(&self) {
        *self.lingers.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.objects().remove(key);
    }

    /// The tokens that were asked for.
    pub(crate) fn tokens(&self) -> Vec<TokenRequest> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn check(&self) -> Result<(), ApiError> {
        match *self.away.lock().unwrap_or_else(PoisonError::into_inner) {
            true => Err(ApiError::Unavailable { reason: "it is away".into() }),
            false => Ok(()),
        }
    }

    /// An object as it is now.
    pub(crate) fn read<R: Resource + Default>(&self, namespace: &str, name: &str) -> Option<R> {
        let object = self.objects().get(&Key::namespaced(R::KIND, namespace, name)).cloned()?;
        Some(R::from_object(object).expect("kinds are kept apart").as_ref().clone())
    }

    pub(crate) fn claim(&self, namespace: &str, name: &str) -> Claim {
        self.read(namespace, name).expect("the claim was put in")
    }
}

#[async_trait]
impl ApiSource for ToyApi {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.check()?;
        if *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(ApiError::Unavailable { reason: "it cannot be read".into() });
        }
        self.objects().get(key).cloned().ok_or_else(|| ApiError::NotFound { key: key.clone() })
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        self.check()?;
        Ok(self.objects().values().filter(|object| object.kind() == kind).cloned().collect())
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        let (sender, watch) = mpsc::unbounded_channel();
        let there = self.list(kind).await?.into_iter().map(Change::Applied);
        for change in there.chain([Change::Synced]) {
            sender.send(change).expect("its receiver is still here");
        }
        self.watchers().push((kind, sender));
        Ok(watch)
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.check()?;
        let key = object.key();
        if self.objects().contains_key(&key) {
            return Err(ApiError::Conflict { key, reason: "it exists".into() });
        }
        self.put(object.clone());
        Ok(object)
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.check()?;
        self.put(object.clone());
        Ok(object)
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        self.check()?;
        self.patches.lock().unwrap_or_else(PoisonError::into_inner).push(patch.clone());
        if *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(ApiError::Conflict { key: patch.key, reason: "it has changed".into() });
        }
        let mut objects = self.objects();
        let object = objects.get_mut(&patch.key);
        let object = object.ok_or_else(|| ApiError::NotFound { key: patch.key.clone() })?;
        match patch.body {
            PatchBody::ClaimStatus(status) => {
                let mut claim =
                    Claim::from_object(object.clone()).expect("only claims have it").as_ref().clone();
                claim.status.capacity = status.capacity.unwrap_or(claim.status.capacity);
                claim.status.allocated = status.allocated.or(claim.status.allocated);
                claim.status.resize = status.resize.unwrap_or(claim.status.resize);
                claim.status.conditions = status.conditions.unwrap_or(claim.status.conditions);
                *object = claim.into_object();
            }
            PatchBody::CsiNodeDrivers(drivers) => {
                let mut node =
                    CsiNode::from_object(object.clone()).expect("only these have it").as_ref().clone();
                node.drivers = drivers;
                *object = node.into_object();
            }
            PatchBody::Metadata { labels, annotations } => {
                let meta = object.meta_mut();
                for (present, changes) in [(&mut meta.labels, labels), (&mut meta.annotations, annotations)] {
                    for (key, value) in changes {
                        match value {
                            Some(value) => present.insert(key, value),
                            None => present.remove(&key),
                        };
                    }
                }
            }
            other => unreachable!("nothing here patches {other:?}"),
        }
        Ok(object.clone())
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.check()?;
        let mut objects = self.objects();
        let object = objects.get_mut(key).ok_or_else(|| ApiError::NotFound { key: key.clone() })?;
        if *self.lingers.lock().unwrap_or_else(PoisonError::into_inner) {
            object.meta_mut().deleted = Some("2026-01-01T00:00:00Z".into());
        } else {
            objects.remove(key);
        }
        Ok(())
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        self.check()?;
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let token = format!("secret-token-for-{}", request.audiences.join("+"));
        Ok(Token { token: Sensitive::new(token), expires: "2030-01-01T00:00:00Z".into() })
    }
}
