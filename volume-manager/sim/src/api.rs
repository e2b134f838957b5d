//! The API of a simulated cluster: objects can be read, watched and patched. It can be slow, and it can be
//! unreachable.

mod pace;
pub(crate) mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::shape::shape;
use api::{
    ApiError, ApiSource, AttachedVolume, Change, Key, Kind, Node, Object, Patch, PatchBody, Resource, Token,
    TokenRequest, Watch,
};
use async_trait::async_trait;
use contracts::event::{ApiChange, Client, Disturbance, Event, ObjectKind, Verb};
use serde_json::Value;
use tokio::sync::mpsc;

use self::pace::Pace;
use self::token::Issued;
use crate::crash::{Crash, Life};
use crate::script::{Place, Scenario};
use crate::trace::Trace;

/// The most that a request of the controller, and its answer, takes: it runs beside the API.
const CLOSE_BY: Duration = Duration::from_secs(1);

/// The API for one client. Clones are the same client.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedApi {
    trace: Trace,
    /// The client's name in the trace.
    by: Client,
    /// Decides when the client crashes.
    crash: Option<Crash>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    objects: BTreeMap<Key, Object>,
    watchers: Vec<Watcher>,
    away: bool,
    /// Whether requests hang while the API is unreachable, instead of being refused.
    hangs: bool,
    /// The speed for clients that it is not always fast for.
    paces: BTreeMap<Client, Pace>,
    version: u64,
}

#[derive(Debug)]
struct Watcher {
    kind: Kind,
    sender: mpsc::UnboundedSender<Change>,
    /// The client; without one, changes arrive even while the API is unreachable.
    of: Option<Client>,
}

impl SimulatedApi {
    /// An empty API, for the node.
    pub(crate) fn new(trace: Trace, scenario: &Scenario, crash: Crash) -> Self {
        let inner = Inner {
            objects: BTreeMap::new(),
            watchers: Vec::new(),
            away: false,
            hangs: scenario.api_hangs,
            paces: BTreeMap::from([
                (Client::Node, Pace::new(scenario.seed, scenario.api_delay)),
                (Client::Controller, Pace::new(!scenario.seed, scenario.api_delay.min(CLOSE_BY))),
            ]),
            version: 0,
        };
        Self { trace, by: Client::Node, crash: Some(crash), inner: Arc::new(Mutex::new(inner)) }
    }

    /// The same API for another client.
    pub(crate) fn seen_by(&self, by: Client) -> Self {
        Self { by, crash: None, ..self.clone() }
    }

    /// Creates or replaces an object in the name of `by`.
    pub(crate) fn put(&self, object: Object, by: Client) -> Object {
        let (verb, object) = self.open().store(object);
        let body = shape(&object);
        self.told(verb, &object.key(), by, body);
        object
    }

    /// Lists one more volume as attached in a node's status.
    pub(crate) fn attached(&self, node: &str, volume: AttachedVolume) {
        self.change("", node, |node: &mut Node| node.volumes_attached.push(volume));
    }

    /// Changes an object in the name of a controller whose requests never fail.
    pub(crate) fn change<R: Resource>(&self, namespace: &str, name: &str, change: impl FnOnce(&mut R)) {
        let Some(mut object) = self.find::<R>(namespace, name) else { return };
        change(Arc::make_mut(&mut object));
        self.put(Arc::unwrap_or_clone(object).into_object(), Client::Controller);
    }

    /// The present state of an object.
    pub(crate) fn find<R: Resource>(&self, namespace: &str, name: &str) -> Option<Arc<R>> {
        let key = Key::namespaced(R::KIND, namespace, name);
        R::from_object(self.open().objects.get(&key).cloned()?)
    }

    /// The present state of all objects of a kind.
    pub(crate) fn all<R: Resource>(&self) -> Vec<Arc<R>> {
        let inner = self.open();
        let of_kind = inner.objects.values().filter(|object| object.kind() == R::KIND);
        of_kind.cloned().filter_map(R::from_object).collect()
    }

    /// All objects of a kind and every change from now on, even while the API is unreachable.
    pub(crate) fn follow(&self, kind: Kind) -> Watch {
        self.listen(kind, None)
    }

    fn listen(&self, kind: Kind, of: Option<Client>) -> Watch {
        let mut inner = self.open();
        let (sender, receiver) = mpsc::unbounded_channel();
        let of_kind = inner.objects.values().filter(|object| object.kind() == kind);
        let news = of_kind.cloned().map(Change::Applied).chain([Change::Synced]);
        for change in news {
            sender.send(change).expect("the receiver is returned below");
        }
        inner.watchers.push(Watcher { kind, sender, of });
        drop(inner);
        self.told_hearing(true, of, kind);
        receiver
    }

    /// Records that the node starts or stops to receive changes of a kind.
    fn told_hearing(&self, hears: bool, of: Option<Client>, kind: Kind) {
        if of == Some(Client::Node) {
            let kind = object_kind(kind);
            let heard =
                if hears { Disturbance::KindHeard { kind } } else { Disturbance::KindUnheard { kind } };
            self.trace.record(Event::Disturbed(heard));
        }
    }

    /// Deletes an object in the name of `by`.
    pub(crate) fn remove(&self, key: &Key, by: Client) {
        let removed = self.open().remove(key);
        if removed {
            self.told(Verb::Delete, key, by, Value::Null);
        }
    }

    /// Makes the API unreachable, so that requests fail and watches end, or reachable again.
    pub(crate) fn set_away(&self, away: bool) {
        let mut inner = self.open();
        inner.away = away;
        let ended = inner.watchers.extract_if(.., |watcher| away && watcher.of.is_some());
        let ended: Vec<_> = ended.collect();
        drop(inner);
        ended.iter().for_each(|watcher| self.told_hearing(false, watcher.of, watcher.kind));
    }

