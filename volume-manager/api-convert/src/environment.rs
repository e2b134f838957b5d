//! Variables of containers.

use api::environment::{Holder, HolderKind, Import, Origin, Variable};
use k8s_openapi::api::core::v1 as core;

pub(super) fn variable(variable: core::EnvVar) -> Variable {
    let text = variable.value.unwrap_or_default();
    let origin = match variable.value_from {
        Some(source) if text.is_empty() => origin(source),
        _ => Origin::Text(text),
    };
    Variable { name: variable.name, origin }
}

fn origin(source: core::EnvVarSource) -> Origin {
    if let Some(field) = source.field_ref {
        return Origin::Field(field.field_path);
    }
    if let Some(amount) = source.resource_field_ref {
        return Origin::Amount {
            container: amount.container_name.unwrap_or_default(),
            resource: amount.resource,
            divisor: amount.divisor.map(|divisor| divisor.0).unwrap_or_default(),
        };
    }
    if let Some(map) = source.config_map_key_ref {
        return Origin::Key(holder(HolderKind::ConfigMap, map.name, map.optional), map.key);
    }
    if let Some(secret) = source.secret_key_ref {
        return Origin::Key(holder(HolderKind::Secret, secret.name, secret.optional), secret.key);
    }
    Origin::Other(if source.file_key_ref.is_some() { "fileKeyRef" } else { "an unknown source" }.to_owned())
}

/// `None` for what names no object.
pub(super) fn import(source: core::EnvFromSource) -> Option<Import> {
    let map = source.config_map_ref.map(|map| holder(HolderKind::ConfigMap, map.name, map.optional));
    let secret = source.secret_ref.map(|secret| holder(HolderKind::Secret, secret.name, secret.optional));
    Some(Import { holder: map.or(secret)?, prefix: source.prefix.unwrap_or_default() })
}

fn holder(kind: HolderKind, name: String, optional: Option<bool>) -> Holder {
    Holder { kind, name, optional: optional.unwrap_or_default() }
}
