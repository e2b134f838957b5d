//! The API of a simulated cluster: objects can be read, watched and patched. It can be slow, and it can be
//! unreachable.

mod pace;
pub(crate) mod token;
mod troubles;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::shape::shape;
use api::{
    ApiError, ApiSource, AttachedVolume, Key, Kind, Node, Object, Patch, Resource, Token, TokenRequest, Watch,
};
use async_trait::async_trait;
use contracts::event::{ApiChange, Client, Disturbance, Event, ObjectKind, Verb};
use serde_json::Value;
use testing::{Deletion, Store};
use tokio::sync::mpsc;

use self::pace::Pace;
use self::token::Issued;
use self::troubles::{Troubles, Unanswered};
use crate::crash::{Crash, Life};
use crate::script::{CrashPoint, Scenario};
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
    /// Each watch with its client; without one, changes arrive even while the API is unreachable.
    store: Store<Option<Client>>,
    away: bool,
    /// Whether requests hang while the API is unreachable, instead of being refused.
    hangs: bool,
    /// The speed for clients that it is not always fast for.
    paces: BTreeMap<Client, Pace>,
    /// The requests of the controllers that fail.
    troubles: Troubles,
}

impl SimulatedApi {
    /// An empty API, for the node.
    pub(crate) fn new(trace: Trace, scenario: &Scenario, crash: Crash) -> Self {
        let inner = Inner {
            store: Store::default(),
            away: false,
            hangs: scenario.api_hangs,
            paces: BTreeMap::from([
                (Client::Node, Pace::new(scenario.seed, scenario.api_delay)),
                (Client::Controller, Pace::new(!scenario.seed, scenario.api_delay.min(CLOSE_BY))),
            ]),
            troubles: Troubles::new(scenario.seed, scenario.api_faults),
        };
        Self { trace, by: Client::Node, crash: Some(crash), inner: Arc::new(Mutex::new(inner)) }
    }

    /// The same API for another client.
    pub(crate) fn seen_by(&self, by: Client, crash: Crash) -> Self {
        Self { by, crash: Some(crash), ..self.clone() }
    }

    /// Creates or replaces an object in the name of `by`.
    pub(crate) fn put(&self, object: Object, by: Client) -> Object {
        let (is_new, object) = self.open().store.put(object);
        let verb = if is_new { Verb::Create } else { Verb::Update };
        self.record(verb, &object.key(), by, shape(&object));
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

    /// Changes an object in the name of a user.
    pub(crate) fn change_by_user<R: Resource>(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut R),
    ) {
        let Some(mut object) = self.find::<R>(namespace, name) else { return };
        change(Arc::make_mut(&mut object));
        self.put(Arc::unwrap_or_clone(object).into_object(), Client::Case);
    }

    /// The present state of all objects of a kind that is not known before.
    pub(crate) fn all_of(&self, kind: Kind) -> Vec<Object> {
        self.open().store.list(kind)
    }

    /// The present state of an object.
    pub(crate) fn find<R: Resource>(&self, namespace: &str, name: &str) -> Option<Arc<R>> {
        self.open().store.read(namespace, name)
    }

    /// The present state of all objects of a kind.
    pub(crate) fn all<R: Resource>(&self) -> Vec<Arc<R>> {
        self.open().store.list(R::KIND).into_iter().filter_map(R::from_object).collect()
    }

    /// All objects of a kind and every change from now on, even while the API is unreachable.
    pub(crate) fn follow(&self, kind: Kind) -> Watch {
        self.listen(kind, None)
    }

    fn listen(&self, kind: Kind, of: Option<Client>) -> Watch {
        let watch = self.open().store.watch(kind, of);
        self.record_hearing(true, of, kind);
        watch
    }

    /// Records that the node starts or stops to receive changes of a kind.
    fn record_hearing(&self, hears: bool, of: Option<Client>, kind: Kind) {
        if of == Some(Client::Node) {
            let kind = object_kind(kind);
            let heard =
                if hears { Disturbance::KindHeard { kind } } else { Disturbance::KindUnheard { kind } };
            self.trace.record(Event::Disturbed(heard));
        }
    }

    /// Deletes an object in the name of `by`.
    pub(crate) fn remove(&self, key: &Key, by: Client) {
        let removed = self.open().store.remove(key);
        if removed {
            self.record(Verb::Delete, key, by, Value::Null);
        }
    }

