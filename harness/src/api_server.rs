//! The API server: the objects of a cluster, in memory, and the controllers that act on them.
//!
//! [`ApiServer`] is the store. A case writes to it directly; the node's process reaches it through a socket
//! ([`ApiServer::serve`] on this side, [`ApiClient`] on the other). Every change is a line of the journal. What
//! a provisioner does in a cluster is done here by [`Provisioner`], with calls that go through the proxy, so that they
//! are in the trace. Touches nothing but its socket.

mod addresses;
mod by_hand;
mod change_log;
mod client;
mod disturbance;
mod driver_objects;
mod http;
mod provisioner;
mod records;
mod serve;
mod store;
mod time;
mod wire;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{ApiError, ApiSource, Key, Kind, Object, Patch, Resource, Sensitive, Token, TokenRequest, Watch};
use async_trait::async_trait;
use contracts::event::Client;
use futures::future::select_all;

use crate::journal::Journal;
use disturbance::Disturbances;
use store::Store;

pub use client::{ApiClient, ClientError};
pub use disturbance::Disturbance;
pub use driver_objects::driver_object;
pub use http::{HttpApi, HttpApiError};
pub use provisioner::{ContentSource, ProvisionError, Provisioned, Provisioner, VolumeRequest};
pub use serve::{ServeError, Served};
pub(crate) use time::now;

/// The namespace of all pods, claims and secrets of a test.
pub(crate) const NAMESPACE: &str = "default";

/// The API objects of one api. Clones are the same api.
#[derive(Debug, Clone)]
pub struct ApiServer {
    journal: Journal,
    store: Arc<Mutex<Store>>,
    disturbances: Arc<Disturbances>,
}

impl ApiServer {
    /// An API server without any object.
    pub fn new(journal: Journal) -> Self {
        let store = Arc::new(Mutex::new(Store::new(journal.clone())));
        Self { journal, store, disturbances: Arc::default() }
    }

    /// The journal its changes are written to.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The same API for another node with a journal of its own. From now on, changes that concern that node are recorded in
    /// its journal only.
    #[must_use]
    pub fn recorded_in(&self, node: &str, journal: Journal) -> Self {
        self.store().record_in(node, journal.clone());
        Self { journal, ..self.clone() }
    }

    /// Makes an object, as the case's author would with `kubectl create`.
    ///
    /// # Errors
    /// When it exists already.
    pub fn create<R: Resource>(&self, object: R) -> Result<Arc<R>, ApiError> {
        typed(self.store().create(object.into_object(), Client::Case)?)
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// When it does not exist, or has changed since it was read.
    pub fn update<R: Resource>(&self, object: R) -> Result<Arc<R>, ApiError> {
        typed(self.store().update(object.into_object(), Client::Case)?)
    }

    /// Changes an object in place, at any version.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn change<R: Resource>(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut R),
    ) -> Result<Arc<R>, ApiError> {
        let mut store = self.store();
        let known: Arc<R> = typed(store.get(&Key::namespaced(R::KIND, namespace, name))?)?;
        let mut object = R::clone(&known);
        change(&mut object);
        typed(store.update(object.into_object(), Client::Case)?)
    }

    /// Writes to some fields of an object, as a controller.
    ///
    /// # Errors
    /// When it does not exist, or the write does not fit it.
    pub fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        self.store().patch(patch, Client::Controller)
    }

    /// Deletes an object: at once if it has no finalizers, else by marking it.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn delete<R: Resource>(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        self.store().delete(&Key::namespaced(R::KIND, namespace, name), Client::Case)
    }

    /// An object as it is now.
    pub fn get<R: Resource>(&self, namespace: &str, name: &str) -> Option<Arc<R>> {
        let object = self.store().get(&Key::namespaced(R::KIND, namespace, name)).ok()?;
        R::from_object(object)
    }

    /// All objects of a kind, in the order of their keys.
    pub fn list<R: Resource>(&self) -> Vec<Arc<R>> {
        self.store().list(R::KIND).into_iter().filter_map(R::from_object).collect()
    }

    /// Every value that was ever in a secret, and every token that was issued. None of them may appear in a log.
    pub fn confided(&self) -> Vec<Sensitive<Vec<u8>>> {
        self.store().confided().to_vec()
    }

    /// Every object of a kind as it is now, then each change.
    pub fn watch(&self, kind: Kind) -> Watch {
        self.store().watch(kind)
    }

    /// Waits until an object does not exist.
    pub async fn wait_gone(&self, key: &Key) {
        self.wait_for(&[key.kind], || self.store().get(key).is_err().then_some(())).await;
    }

    /// Waits until `found` finds something. It looks again when an object of these kinds has changed.
    pub async fn wait_for<T>(&self, kinds: &[Kind], found: impl Fn() -> Option<T>) -> T {
        let mut watches: Vec<Watch> = kinds.iter().map(|kind| self.watch(*kind)).collect();
        loop {
            if let Some(value) = found() {
                return value;
            }
            let changes = watches.iter_mut().map(|watch| Box::pin(watch.recv()));
            let (change, of_kind, _) = select_all(changes).await;
            if change.is_none() {
                // The watch was hung up on.
                watches[of_kind] = self.watch(kinds[of_kind]);
            }
        }
    }

    /// Hangs up on all that watch a kind, as an API server does from time to time. They may watch again.
    pub fn hang_up(&self, kind: Kind) {
        self.store().hang_up(kind);
    }

    /// Spoils requests from now on, those of the node only.
    pub fn disturb(&self, disturbance: Disturbance) {
        self.disturbances.add(disturbance);
    }

    /// Takes back all disturbances.
    pub fn calm(&self) {
        self.disturbances.clear();
    }

    /// The API server as a client sees it: `by` is its name in the journal.
    pub fn seen_by(&self, by: Client) -> Arc<dyn ApiSource> {
        Arc::new(View { api: self.clone(), by })
    }

    /// Serves the node at a socket.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn serve(&self, socket: &Path) -> Result<Served, ServeError> {
        serve::serve(self.seen_by(Client::Node), socket)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Objects are replaced whole.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn typed<R: Resource>(object: Object) -> Result<Arc<R>, ApiError> {
    let key = object.key();
    R::from_object(object)
        .ok_or_else(|| ApiError::Refused { key, reason: "the object is of another kind".to_owned() })
}

/// The API server behind the trait, on behalf of a client.
#[derive(Debug)]
struct View {
    api: ApiServer,
    by: Client,
}

impl View {
    async fn disturbed(&self, verb: &str, kind: Kind) -> Result<(), ApiError> {
        match self.by {
            Client::Node => self.api.disturbances.meet(verb, kind).await,
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ApiSource for View {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.disturbed("get", key.kind).await?;
        self.api.store().get(key)
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        self.disturbed("list", kind).await?;
        Ok(self.api.store().list(kind))
    }

    async fn list_in(&self, kind: Kind, namespace: &str) -> Result<Vec<Object>, ApiError> {
        self.disturbed("list", kind).await?;
        Ok(self.api.store().list_in(kind, namespace))
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        self.disturbed("watch", kind).await?;
        Ok(self.api.store().watch(kind))
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self.disturbed("create", object.kind()).await?;
        self.api.store().create(object, self.by)
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self.disturbed("update", object.kind()).await?;
        self.api.store().update(object, self.by)
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        self.disturbed("patch", patch.key.kind).await?;
        self.api.store().patch(patch, self.by)
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        self.disturbed("delete", key.kind).await?;
        self.api.store().delete(key, self.by)
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        self.disturbed("token", Kind::Pod).await?;
        self.api.store().token(request, self.by)
    }
}

#[cfg(test)]
mod tests;