    /// Makes the API reachable and fast.
    pub(crate) fn heal(&self) {
        let mut inner = self.open();
        inner.away = false;
        inner.paces.values_mut().for_each(Pace::heal);
    }

    fn told(&self, verb: Verb, key: &Key, by: Client, body: Value) {
        self.trace.record(Event::Api(ApiChange {
            verb,
            kind: object_kind(key.kind),
            object: if key.namespace.is_empty() {
                key.name.clone()
            } else {
                format!("{}/{}", key.namespace, key.name)
            },
            by,
            body,
        }));
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one request. The client may crash before or after it takes effect.
    async fn serve<T>(&self, act: impl FnOnce() -> Result<T, ApiError>) -> Result<T, ApiError> {
        let life = self.crash.as_ref().map_or(Life::GoesOn, |crash| crash.reach(Place::Request));
        if life == Life::Ended {
            return std::future::pending().await;
        }
        self.takes_its_time().await;
        let answer = self.answers(act).await;
        if life == Life::EndsAfter {
            self.crash.iter().for_each(Crash::happens);
            return std::future::pending().await;
        }
        self.takes_its_time().await;
        answer
    }

    /// Serves a request if the API is reachable.
    async fn answers<T>(&self, act: impl FnOnce() -> Result<T, ApiError>) -> Result<T, ApiError> {
        let (away, hangs) = {
            let inner = self.open();
            (inner.away, inner.hangs)
        };
        match (away, hangs) {
            (false, _) => act(),
            (true, false) => Err(ApiError::Unavailable { reason: "connection refused".to_owned() }),
            (true, true) => std::future::pending().await,
        }
    }

    async fn takes_its_time(&self) {
        let time = self.open().paces.get_mut(&self.by).map(Pace::next).unwrap_or_default();
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }

    /// The same changes in the same order, each with a delay.
    fn late(&self, mut watch: Watch) -> Watch {
        let (sender, receiver) = mpsc::unbounded_channel();
        let api = self.clone();
        tokio::spawn(async move {
            while let Some(change) = watch.recv().await {
                api.takes_its_time().await;
                if sender.send(change).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    fn object(&self, key: &Key) -> Result<Object, ApiError> {
        let inner = self.open();
        inner.objects.get(key).cloned().ok_or_else(|| ApiError::NotFound { key: key.clone() })
    }

    fn patched(&self, patch: Patch) -> Result<Object, ApiError> {
        let mut object = self.object(&patch.key)?;
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
            (
                Object::Attachment(attachment),
                PatchBody::AttachmentStatus { attached, metadata, attach_error, detach_error },
            ) => {
                let known = Arc::make_mut(attachment);
                (known.attached, known.metadata) = (attached, metadata);
                (known.attach_error, known.detach_error) = (attach_error, detach_error);
            }
            (object, PatchBody::Finalizers(finalizers)) => object.meta_mut().finalizers = finalizers,
            (object, PatchBody::Metadata { annotations, .. }) => {
                let set = annotations.into_iter().filter_map(|(key, value)| Some((key, value?)));
                object.meta_mut().annotations.extend(set);
            }
            _ => {
                let reason = "this cluster knows no such patch".to_owned();
                return Err(ApiError::Refused { key: patch.key, reason });
            }
        }
        let released = object.meta().is_deleting() && object.meta().finalizers.is_empty();
        let object = self.put(object, self.by);
        if released {
            self.remove(&object.key(), self.by);
        }
        Ok(object)
    }

    fn created(&self, object: Object) -> Result<Object, ApiError> {
        if matches!(object, Object::Notification(_)) {
            // No reader of the API needs Kubernetes events, and the manager's notice of them is in the trace.
            return Ok(object);
        }
        let key = object.key();
        if self.open().objects.contains_key(&key) {
            return Err(ApiError::Conflict { key, reason: "it exists already".to_owned() });
        }
        Ok(self.put(object, self.by))
    }

    fn deleted(&self, key: &Key) -> Result<(), ApiError> {
        let mut object = self.object(key)?;
        let meta = object.meta_mut();
        if meta.finalizers.is_empty() {
            self.remove(key, self.by);
        } else if !meta.is_deleting() {
            meta.deleted = Some("2026-01-01T00:00:00Z".to_owned());
            self.put(object, self.by);
        }
        Ok(())
    }
}

/// The word of a trace for a kind of object.
fn object_kind(kind: Kind) -> ObjectKind {
    kind.as_str().parse().expect("a trace knows each kind")
}

impl Inner {
    fn store(&mut self, mut object: Object) -> (Verb, Object) {
        self.version += 1;
        object.meta_mut().resource_version = self.version.to_string();
        let verb = match self.objects.insert(object.key(), object.clone()) {
            Some(_) => Verb::Update,
            None => Verb::Create,
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
        self.watchers.retain(|watcher| watcher.kind != kind || watcher.sender.send(change.clone()).is_ok());
    }
}

#[async_trait]
impl ApiSource for SimulatedApi {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.serve(|| self.object(key)).await
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        let of_kind = |object: &&Object| object.kind() == kind;
        self.serve(|| Ok(self.open().objects.values().filter(of_kind).cloned().collect())).await
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        if self.open().away {
            self.told_hearing(false, Some(self.by), kind);
        }
        self.serve(|| Ok(self.late(self.listen(kind, Some(self.by))))).await
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.serve(|| self.created(object)).await
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.serve(|| Ok(self.put(object, self.by))).await
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        self.serve(|| self.patched(patch)).await
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.serve(|| self.deleted(key)).await
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        self.serve(|| Ok(Issued::at(self.trace.now(), request))).await
    }
}

impl fmt::Display for SimulatedApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects", self.open().objects.len())
    }
}
