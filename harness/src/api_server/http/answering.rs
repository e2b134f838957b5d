//! From a request to its answer: reads the path, the query and the body, and asks the objects.

use std::collections::BTreeMap;
use std::time::Duration;

use contracts::event::Verb;
use serde_json::{Value, json};

use super::Shared;
use super::discovery;
use super::objects::{Objects, namespaces};
use super::patch::Format;
use super::protobuf;
use super::refusal::Refused;
use super::resource::{QUESTIONS, Resource};
use super::selector::Selector;
use super::target::{ObjectPath, Target};
use super::watching::{Wanted, Watching};
use crate::api_server::time;

/// A request, as far as an answer depends on it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    /// Without its parameters, such as a character set.
    pub(super) media_type: String,
    pub(super) body: Vec<u8>,
}

/// The answer to a client.
pub(super) enum Answer {
    Document(u16, Value),
    Watch(Box<Watching>),
}

/// The duration of a watch whose client names none.
const LONG: Duration = Duration::from_secs(1800);

pub(super) fn answer(shared: &Shared, request: &Request) -> Result<Answer, Refused> {
    match Target::of(&request.path).ok_or_else(Refused::no_path)? {
        Target::About(about) => {
            let resources = shared.with(|objects| objects.resources());
            Ok(Answer::Document(200, discovery::answer(&about, &resources)?))
        }
        Target::Objects(path) => {
            let resource = shared.with(|objects| objects.resource(&path))?;
            match request.method.as_str() {
                "GET" if request.wants_watch(&path) => {
                    let wanted = request.watch(resource, &path)?;
                    Ok(Answer::Watch(Box::new(Watching::begin(shared.clone(), wanted)?)))
                }
                _ => shared.with(|mut objects| about_objects(&mut objects, request, &resource, &path)),
            }
        }
    }
}

fn about_objects(
    objects: &mut Objects<'_>,
    request: &Request,
    resource: &Resource,
    path: &ObjectPath,
) -> Result<Answer, Refused> {
    let namespace = path.namespace.as_deref().unwrap_or_default();
    let at = |name: &'_ str| (namespace.to_owned(), name.to_owned());
    let is_status = match path.subresource.as_deref() {
        None => false,
        Some("status") if resource.has_status => true,
        Some("token") if resource.plural == "serviceaccounts" && request.method == "POST" => {
            let account = path.name.as_deref().unwrap_or_default();
            return Ok(Answer::Document(201, token(objects, namespace, account, request.json()?)?));
        }
        Some(_) => return Err(Refused::no_path()),
    };
    let answer = |document: Value| Ok(Answer::Document(200, document));
    match (request.method.as_str(), &path.name) {
        ("GET", Some(name)) => answer(objects.get(resource, namespace, name)?),
        ("GET", None) => answer(list(objects, resource, path, &request.selector()?)),
        ("POST", None) if QUESTIONS.contains(&resource.plural.as_str()) => {
            Ok(Answer::Document(201, question(objects, resource, request.json()?)))
        }
        ("POST", None) if path.namespace.is_none() && resource.is_namespaced => {
            Err(Refused::bad_request("an empty namespace may not be set during creation"))
        }
        ("POST", None) => {
            let body = request.json()?;
            Ok(Answer::Document(201, objects.create(resource, namespace, body)?))
        }
        ("PUT", Some(name)) => {
            let (namespace, name) = at(name);
            answer(objects.replace(
                resource,
                (&namespace, &name),
                is_status,
                request.json()?,
                Verb::Update,
            )?)
        }
        ("PATCH", Some(name)) => {
            let format = Format::of(&request.media_type);
            let format = format.ok_or_else(|| Refused::media_type(&request.media_type))?;
            let patch = request.read_body()?;
            answer(objects.patch(resource, (namespace, name), is_status, format, &patch)?)
        }
        ("DELETE", Some(name)) => answer(objects.delete(resource, (namespace, name), &request.options()?)?),
        ("DELETE", None) => {
            let gone = objects.list(resource, path.namespace.as_deref(), &request.selector()?);
            for document in gone {
                let text = |field: &str| document["metadata"][field].as_str().unwrap_or_default().to_owned();
                objects.delete(resource, (&text("namespace"), &text("name")), &Value::Null)?;
            }
            answer(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }))
        }
        (method, _) => Err(Refused::method(method)),
    }
}

