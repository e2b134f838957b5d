//! The API of a simulated cluster: what is put in can be read, watched and patched, and it can go away.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use contracts::event::{ApiChange, Event};
use serde_json::Value;
use tokio::sync::mpsc;
use volume_manager::api::convert::shape;
use volume_manager::api::{
    ApiError, ApiSource, AttachedVolume, Change, Key, Kind, Node, Object, Patch, PatchBody, Resource,
    Sensitive, Token, TokenRequest, Watch,
};

use crate::trace::Trace;

/// The API, as somebody sees it. Clones are the same API.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedApi {
    trace: Trace,
    /// What the trace calls whoever asks.
    by: &'static str,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<Key, Object>,
    watchers: Vec<(Kind, mpsc::UnboundedSender<Change>)>,
    away: bool,
    /// Whether one that is away says nothing instead of refusing.
    hangs: bool,
    version: u64,
}

impl SimulatedApi {
    pub(crate) fn new(trace: Trace, hangs: bool) -> Self {
        let inner = Inner { hangs, ..Inner::default() };
        Self { trace, by: "node", inner: Arc::new(Mutex::new(inner)) }
    }

    /// The same API for somebody else than the node.
    pub(crate) fn seen_by(&self, by: &'static str) -> Self {
        Self { by, ..self.clone() }
    }

    /// Puts an object there, new or changed, whoever did it.
    pub(crate) fn put(&self, object: Object, by: &str) -> Object {
        let (verb, object) = self.open().store(object);
        let body = shape(&object);
        self.told(verb, &object.key(), by, body);
        object
    }

    /// Says in a node's status that one more volume is attached to it.
    pub(crate) fn attached(&self, node: &str, volume: AttachedVolume) {
        self.change("", node, |node: &mut Node| node.volumes_attached.push(volume));
    }

    /// Changes an object, as a controller whom the API never fails.
    pub(crate) fn change<R: Resource>(&self, namespace: &str, name: &str, change: impl FnOnce(&mut R)) {
        let Some(mut object) = self.find::<R>(namespace, name) else { return };
        change(Arc::make_mut(&mut object));
        self.put(Arc::unwrap_or_clone(object).into_object(), "controller");
    }

    /// An object as it is now.
    pub(crate) fn find<R: Resource>(&self, namespace: &str, name: &str) -> Option<Arc<R>> {
        let key = Key::namespaced(R::KIND, namespace, name);
        R::from_object(self.open().objects.get(&key).cloned()?)
    }

    /// All objects of a kind as they are now.
    pub(crate) fn all<R: Resource>(&self) -> Vec<Arc<R>> {
        let inner = self.open();
        let of_kind = inner.objects.values().filter(|object| object.kind() == R::KIND);
        of_kind.cloned().filter_map(R::from_object).collect()
    }

    /// All objects of a kind, and every change from now on, whether or not the API is away.
    pub(crate) fn follow(&self, kind: Kind) -> Watch {
        let mut inner = self.open();
        let (sender, receiver) = mpsc::unbounded_channel();
        let of_kind = inner.objects.values().filter(|object| object.kind() == kind);
        let news = of_kind.cloned().map(Change::Applied).chain([Change::Synced]);
        for change in news {
            sender.send(change).expect("the receiver is returned below");
        }
        inner.watchers.push((kind, sender));
        receiver
    }

    /// Takes an object away.
    pub(crate) fn remove(&self, key: &Key, by: &str) {
        let removed = self.open().remove(key);
        if removed {
            self.told("delete", key, by, Value::Null);
        }
    }

    /// Lets every request fail, or work again.
    pub(crate) fn set_away(&self, away: bool) {
        self.open().away = away;
    }

