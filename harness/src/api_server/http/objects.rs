//! The verbs of the API on its objects, as a client of the HTTP interface uses them. What node and controllers see as
//! well is written to the store they read; everything else is a document that is kept as it is.

mod bodies;

use api::{Key, Kind, Object};
use contracts::event::{Client, Verb};
use serde_json::Value;

use super::document;
use super::patch::Format;
use super::refusal::Refused;
use super::resource::Resource;
use super::selector::Selector;
use super::target::ObjectPath;
use crate::api_server::change_log::{Became, Logged, Place};
use crate::api_server::store::Store;
use crate::api_server::time;
use bodies::{
    check_namespace, check_type, deletion_status, established, invalid_body, new_name, next_version,
    read_back, refusal_of, remove_server_fields,
};

/// Most bytes that all documents take, and most documents.
const MOST_BYTES: usize = 64 << 20;
const MOST_DOCUMENTS: usize = 10_000;

/// The store, as a client sees it, while the caller holds its lock.
pub(super) struct Objects<'a> {
    pub(super) store: &'a mut Store,
    /// The client that makes the request.
    pub(super) by: Client,
}

impl Objects<'_> {
    /// All resources, with those of CustomResourceDefinitions.
    pub(super) fn resources(&self) -> Vec<Resource> {
        let definitions = self.store.documents.iter().filter(|(place, _)| {
            place.plural == "customresourcedefinitions" && place.group == "apiextensions.k8s.io"
        });
        Resource::built_in()
            .chain(definitions.flat_map(|(_, document)| Resource::defined_by(document)))
            .collect()
    }

    /// Fails if there is no such resource, or if the path does not name an object as the resource needs it.
    pub(super) fn resource(&self, path: &ObjectPath) -> Result<Resource, Refused> {
        let same = |resource: &Resource| {
            resource.group == path.group && resource.version == path.version && resource.plural == path.plural
        };
        let resource = self.resources().into_iter().find(same).ok_or_else(Refused::no_path)?;
        // An object of a namespace can only be named in it.
        let fits = match (&path.namespace, &path.name) {
            (Some(_), _) => resource.is_namespaced,
            (None, Some(_)) => !resource.is_namespaced,
            (None, None) => true,
        };
        if fits { Ok(resource) } else { Err(Refused::no_path()) }
    }

    pub(super) fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Vec<Value> {
        let typed = resource.typed.into_iter().flat_map(|kind| self.store.list(kind));
        let typed = typed.map(|object| self.document_of(&object));
        let documents = self.store.documents.iter().filter(|(place, _)| is_of(place, resource));
        let all = typed.chain(documents.map(|(_, document)| versioned(document, resource)));
        let there = |document: &Value| namespace.is_none_or(|name| document["metadata"]["namespace"] == name);
        all.filter(|document| there(document) && selector.matches(document)).collect()
    }

    /// A line of the log as an object of a resource; none if it is of another.
    pub(super) fn logged(&self, object: &Logged, resource: &Resource) -> Option<Value> {
        match object {
            Logged::Typed(object) => {
                (resource.typed == Some(object.kind())).then(|| self.document_of(object))
            }
            Logged::Document(place, document) => {
                is_of(place, resource).then(|| versioned(document, resource))
            }
        }
    }

    pub(super) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, Refused> {
        if let Some(object) = self.typed(resource, namespace, name) {
            return Ok(self.document_of(&object));
        }
        let document = self.store.documents.get(&place(resource, namespace, name));
        document.map(|found| versioned(found, resource)).ok_or_else(|| Refused::not_found(resource, name))
    }

    pub(super) fn create(
        &mut self,
        resource: &Resource,
        namespace: &str,
        mut body: Value,
    ) -> Result<Value, Refused> {
        let version = self.store.version();
        check_type(resource, &mut body)?;
        let name = new_name(resource, &mut body["metadata"], version)?;
        check_namespace(&mut body["metadata"], namespace)?;
        self.check_room()?;
        if resource.is_namespaced && !self.has_namespace(namespace) {
            return Err(Refused::not_found(&namespaces(), namespace));
        }
        if self.get(resource, namespace, &name).is_ok() {
            return Err(Refused::exists(resource, &name));
        }
        remove_server_fields(&mut body["metadata"]);
        if resource.has_status && !resource.is_definition() {
            body.as_object_mut().map(|body| body.remove("status"));
        }
        match resource.typed {
            Some(Kind::Node | Kind::CsiNode | Kind::Attachment) => {
                Err(Refused::forbidden(resource, &name, "only the cluster itself makes it"))
            }
            // The node's own have another shape.
            Some(kind) if kind != Kind::Notification => self.create_typed(resource, body),
            _ => Ok(self.create_document(resource, namespace, &name, body)),
        }
    }

    fn create_typed(&mut self, resource: &Resource, body: Value) -> Result<Value, Refused> {
        let object = api_convert::object_without_unknown_fields(body.clone());
        let object = object.map_err(|error| invalid_body(resource, &body, &error))?;
        let key = object.key();
        // Before the object, which others see at once.
        self.store.kept.insert(key.clone(), body);
        match self.store.create(object, self.by) {
            Ok(object) => Ok(self.document_of(&object)),
            Err(error) => {
                self.store.kept.remove(&key);
                Err(refusal_of(resource, &error))
            }
        }
    }

    fn create_document(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        mut body: Value,
    ) -> Value {
        let version = self.store.next_version();
        let meta = &mut body["metadata"];
        meta["uid"] = format!("00000000-0000-4000-8000-{version:012x}").into();
        meta["creationTimestamp"] = time::now().into();
        meta["generation"] = 1.into();
        if resource.is_definition() {
            body["status"] = established(&body);
        }
        self.put(resource, &place(resource, namespace, name), body, version, Verb::Create)
    }

    fn put(
        &mut self,
        resource: &Resource,
        place: &Place,
        mut body: Value,
        version: u64,
        verb: Verb,
    ) -> Value {
        body["metadata"]["resourceVersion"] = version.to_string().into();
        self.store.records().write_document(verb, &resource.kind, &body, self.by);
        let became = match self.store.documents.insert(place.clone(), body.clone()) {
            None => Became::Added,
            Some(_) => Became::Modified,
        };
        self.store.log.add(version, became, || Logged::Document(place.clone(), body.clone()));
        versioned(&body, resource)
    }

    /// Replaces an object, or its status alone.
    pub(super) fn replace(
        &mut self,
        resource: &Resource,
        path: (&str, &str),
        is_status: bool,
        mut body: Value,
        verb: Verb,
    ) -> Result<Value, Refused> {
        let (namespace, name) = path;
        let current = self.get(resource, namespace, name)?;
        check_type(resource, &mut body)?;
        check_namespace(&mut body["metadata"], namespace)?;
        if body["metadata"]["name"] != name {
            return Err(Refused::bad_request("the name of the object is not the name in the path"));
        }
        for field in ["uid", "resourceVersion"] {
            let wanted = &body["metadata"][field];
            if wanted.as_str().is_some_and(|wanted| !wanted.is_empty())
                && *wanted != current["metadata"][field]
            {
                let why = "the object has been modified; please apply your changes to the latest version and try again";
                return Err(Refused::conflict(resource, name, why));
            }
        }
        self.check_room()?;
        let next = next_version(resource, &current, body, is_status);
        match self.typed(resource, namespace, name) {
            Some(known) => self.replace_typed(resource, &known, next, verb),
            None => Ok(self.replace_document(resource, (namespace, name), &current, next, verb)),
        }
    }

    fn replace_typed(
        &mut self,
        resource: &Resource,
        known: &Object,
        next: Value,
        verb: Verb,
    ) -> Result<Value, Refused> {
        let object = read_back(resource, known, &next)?;
        let key = object.key();
        self.store.kept.insert(key.clone(), next);
        let done = self.store.write(verb, object, self.by);
        let object = done.map_err(|error| refusal_of(resource, &error))?;
        let document = self.document_of(&object);
        if self.store.get(&key).is_err() {
            self.store.kept.remove(&key);
        }
        Ok(document)
    }

    fn replace_document(
        &mut self,
        resource: &Resource,
        path: (&str, &str),
        current: &Value,
        mut next: Value,
        verb: Verb,
    ) -> Value {
        let spec = |document: &Value| {
            let mut document = document.clone();
            document.as_object_mut().map(|fields| (fields.remove("metadata"), fields.remove("status")));
            document
        };
        if spec(current) != spec(&next) {
            let generation = current["metadata"]["generation"].as_u64().unwrap_or(1);
            next["metadata"]["generation"] = (generation + 1).into();
        }
        let place = place(resource, path.0, path.1);
        let is_held = next["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        if next["metadata"]["deletionTimestamp"].is_string() && !is_held {
            return self.remove_document(resource, &place).unwrap_or(next);
        }
        let version = self.store.next_version();
        self.put(resource, &place, next, version, verb)
    }

    fn remove_document(&mut self, resource: &Resource, place: &Place) -> Option<Value> {
        let mut document = self.store.documents.remove(place)?;
        let version = self.store.next_version();
        document["metadata"]["resourceVersion"] = version.to_string().into();
        self.store.records().write_document(Verb::Delete, &resource.kind, &document, self.by);
        self.store.log.add(version, Became::Deleted, || Logged::Document(place.clone(), document.clone()));
        Some(versioned(&document, resource))
    }

    /// Changes a part of an object; with apply, one that is not there is made.
    pub(super) fn patch(
        &mut self,
        resource: &Resource,
        path: (&str, &str),
        is_status: bool,
        format: Format,
        patch: &Value,
    ) -> Result<Value, Refused> {
        let current = match self.get(resource, path.0, path.1) {
            Err(refused) if refused.code == 404 && format == Format::Apply && !is_status => {
                let mut body = patch.clone();
                body["metadata"]["name"] = path.1.into();
                return self.create(resource, path.0, body);
            }
            found => found?,
        };
        let body = format.apply(&current, patch);
        let body = body.map_err(|why| Refused::invalid(resource, path.1, &why))?;
        // A patch applies to a newer version too, unless it names the version.
        self.replace(resource, path, is_status, body, Verb::Patch)
    }

    /// Deletes an object: at once, or by marking it if it has finalizers. Returns the answer for the client.
    pub(super) fn delete(
        &mut self,
        resource: &Resource,
        path: (&str, &str),
        options: &Value,
    ) -> Result<Value, Refused> {
        let (namespace, name) = path;
        let current = self.get(resource, namespace, name)?;
        for field in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][field];
            if wanted.is_string() && *wanted != current["metadata"][field] {
                return Err(Refused::conflict(
                    resource,
                    name,
                    "the object is another one than the precondition says",
                ));
            }
        }
        if let Some(object) = self.typed(resource, namespace, name) {
            let key = object.key();
            self.store.delete(&key, self.by).map_err(|error| refusal_of(resource, &error))?;
            return Ok(match self.store.get(&key) {
                Ok(marked) => self.document_of(&marked),
                Err(_) => deletion_status(resource, &current),
            });
        }
        let place = place(resource, namespace, name);
        let mut marked = current.clone();
        if current["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty()) {
            if current["metadata"]["deletionTimestamp"].is_null() {
                marked["metadata"]["deletionTimestamp"] = time::now().into();
                marked["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                let version = self.store.next_version();
                return Ok(self.put(resource, &place, marked, version, Verb::Update));
            }
            return Ok(current);
        }
        self.remove_document(resource, &place);
        self.remove_what_belongs_to(resource, &current);
        Ok(deletion_status(resource, &current))
    }

    /// Removes the objects of a deleted namespace, or of a kind whose definition was deleted.
    fn remove_what_belongs_to(&mut self, resource: &Resource, gone: &Value) {
        let is_namespace = resource.plural == "namespaces" && resource.group.is_empty();
        let defined = if resource.is_definition() { Resource::defined_by(gone) } else { vec![] };
        let belongs = |place: &Place| {
            is_namespace && gone["metadata"]["name"] == place.namespace
                || defined.iter().any(|defined| is_of(place, defined))
        };
        let places: Vec<Place> =
            self.store.documents.keys().filter(|place| belongs(place)).cloned().collect();
        for place in places {
            let kind = self.resources().into_iter().chain(defined.clone()).find(|other| is_of(&place, other));
            kind.map(|kind| self.remove_document(&kind, &place));
        }
    }

    fn check_room(&self) -> Result<(), Refused> {
        let documents = &self.store.documents;
        // Counting bytes is dear, and few documents cannot be many bytes: each is at most 1.5 MiB.
        let bytes = || documents.values().map(|document| document.to_string().len()).sum::<usize>();
        let is_full = documents.len() >= MOST_DOCUMENTS || documents.len() > 40 && bytes() >= MOST_BYTES;
        if is_full { Err(Refused::full()) } else { Ok(()) }
    }

    fn has_namespace(&self, name: &str) -> bool {
        self.store.documents.contains_key(&place(&namespaces(), "", name))
    }

    fn typed(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Object> {
        self.store.get(&Key::namespaced(resource.typed?, namespace, name)).ok()
    }

    fn document_of(&self, object: &Object) -> Value {
        document::of(object, self.store.kept.get(&object.key()))
    }
}

pub(super) fn namespaces() -> Resource {
    let mut all = Resource::built_in();
    all.find(|resource| resource.plural == "namespaces").expect("every cluster has namespaces")
}

fn place(resource: &Resource, namespace: &str, name: &str) -> Place {
    Place {
        group: resource.group.clone(),
        plural: resource.plural.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn is_of(place: &Place, resource: &Resource) -> bool {
    place.plural == resource.plural && place.group == resource.group
}

/// A document in the version that is asked for: there is one schema for all.
fn versioned(document: &Value, resource: &Resource) -> Value {
    let mut document = document.clone();
    document["apiVersion"] = resource.api_version().into();
    document["kind"] = resource.kind.clone().into();
    document
}
