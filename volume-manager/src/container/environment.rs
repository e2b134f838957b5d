//! The variables of a container. Reads config maps and secrets for their values, and the node's object for the amounts
//! of resources without a limit.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::environment::{Holder, HolderKind, Origin};
use api::names::ContainerName;
use api::{Allocatable, ApiError, ApiSource, ConfigMap, Container, Node, Pod, Secret, Sensitive};

use super::{ContainerError, expand};
use crate::plugin::downward_api;

/// The values of variables by name. Any of them may come from a secret.
pub type Environment = BTreeMap<String, Sensitive<String>>;

/// Why a variable has no value.
#[derive(Debug, thiserror::Error)]
pub enum NoValue {
    /// The object could not be read.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An object lacks the key.
    #[error("couldn't find key {key} in {kind:?} {object}")]
    NoKey {
        key: String,
        kind: HolderKind,
        /// Its namespace and name.
        object: String,
    },
    /// Pods have no such field.
    #[error("unsupported fieldPath: {0}")]
    NoField(String),
    /// The amount of a resource is unknown.
    #[error("the amount of resource {resource} of container {container} is not known")]
    NoAmount { resource: String, container: String },
    /// A value has to be text.
    #[error("the value is not UTF-8")]
    NotText,
    /// The source is not supported.
    #[error("values from {0} are not supported: take it from a field, a resource, a config map or a secret")]
    Unsupported(String),
}

/// The container's variables: those for services, then those of `envFrom`, then those of `env`. References to earlier
/// variables are expanded in the values of `env`. A later variable replaces an earlier one of the same name.
pub(super) async fn of(
    api: &dyn ApiSource,
    pod: &Pod,
    container: &Container,
    services: BTreeMap<String, String>,
) -> Result<Environment, ContainerError> {
    let mut environment: Environment =
        services.into_iter().map(|(name, value)| (name, Sensitive::new(value))).collect();
    for import in &container.imports {
        let content = content(api, pod, &import.holder).await.map_err(ContainerError::Import)?;
        for (key, value) in content.unwrap_or_default() {
            let name = format!("{}{key}", import.prefix);
            let value = text(value).map_err(|why| ContainerError::Variable { name: name.clone(), why })?;
            environment.insert(name, Sensitive::new(value));
        }
    }
    for variable in &container.environment {
        let value = value(api, pod, container, &variable.origin, &environment).await;
        let name = || variable.name.clone();
        if let Some(value) = value.map_err(|why| ContainerError::Variable { name: name(), why })? {
            environment.insert(name(), Sensitive::new(value));
        }
    }
    Ok(environment)
}

/// The value of a variable; `None` if its optional source does not exist.
async fn value(
    api: &dyn ApiSource,
    pod: &Pod,
    container: &Container,
    origin: &Origin,
    before: &Environment,
) -> Result<Option<String>, NoValue> {
    match origin {
        Origin::Text(text) => Ok(Some(expand::known(text, before))),
        Origin::Field(path) => match field(pod, path) {
            None => Err(NoValue::NoField(path.clone())),
            value => Ok(value),
        },
        Origin::Amount { container: name, resource, divisor } => {
            let name = if name.is_empty() { &container.name } else { name };
            let node = allocatable(api, pod).await?;
            let named = pod.container(&ContainerName::new(name));
            let amount = named.and_then(|named| downward_api::amount(named, resource, divisor, &node));
            let unknown = || NoValue::NoAmount { resource: resource.clone(), container: name.clone() };
            amount.map(Some).ok_or_else(unknown)
        }
        Origin::Key(holder, key) => {
            let found = content(api, pod, holder).await?.and_then(|mut content| content.remove(key));
            match found {
                Some(value) => text(value).map(Some),
                None if holder.optional => Ok(None),
                None => Err(NoValue::NoKey {
                    key: key.clone(),
                    kind: holder.kind,
                    object: format!("{}/{}", pod.meta.namespace, holder.name),
                }),
            }
        }
        Origin::Other(source) => Err(NoValue::Unsupported(source.clone())),
    }
}

/// The value of a pod's field. Variables can have more fields than files of the downward API.
fn field(pod: &Pod, path: &str) -> Option<String> {
    let first = |ips: &[String]| ips.first().cloned().unwrap_or_default();
    match path {
        "spec.nodeName" => Some(pod.node.clone()),
        "spec.serviceAccountName" => Some(pod.service_account.clone()),
        "status.podIP" => Some(first(&pod.ips)),
        "status.podIPs" => Some(pod.ips.join(",")),
        "status.hostIP" => Some(first(&pod.host_ips)),
        "status.hostIPs" => Some(pod.host_ips.join(",")),
        metadata => downward_api::field(pod, metadata),
    }
}

/// The keys and values of a secret, or of a config map without its `binaryData`, which is for files. `None` if the
/// object is optional and does not exist.
async fn content(
    api: &dyn ApiSource,
    pod: &Pod,
    holder: &Holder,
) -> Result<Option<BTreeMap<String, Vec<u8>>>, ApiError> {
    let namespace = &pod.meta.namespace;
    let content = match holder.kind {
        HolderKind::ConfigMap => api::get::<ConfigMap>(api, namespace, &holder.name)
            .await
            .map(|map| map.data.iter().map(|(key, text)| (key.clone(), text.clone().into_bytes())).collect()),
        HolderKind::Secret => api::get::<Secret>(api, namespace, &holder.name).await.map(|secret| {
            secret.data.iter().map(|(key, value)| (key.clone(), value.reveal().clone())).collect()
        }),
    };
    match content {
        Err(error) if error.is_not_found() && holder.optional => Ok(None),
        content => content.map(Some),
    }
}

/// The allocatable resources of the pod's node; empty if the node has no object.
async fn allocatable(api: &dyn ApiSource, pod: &Pod) -> Result<Allocatable, ApiError> {
    match api::get::<Node>(api, "", &pod.node).await {
        Ok(node) => Ok(node.allocatable.clone()),
        Err(error) if error.is_not_found() => Ok(Allocatable::default()),
        Err(error) => Err(error),
    }
}

fn text(value: Vec<u8>) -> Result<String, NoValue> {
    String::from_utf8(value).map_err(|_| NoValue::NotText)
}