    fn told(&self, verb: &str, key: &Key, by: &str, body: Value) {
        self.trace.record(Event::Api(ApiChange {
            verb: verb.to_owned(),
            kind: key.kind.to_string(),
            object: if key.namespace.is_empty() {
                key.name.clone()
            } else {
                format!("{}/{}", key.namespace, key.name)
            },
            by: by.to_owned(),
            body,
        }));
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns if the API answers.
    async fn answers(&self) -> Result<(), ApiError> {
        let (away, hangs) = {
            let inner = self.open();
            (inner.away, inner.hangs)
        };
        match (away, hangs) {
            (false, _) => Ok(()),
            (true, false) => Err(ApiError::Unavailable { reason: "connection refused".to_owned() }),
            (true, true) => std::future::pending().await,
        }
    }
}

impl Inner {
    fn store(&mut self, mut object: Object) -> (&'static str, Object) {
        self.version += 1;
        object.meta_mut().resource_version = self.version.to_string();
        let verb = match self.objects.insert(object.key(), object.clone()) {
            Some(_) => "update",
            None => "create",
        };
        self.tell(object.kind(), &Change::Applied(object.clone()));
        (verb, object)
    }

    fn remove(&mut self, key: &Key) -> bool {
        let Some(object) = self.objects.remove(key) else { return false };
        self.tell(key.kind, &Change::Deleted(object));
        true
    }

    fn tell(&mut self, kind: Kind, change: &Change) {
        self.watchers.retain(|(of, watcher)| *of != kind || watcher.send(change.clone()).is_ok());
    }
}

#[async_trait]
impl ApiSource for SimulatedApi {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.answers().await?;
        let inner = self.open();
        inner.objects.get(key).cloned().ok_or_else(|| ApiError::NotFound { key: key.clone() })
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        self.answers().await?;
        let inner = self.open();
        Ok(inner.objects.values().filter(|object| object.kind() == kind).cloned().collect())
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        self.answers().await?;
        Ok(self.follow(kind))
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.answers().await?;
        if matches!(object, Object::Notification(_)) {
            // Nobody reads them here, and the manager's own word of them is in the trace.
            return Ok(object);
        }
        let key = object.key();
        if self.open().objects.contains_key(&key) {
            return Err(ApiError::Conflict { key, reason: "it exists already".to_owned() });
        }
        Ok(self.put(object, self.by))
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.answers().await?;
        Ok(self.put(object, self.by))
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        let mut object = self.get(&patch.key).await?;
        let version = &object.meta().resource_version;
        if !patch.resource_version.is_empty() && patch.resource_version != *version {
            let reason = format!("it is at version {version} by now");
            return Err(ApiError::Conflict { key: patch.key, reason });
        }
        match (&mut object, patch.body) {
            (Object::Node(node), PatchBody::VolumesInUse(volumes)) => {
                Arc::make_mut(node).volumes_in_use = volumes;
            }
            (Object::Node(node), PatchBody::VolumesAttached(volumes)) => {
                Arc::make_mut(node).volumes_attached = volumes;
            }
            (Object::Claim(claim), PatchBody::ClaimStatus(status)) => {
                let known = &mut Arc::make_mut(claim).status;
                known.capacity = status.capacity.unwrap_or(known.capacity);
                known.resize = status.resize.unwrap_or_else(|| std::mem::take(&mut known.resize));
                known.conditions = status.conditions.unwrap_or_else(|| std::mem::take(&mut known.conditions));
            }
            _ => {
                let reason = "this cluster knows no such patch".to_owned();
                return Err(ApiError::Refused { key: patch.key, reason });
            }
        }
        Ok(self.put(object, self.by))
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        let mut object = self.get(key).await?;
        let meta = object.meta_mut();
        if meta.finalizers.is_empty() {
            self.remove(key, self.by);
        } else if !meta.is_deleting() {
            meta.deleted = Some("2026-01-01T00:00:00Z".to_owned());
            self.put(object, self.by);
        }
        Ok(())
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        self.answers().await?;
        let token = Sensitive::new(format!("token-for-{}", request.audiences.join("+")));
        Ok(Token { token, expires: "2030-01-01T00:00:00Z".to_owned() })
    }
}

impl fmt::Display for SimulatedApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects", self.open().objects.len())
    }
}
