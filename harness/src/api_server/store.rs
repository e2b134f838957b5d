//! Objects by key, their versions, and who watches them. Every change is recorded before it is seen.

use std::collections::BTreeMap;
use std::time::Duration;

use api::shape::shape;
use api::{
    ApiError, Attachment, Change, Key, Kind, Object, Patch, PersistentSource, Reference, Sensitive, Token,
    TokenRequest, Watch,
};
use contracts::event::{Client, Verb};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::change_log::{Became, ChangeLog, Logged, Place};
use super::records::Records;
use super::{addresses, time};
use crate::journal::Journal;

#[derive(Debug)]
pub(super) struct Store {
    records: Records,
    objects: BTreeMap<Key, Object>,
    watchers: BTreeMap<Kind, Vec<mpsc::UnboundedSender<Change>>>,
    version: u64,
    tokens: u64,
    /// The account that each token is of.
    pub(super) accounts: BTreeMap<String, String>,
    /// Documents that clients of the HTTP interface have written for objects that the node sees as well.
    pub(super) kept: BTreeMap<Key, Value>,
    /// Objects of other kinds.
    pub(super) documents: BTreeMap<Place, Value>,
    pub(super) log: ChangeLog,
    /// The values of secrets that were written, and the tokens that were issued.
    confided: Vec<Sensitive<Vec<u8>>>,
}

impl Store {
    pub(super) fn new(journal: Journal) -> Self {
        let (objects, watchers) = (BTreeMap::new(), BTreeMap::new());
        Self {
            records: Records::new(journal),
            objects,
            watchers,
            version: 0,
            tokens: 0,
            accounts: BTreeMap::new(),
            kept: BTreeMap::new(),
            documents: BTreeMap::new(),
            log: ChangeLog::default(),
            confided: Vec::new(),
        }
    }

    /// Writes what concerns a node into a journal of its own from now on.
    pub(super) fn record_in(&mut self, node: &str, journal: Journal) {
        self.records.add(node, journal, self.objects.values());
    }

    pub(super) fn get(&self, key: &Key) -> Result<Object, ApiError> {
        self.objects.get(key).cloned().ok_or_else(|| ApiError::NotFound { key: key.clone() })
    }

    pub(super) fn confided(&self) -> &[Sensitive<Vec<u8>>] {
        &self.confided
    }

