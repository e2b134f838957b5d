//! Checks and completes the bodies of requests, and converts them to the typed objects that the node sees. Pure.

use api::{ApiError, Kind, Object};
use api_convert::ConvertError;
use serde_json::{Value, json};

use super::super::refusal::Refused;
use super::super::resource::Resource;
use crate::api_server::time;

/// The next version of an object. A request for the status changes only that, any other request all but that; fields that
/// the server sets stay.
pub(super) fn next_version(resource: &Resource, current: &Value, body: Value, is_status: bool) -> Value {
    if is_status {
        let mut next = current.clone();
        next["status"] = body["status"].clone();
        return next;
    }
    let mut next = body;
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
    {
        match &current["metadata"][field] {
            Value::Null => drop(next["metadata"].as_object_mut().map(|meta| meta.remove(field))),
            set => next["metadata"][field] = set.clone(),
        }
    }
    if resource.has_status && !resource.is_definition() {
        match current.get("status") {
            Some(status) => next["status"] = status.clone(),
            None => drop(next.as_object_mut().map(|next| next.remove("status"))),
        }
    }
    next
}

/// The typed object for a changed document. Of pods, nodes, attachments and snapshots a client can change labels,
/// annotations, finalizers and owners only: their spec and status are written by the API server's own code.
pub(super) fn read_back(resource: &Resource, known: &Object, document: &Value) -> Result<Object, Refused> {
    let (convertible, only_metadata_changes) = match known.kind() {
        Kind::Pod
        | Kind::Node
        | Kind::CsiNode
        | Kind::Attachment
        | Kind::Snapshot
        | Kind::SnapshotContent
        | Kind::GroupSnapshot
        | Kind::GroupSnapshotContent
        | Kind::Notification => (json!({ "kind": "ConfigMap", "metadata": document["metadata"] }), true),
        _ => (document.clone(), false),
    };
    let read = api_convert::object_without_unknown_fields(convertible);
    let mut read = read.map_err(|error| invalid_body(resource, document, &error))?;
    if only_metadata_changes {
        let meta = read.meta().clone();
        read = known.clone();
        let kept = read.meta_mut();
        (kept.labels, kept.annotations) = (meta.labels, meta.annotations);
        (kept.finalizers, kept.owners) = (meta.finalizers, meta.owners);
    }
    // The caller has compared the version, and a patch need not have one.
    read.meta_mut().resource_version.clear();
    Ok(read)
}

pub(super) fn check_type(resource: &Resource, body: &mut Value) -> Result<(), Refused> {
    if !body.is_object() || !matches!(body["metadata"], Value::Null | Value::Object(_)) {
        return Err(Refused::bad_request("the body is not an API object"));
    }
    if body["metadata"].is_null() {
        body["metadata"] = json!({});
    }
    for (field, expected) in [("apiVersion", resource.api_version()), ("kind", resource.kind.clone())] {
        match &body[field] {
            Value::Null => body[field] = expected.into(),
            found if *found == expected => {}
            found => {
                let why = format!("the {field} of the body is {found}, and the path names {expected}");
                return Err(Refused::bad_request(why));
            }
        }
    }
    Ok(())
}

pub(super) fn check_namespace(meta: &mut Value, namespace: &str) -> Result<(), Refused> {
    match meta["namespace"].as_str().unwrap_or_default() {
        "" if namespace.is_empty() => drop(meta.as_object_mut().map(|meta| meta.remove("namespace"))),
        "" => meta["namespace"] = namespace.into(),
        found if found == namespace => {}
        _ => {
            return Err(Refused::bad_request(
                "the namespace of the object is not the namespace of the request",
            ));
        }
    }
    Ok(())
}

/// The name that a new object has or is given.
pub(super) fn new_name(resource: &Resource, meta: &mut Value, version: u64) -> Result<String, Refused> {
    let name = match (meta["name"].as_str().unwrap_or_default(), meta["generateName"].as_str()) {
        ("", Some(prefix)) => format!("{prefix}{:05x}", version + 1),
        ("", None) => {
            return Err(Refused::invalid(
                resource,
                "",
                "metadata.name: Required value: name or generateName is required",
            ));
        }
        (name, _) => name.to_owned(),
    };
    let allows_any_name = resource.group == "rbac.authorization.k8s.io";
    let is_end =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    let is_inner = |byte: &u8| is_end(Some(byte)) || b"-.".contains(byte);
    let is_name =
        bytes.len() <= 253 && is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner);
    if !is_name && !allows_any_name || name.contains('/') {
        let why = "metadata.name: Invalid value: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                   characters, '-' or '.', and must start and end with an alphanumeric character";
        return Err(Refused::invalid(resource, &name, why));
    }
    meta["name"] = name.clone().into();
    Ok(name)
}

/// Removes the fields that a client cannot set.
pub(super) fn remove_server_fields(meta: &mut Value) {
    let Some(meta) = meta.as_object_mut() else { return };
    let fields =
        ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "managedFields"];
    for field in fields {
        meta.remove(field);
    }
}

/// The status of an established CustomResourceDefinition: its objects can be created from now on.
pub(super) fn established(definition: &Value) -> Value {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": time::now(),
        })
    };
    let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let stored = versions.iter().filter(|version| version["storage"] == true);
    json!({
        "acceptedNames": definition["spec"]["names"],
        "conditions": [condition("NamesAccepted"), condition("Established")],
        "storedVersions": stored.map(|version| version["name"].clone()).collect::<Vec<_>>(),
    })
}

/// The `Status` that answers a request to delete an object.
pub(super) fn deletion_status(resource: &Resource, gone: &Value) -> Value {
    let meta = &gone["metadata"];
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": { "name": meta["name"], "group": resource.group, "kind": resource.plural, "uid": meta["uid"] },
    })
}

pub(super) fn invalid_body(resource: &Resource, body: &Value, error: &ConvertError) -> Refused {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let why: Vec<String> = causes.map(ToString::to_string).collect();
    Refused::invalid(resource, body["metadata"]["name"].as_str().unwrap_or_default(), &why.join(": "))
}

/// The HTTP refusal for an error of the store.
pub(super) fn refusal_of(resource: &Resource, error: &ApiError) -> Refused {
    match error {
        ApiError::NotFound { key } => Refused::not_found(resource, &key.name),
        ApiError::Conflict { key, reason } => Refused::conflict(resource, &key.name, reason),
        ApiError::Refused { key, reason } => Refused::forbidden(resource, &key.name, reason),
        ApiError::Unavailable { reason } => Refused::bad_request(reason.clone()),
    }
}
