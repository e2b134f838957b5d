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
    ApiError, ApiSource, AttachedVolume, Change, Key, Kind, Object, Patch, PatchBody, Sensitive, Token,
    TokenRequest, Watch,
};

use crate::trace::Trace;

/// The API. Clones are the same API.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedApi {
    trace: Trace,
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
        Self { trace, inner: Arc::new(Mutex::new(inner)) }
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
        let found = self.open().objects.get(&Key::cluster(Kind::Node, node)).cloned();
        let Some(Object::Node(mut node)) = found else { return };
        Arc::make_mut(&mut node).volumes_attached.push(volume);
        self.put(Object::Node(node), "controller");
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
        let mut inner = self.open();
        let (sender, receiver) = mpsc::unbounded_channel();
        let of_kind = inner.objects.values().filter(|object| object.kind() == kind);
        let news = of_kind.cloned().map(Change::Applied).chain([Change::Synced]);
        for change in news {
            sender.send(change).expect("the receiver is returned below");
        }
        inner.watchers.push((kind, sender));
        Ok(receiver)
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.answers().await?;
        Ok(self.put(object, "node"))
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.answers().await?;
        Ok(self.put(object, "node"))
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        let mut object = self.get(&patch.key).await?;
        match (&mut object, patch.body) {
            (Object::Node(node), PatchBody::VolumesInUse(volumes)) => {
                Arc::make_mut(node).volumes_in_use = volumes;
            }
            (Object::Claim(claim), PatchBody::ClaimStatus(status)) => {
                let claim = &mut Arc::make_mut(claim).status;
                claim.capacity = status.capacity.unwrap_or(claim.capacity);
                claim.resize = status.resize.unwrap_or_default();
                claim.conditions = status.conditions.unwrap_or_default();
            }
            _ => {
                let reason = "this cluster knows no such patch".to_owned();
                return Err(ApiError::Refused { key: patch.key, reason });
            }
        }
        Ok(self.put(object, "node"))
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.answers().await?;
        self.remove(key, "node");
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