    /// Makes the API unreachable, so that requests fail and watches end, or reachable again.
    pub(crate) fn set_away(&self, away: bool) {
        let ended = {
            let mut inner = self.open();
            inner.away = away;
            inner.store.hang_up(|of| away && of.is_some())
        };
        ended.into_iter().for_each(|(kind, of)| self.record_hearing(false, of, kind));
    }

    /// Makes the API reachable and fast.
    pub(crate) fn heal(&self) {
        let mut inner = self.open();
        inner.away = false;
        inner.paces.values_mut().for_each(Pace::heal);
        inner.troubles.heal();
    }

    /// Deletes an object in the name of a user: at once if it has no finalizers, else by marking it.
    pub(crate) fn delete_by_user(&self, key: &Key) {
        // It may be gone by now.
        self.seen_by(Client::Case, Crash::default()).deleted(key).ok();
    }

    fn record(&self, verb: Verb, key: &Key, by: Client, body: Value) {
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
        let life = self.crash.as_ref().map_or(Life::GoesOn, |crash| crash.reach(CrashPoint::Request));
        if life == Life::Ended {
            return std::future::pending().await;
        }
        self.takes_its_time().await;
        let unanswered = match self.by {
            Client::Controller => self.open().troubles.next(),
            _ => None,
        };
        let answer = match unanswered {
            None => self.answers(act).await,
            Some(Unanswered::Before) => Err(lost()),
            Some(Unanswered::After) => self.answers(act).await.and_then(|_| Err(lost())),
        };
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

    fn patched(&self, patch: Patch) -> Result<Object, ApiError> {
        let changed = self.open().store.patch(patch)?;
        Ok(self.changed(changed))
    }

    fn created(&self, object: Object) -> Result<Object, ApiError> {
        if matches!(object, Object::Notification(_)) {
            // No reader of the API needs Kubernetes events, and the manager's notice of them is in the trace.
            return Ok(object);
        }
        self.open().store.expect_absent(&object.key())?;
        Ok(self.put(self.admitted(object), self.by))
    }

    /// A new object as an API server stores it: with an identity, and protected.
    pub(crate) fn admitted(&self, mut object: Object) -> Object {
        let uid = format!("{}-{}", object.kind().as_str().to_lowercase(), self.open().store.next_version());
        let meta = object.meta_mut();
        if meta.uid.is_empty() {
            meta.uid = uid;
        }
        api::protection::guard(&mut object);
        object
    }

    fn updated(&self, object: Object) -> Result<Object, ApiError> {
        let changed = self.open().store.update(object)?;
        Ok(self.changed(changed))
    }

    /// Tells of an object that was changed, and whether it was removed by that.
    fn changed(&self, (object, is_removed): (Object, bool)) -> Object {
        self.record(Verb::Update, &object.key(), self.by, shape(&object));
        if is_removed {
            self.record(Verb::Delete, &object.key(), self.by, Value::Null);
        }
        object
    }

    fn deleted(&self, key: &Key) -> Result<(), ApiError> {
        let deletion = self.open().store.delete(key)?;
        match deletion {
            Deletion::Done => self.record(Verb::Delete, key, self.by, Value::Null),
            Deletion::Marked(object) => self.record(Verb::Update, key, self.by, shape(&object)),
            Deletion::Awaited => {}
        }
        Ok(())
    }
}

/// An answer that does not arrive.
fn lost() -> ApiError {
    ApiError::Unavailable { reason: "connection reset".to_owned() }
}

/// The word of a trace for a kind of object.
fn object_kind(kind: Kind) -> ObjectKind {
    kind.as_str().parse().expect("a trace knows each kind")
}

#[async_trait]
impl ApiSource for SimulatedApi {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.serve(|| self.open().store.get(key)).await
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        self.serve(|| Ok(self.open().store.list(kind))).await
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        if self.open().away {
            self.record_hearing(false, Some(self.by), kind);
        }
        self.serve(|| Ok(self.late(self.listen(kind, Some(self.by))))).await
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.serve(|| self.created(object)).await
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.serve(|| self.updated(object)).await
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
        write!(f, "{} objects", self.open().store.len())
    }
}
