//! Ordinary Kubernetes manifests become the lean objects of this API: the edge where Kubernetes' own shapes
//! end. Defaults are those the API server would have set. The way back is [`api::shape`].

mod environment;
mod group_snapshot;
mod pod;
mod runtime;
mod service;
mod snapshot;
mod storage;
mod strict;

use std::collections::BTreeMap;

use api::content::{ConfigMap, Secret, Sensitive};
use api::object::{Bytes, Meta, Owner};
use api::{Object, Resource};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
pub use strict::UnknownField;

/// Why a manifest could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The object has no `kind`.
    #[error("the object has no `kind`")]
    NoKind,
    /// The object has a kind that the manager does not use.
    #[error(
        "cannot use a `{kind}`: only pods, claims, volumes, snapshots, classes, drivers, secrets, config maps and \
         services count"
    )]
    UnknownKind { kind: String },
    /// The object does not have the form of its kind.
    #[error("cannot read {kind} `{name}`")]
    Shape { kind: String, name: String, source: serde_json::Error },
    /// The object has a field that its kind does not have.
    #[error("cannot read {kind} `{name}`: {field}")]
    UnknownField { kind: String, name: String, field: UnknownField },
    /// A value in it means nothing.
    #[error("cannot read `{text}` as {what} in {kind} `{name}`")]
    Value { kind: String, name: String, what: &'static str, text: String },
}

/// A value that means nothing; whose it is is added on the way out.
struct Bad {
    what: &'static str,
    text: String,
}

impl Bad {
    fn new(what: &'static str, text: impl Into<String>) -> Self {
        Self { what, text: text.into() }
    }
}

/// Reads one document of a manifest: an object, or a `List` of them. Objects without a namespace that need
/// one are in `default`.
///
/// # Errors
///
/// If it is of a kind nothing here looks at, or not shaped like its kind.
pub fn objects(document: Value) -> Result<Vec<Object>, ConvertError> {
    let kind = document.get("kind").and_then(Value::as_str).ok_or(ConvertError::NoKind)?.to_owned();
    if kind == "List" {
        let items = document.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        return items.into_iter().map(objects).collect::<Result<Vec<_>, _>>().map(|all| all.concat());
    }
    Ok(vec![object(&kind, document, true)?])
}

/// Reads an object as the API server does for a client that did not ask for strict validation: fields that its kind
/// does not have are dropped.
///
/// # Errors
///
/// If it is of a kind nothing here looks at, or not shaped like its kind.
pub fn object_without_unknown_fields(document: Value) -> Result<Object, ConvertError> {
    let kind = document.get("kind").and_then(Value::as_str).ok_or(ConvertError::NoKind)?.to_owned();
    object(&kind, document, false)
}

fn object(kind: &str, document: Value, is_strict: bool) -> Result<Object, ConvertError> {
    let meta = meta(&document, is_namespaced(kind));
    let of = Of { kind, meta: &meta, is_strict };
    let object = match kind {
        "Pod" => of.typed(document, pod::pod)?,
        "PersistentVolumeClaim" => of.typed(document, storage::claim)?,
        "PersistentVolume" => of.typed(document, storage::volume)?,
        "StorageClass" => of.typed(document, storage::class)?,
        "VolumeAttributesClass" => of.typed(document, storage::attributes_class)?,
        "VolumeSnapshot" => of.typed(document, snapshot::snapshot)?,
        "VolumeSnapshotContent" => of.typed(document, snapshot::content)?,
        "VolumeSnapshotClass" => of.typed(document, snapshot::class)?,
        "VolumeGroupSnapshot" => of.typed(document, group_snapshot::group)?,
        "VolumeGroupSnapshotContent" => of.typed(document, group_snapshot::content)?,
        "VolumeGroupSnapshotClass" => of.typed(document, group_snapshot::class)?,
        "CSIDriver" => of.typed(document, storage::driver)?,
        "Secret" => of.typed(document, secret)?,
        "ConfigMap" => of.typed(document, config_map)?,
        "Service" => of.typed(document, service::service)?,
        _ => return Err(ConvertError::UnknownKind { kind: kind.to_owned() }),
    };
    Ok(object)
}