fn list(objects: &Objects<'_>, resource: &Resource, path: &ObjectPath, selector: &Selector) -> Value {
    let items = objects.list(resource, path.namespace.as_deref(), selector);
    json!({
        "kind": format!("{}List", resource.kind),
        "apiVersion": resource.api_version(),
        "metadata": { "resourceVersion": objects.store.version().to_string() },
        "items": items,
    })
}

/// A token of a service account, which need not exist: nothing here makes accounts.
fn token(
    objects: &mut Objects<'_>,
    namespace: &str,
    account: &str,
    mut body: Value,
) -> Result<Value, Refused> {
    objects.get(&namespaces(), "", namespace)?;
    let expiration = body["spec"]["expirationSeconds"].as_i64();
    let token = objects.store.new_token(account, format!("{namespace}:{account}"), expiration);
    body["apiVersion"] = "authentication.k8s.io/v1".into();
    body["kind"] = "TokenRequest".into();
    body["status"] = json!({ "token": token.token.reveal(), "expirationTimestamp": token.expires });
    body["metadata"]["creationTimestamp"] = time::now().into();
    Ok(body)
}

/// Answers token and access reviews: every access is allowed here.
fn question(objects: &Objects<'_>, resource: &Resource, mut body: Value) -> Value {
    body["apiVersion"] = resource.api_version().into();
    body["kind"] = resource.kind.clone().into();
    body["status"] = match resource.plural.as_str() {
        "tokenreviews" => {
            let account = body["spec"]["token"].as_str().and_then(|token| objects.store.accounts.get(token));
            match account {
                Some(account) => json!({
                    "authenticated": true,
                    "audiences": body["spec"]["audiences"],
                    "user": { "username": format!("system:serviceaccount:{account}") },
                }),
                None => json!({ "authenticated": false, "error": "the token was not given out here" }),
            }
        }
        _ => json!({ "allowed": true }),
    };
    body
}

impl Request {
    fn flag(&self, name: &str) -> bool {
        self.query.get(name).is_some_and(|value| matches!(value.as_str(), "true" | "1" | ""))
    }

    fn text(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    fn selector(&self) -> Result<Selector, Refused> {
        let selector = Selector::parse(self.text("labelSelector"), self.text("fieldSelector"));
        selector.map_err(|part| Refused::bad_request(format!("unable to parse the selector `{part}`")))
    }

    fn wants_watch(&self, path: &ObjectPath) -> bool {
        path.subresource.is_none() && (path.is_watch || path.name.is_none() && self.flag("watch"))
    }

    fn watch(&self, resource: Resource, path: &ObjectPath) -> Result<Wanted, Refused> {
        let named = path.name.as_ref().map(|name| format!("metadata.name={name},")).unwrap_or_default();
        let selector =
            Selector::parse(self.text("labelSelector"), &format!("{named}{}", self.text("fieldSelector")));
        let selector = selector.map_err(Refused::bad_request)?;
        let lasts = self.text("timeoutSeconds").parse().map_or(LONG, Duration::from_secs);
        Ok(Wanted {
            resource,
            namespace: path.namespace.clone(),
            selector,
            version: self.text("resourceVersion").to_owned(),
            bookmarks: self.flag("allowWatchBookmarks"),
            initial: self.flag("sendInitialEvents"),
            lasts: lasts.min(LONG),
        })
    }

    /// The object in the body of a request.
    fn json(&self) -> Result<Value, Refused> {
        match self.media_type.as_str() {
            protobuf::MEDIA_TYPE => protobuf::read(&self.body),
            "" | "application/json" | "application/yaml" => self.read_body(),
            other => Err(Refused::media_type(other)),
        }
    }

    fn read_body(&self) -> Result<Value, Refused> {
        // JSON is YAML as well, and is read faster and more strictly.
        serde_json::from_slice(&self.body).or_else(|error| {
            let is_yaml = self.media_type.ends_with("yaml");
            let text =
                std::str::from_utf8(&self.body).ok().filter(|text| crate::yaml::check_depth(text).is_ok());
            let read = text.filter(|_| is_yaml).and_then(|text| serde_yaml_ng::from_str(text).ok());
            read.ok_or_else(|| Refused::bad_request(format!("the body cannot be read: {error}")))
        })
    }

    /// The options of a DELETE, which has no body as a rule.
    fn options(&self) -> Result<Value, Refused> {
        if self.body.is_empty() { Ok(Value::Null) } else { self.json() }
    }
}