    pub(super) fn list(&self, kind: Kind) -> Vec<Object> {
        // Keys are in the order of their kinds.
        let objects = self.objects.range(Key::cluster(kind, "")..).take_while(|(key, _)| key.kind == kind);
        objects.map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn list_in(&self, kind: Kind, namespace: &str) -> Vec<Object> {
        let is_in = |key: &Key| key.kind == kind && key.namespace == namespace;
        let objects = self.objects.range(Key::namespaced(kind, namespace, "")..);
        objects.take_while(|(key, _)| is_in(key)).map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn watch(&mut self, kind: Kind) -> Watch {
        let (sender, watch) = mpsc::unbounded_channel();
        for object in self.list(kind) {
            // The receiver is in this very function.
            let _ = sender.send(Change::Applied(object));
        }
        let _ = sender.send(Change::Synced);
        self.watchers.entry(kind).or_default().push(sender);
        watch
    }

    pub(super) fn hang_up(&mut self, kind: Kind) {
        self.watchers.remove(&kind);
    }

    pub(super) fn create(&mut self, mut object: Object, by: Client) -> Result<Object, ApiError> {
        if let Object::Notification(notification) = &object {
            // The version never comes again, so neither does the name.
            let name = format!("{}.{:x}", notification.about.name, self.version + 1);
            object.meta_mut().name = name;
        }
        let key = object.key();
        if self.objects.contains_key(&key) {
            return Err(ApiError::Conflict { key, reason: "it exists already".to_owned() });
        }
        let fallback = format!("{}-{}-{}", key.kind.as_str().to_lowercase(), key.name, self.version + 1);
        let meta = object.meta_mut();
        if meta.uid.is_empty() {
            meta.uid = fallback;
        }
        meta.created.get_or_insert_with(time::now);
        api::protection::guard(&mut object);
        addresses::give(&mut object, self.objects.values());
        match &object {
            Object::Notification(notification) => {
                let Reference { kind, namespace, name, .. } = &notification.about;
                let about = self.objects.get(&Key::namespaced(*kind, namespace, name));
                self.records.record_event(notification, about, by);
            }
            Object::Attachment(attachment) => self.name_attachment(attachment),
            _ => {}
        }
        Ok(self.put(Verb::Create, object, by))
    }

    /// Tells the record which volume an attachment is for: its name is a hash.
    fn name_attachment(&self, attachment: &Attachment) {
        let volume = Key::cluster(Kind::Volume, &attachment.volume);
        let Some(Object::Volume(volume)) = self.objects.get(&volume) else { return };
        if let PersistentSource::Csi(csi) = &volume.source {
            let symbols = self.records.first().symbols();
            symbols.name_attachment(&symbols.volume(csi.handle.as_str()), &attachment.meta.name);
        }
    }

    /// Tells the record which claim a volume is for: stories call it by that.
    fn name_volume(&self, object: &Object) {
        let Object::Volume(volume) = object else { return };
        if let (PersistentSource::Csi(csi), Some(reference)) = (&volume.source, &volume.claim) {
            let symbols = self.records.first().symbols();
            symbols.name_volume(&reference.claim.name, &volume.meta.name, csi.handle.as_str());
        }
    }

    pub(super) fn update(&mut self, object: Object, by: Client) -> Result<Object, ApiError> {
        self.write(Verb::Update, object, by)
    }

    /// Replaces an object, which a client may have asked for by a patch.
    pub(super) fn write(&mut self, verb: Verb, object: Object, by: Client) -> Result<Object, ApiError> {
        let key = object.key();
        self.expect_version(&key, &object.meta().resource_version)?;
        let held = self.is_held(&key);
        let stored = self.put(verb, object, by);
        self.release(&key, held);
        Ok(stored)
    }

    pub(super) fn patch(&mut self, patch: Patch, by: Client) -> Result<Object, ApiError> {
        let Patch { key, resource_version, body } = patch;
        self.expect_version(&key, &resource_version)?;
        let mut object = self.get(&key)?;
        body.apply(&mut object)
            .map_err(|reason| ApiError::Refused { key: key.clone(), reason: reason.to_owned() })?;
        let held = self.is_held(&key);
        let stored = self.put(Verb::Patch, object, by);
        self.release(&key, held);
        Ok(stored)
    }

    pub(super) fn delete(&mut self, key: &Key, by: Client) -> Result<(), ApiError> {
        let mut object = self.get(key)?;
        if object.meta().finalizers.is_empty() {
            self.remove(key, by);
            return Ok(());
        }
        if !object.meta().is_deleting() {
            object.meta_mut().deleted = Some(time::now());
            self.put(Verb::Update, object, by);
        }
        Ok(())
    }

    pub(super) fn token(&mut self, request: &TokenRequest, by: Client) -> Result<Token, ApiError> {
        let key = Key::namespaced(Kind::Pod, &request.pod.namespace, &request.pod.name);
        let pod = self.get(&key)?;
        if pod.meta().uid != request.pod.uid {
            let reason = "the token is for another pod of that name".to_owned();
            return Err(ApiError::Refused { key, reason });
        }
        let body = json!({ "audiences": request.audiences, "account": request.account });
        self.records.write(Verb::Token, &pod, body, by);
        let account = format!("{}:{}", request.namespace, request.account);
        Ok(self.new_token(&request.pod.name, account, request.expiration))
    }

    /// A token that no other has.
    pub(super) fn new_token(&mut self, of: &str, account: String, expiration: Option<i64>) -> Token {
        self.tokens += 1;
        let token = format!("token-{of}-{}", self.tokens);
        self.give_out(token, account, expiration)
    }

    /// Makes a text a token, without counting it among those of pods.
    pub(super) fn give_out(&mut self, token: String, account: String, expiration: Option<i64>) -> Token {
        let lasts = Duration::from_secs(expiration.map_or(3600, i64::unsigned_abs));
        self.records.first().masks().add("token", &token);
        self.confided.push(Sensitive::new(token.clone().into_bytes()));
        self.accounts.insert(token.clone(), account);
        Token { token: Sensitive::new(token), expires: time::after(lasts) }
    }

    /// The version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    /// The version of a change that is about to be made.
    pub(super) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn expect_version(&self, key: &Key, version: &str) -> Result<(), ApiError> {
        let stored = self.get(key)?;
        if version.is_empty() || version == stored.meta().resource_version {
            return Ok(());
        }
        let reason = "the object has been modified; please apply your changes to the latest version";
        Err(ApiError::Conflict { key: key.clone(), reason: reason.to_owned() })
    }

    fn put(&mut self, verb: Verb, mut object: Object, by: Client) -> Object {
        self.version += 1;
        object.meta_mut().resource_version = self.version.to_string();
        if let Object::Secret(secret) = &object {
            for (key, value) in &secret.data {
                self.records.first().masks().add(key, &String::from_utf8_lossy(value.reveal()));
            }
            self.confided.extend(secret.data.values().cloned());
        }
        self.name_volume(&object);
        let key = object.key();
        self.records.write(verb, &object, shape(&object), by);
        let became = match self.objects.insert(key.clone(), object.clone()) {
            None => Became::Added,
            Some(_) => Became::Modified,
        };
        self.log.add(self.version, became, || Logged::Typed(object.clone()));
        self.notify(key.kind, &Change::Applied(object.clone()));
        object
    }

    fn remove(&mut self, key: &Key, by: Client) {
        let Some(object) = self.objects.remove(key) else { return };
        self.records.write(Verb::Delete, &object, Value::Null, by);
        self.kept.remove(key);
        self.version += 1;
        self.log.add(self.version, Became::Deleted, || Logged::Typed(object.clone()));
        self.notify(key.kind, &Change::Deleted(object));
    }

    fn is_held(&self, key: &Key) -> bool {
        self.objects.get(key).is_some_and(|object| !object.meta().finalizers.is_empty())
    }

    /// Lets an object go that waited for its last finalizer. A pod that is only marked waits for its node.
    fn release(&mut self, key: &Key, was_held: bool) {
        let marked = self.objects.get(key).is_some_and(|object| object.meta().is_deleting());
        if was_held && marked && !self.is_held(key) {
            self.remove(key, Client::Controller);
        }
    }

    fn notify(&mut self, kind: Kind, change: &Change) {
        if let Some(watchers) = self.watchers.get_mut(&kind) {
            watchers.retain(|watcher| watcher.send(change.clone()).is_ok());
        }
    }
}