fn is_namespaced(kind: &str) -> bool {
    matches!(
        kind,
        "Pod"
            | "PersistentVolumeClaim"
            | "VolumeSnapshot"
            | "VolumeGroupSnapshot"
            | "Secret"
            | "ConfigMap"
            | "Service"
    )
}

/// The object that is being read.
struct Of<'a> {
    kind: &'a str,
    meta: &'a Meta,
    /// Whether a field that its kind does not have is an error.
    is_strict: bool,
}

impl Of<'_> {
    fn typed<K: DeserializeOwned, R: Resource>(
        &self,
        document: Value,
        convert: impl FnOnce(K, Meta) -> Result<R, Bad>,
    ) -> Result<Object, ConvertError> {
        let (kind, name) = (self.kind.to_owned(), self.meta.name.clone());
        let shaped: K = match strict::read(document) {
            Ok((_, Some(field))) if self.is_strict => {
                return Err(ConvertError::UnknownField { kind, name, field });
            }
            Ok((shaped, _)) => shaped,
            Err(source) => return Err(ConvertError::Shape { kind, name, source }),
        };
        match convert(shaped, self.meta.clone()) {
            Ok(object) => Ok(object.into_object()),
            Err(Bad { what, text }) => Err(ConvertError::Value { kind, name, what, text }),
        }
    }
}

fn meta(document: &Value, namespaced: bool) -> Meta {
    let meta = document.get("metadata").unwrap_or(&Value::Null);
    let text = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let map = |field: &str| {
        let entries = meta.get(field).and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    let list = |field: &str| meta.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let namespace = match text("namespace") {
        given if !given.is_empty() => given,
        _ if namespaced => "default".to_owned(),
        _ => String::new(),
    };
    Meta {
        name: text("name"),
        namespace,
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        created: Some(text("creationTimestamp")).filter(|time| !time.is_empty()),
        deleted: Some(text("deletionTimestamp")).filter(|time| !time.is_empty()),
        deletion_grace: meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64),
        finalizers: list("finalizers").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        labels: map("labels"),
        annotations: map("annotations"),
        owners: list("ownerReferences").iter().map(owner).collect(),
    }
}

fn owner(owner: &Value) -> Owner {
    let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let flag = |field: &str| owner.get(field).and_then(Value::as_bool).unwrap_or_default();
    Owner {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
        controller: flag("controller"),
        block_deletion: flag("blockOwnerDeletion"),
    }
}

fn secret(secret: core::Secret, meta: Meta) -> Result<Secret, Bad> {
    let bytes = secret.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
    let texts =
        secret.string_data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
    let data = bytes.chain(texts).map(|(key, bytes)| (key, Sensitive::new(bytes))).collect();
    Ok(Secret { meta, data })
}

fn config_map(map: core::ConfigMap, meta: Meta) -> Result<ConfigMap, Bad> {
    let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
    Ok(ConfigMap { meta, data: map.data.unwrap_or_default(), binary: binary.collect() })
}

/// The name of the field that is set besides the `common` ones: the kind of a volume that no plugin is for. It is
/// `unknown` for a field that the API of this version does not have.
fn kind_of(object: &impl Serialize, common: &[&str]) -> String {
    let fields = serde_json::to_value(object).unwrap_or_default();
    let set = fields.as_object().into_iter().flat_map(|fields| fields.keys());
    set.map(String::as_str).find(|field| !common.contains(field)).unwrap_or("unknown").to_owned()
}

fn quantity(quantity: &Quantity) -> Result<Bytes, Bad> {
    Bytes::from_quantity(&quantity.0).ok_or_else(|| Bad::new("an amount of storage", &quantity.0))
}

/// The amount of one resource in a list; zero if it is not there.
fn amount(list: Option<&BTreeMap<String, Quantity>>, resource: &str) -> Result<Bytes, Bad> {
    list.and_then(|list| list.get(resource)).map_or(Ok(Bytes::default()), quantity)
}

/// A user or group, which Kubernetes writes as 64 bits and the kernel has in 32.
fn id(id: i64) -> Result<u32, Bad> {
    u32::try_from(id).map_err(|_| Bad::new("a user or group", id.to_string()))
}

/// The mode of a file.
fn mode(mode: i32) -> Result<u32, Bad> {
    u32::try_from(mode).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| Bad::new("a mode", mode.to_string()))
}

#[cfg(test)]
mod tests;
