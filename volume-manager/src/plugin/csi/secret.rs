//! Secrets for a driver's calls: read from the API, put into the request, and kept nowhere.

use std::collections::BTreeMap;

use api::names::Namespaced;
use api::{ApiError, ApiSource, Secret};

/// A secret could not be read; it may be there at the next attempt.
#[derive(Debug, thiserror::Error)]
#[error(
    "fetching {purpose} {reference} failed: kubernetes.io/csi: failed to find the secret {} in the namespace {} with error",
    reference.name,
    reference.namespace
)]
pub struct SecretError {
    purpose: &'static str,
    reference: Namespaced,
    source: ApiError,
}

/// All entries of a secret as strings; empty without a reference. `purpose` is the field that names the secret.
///
/// Bytes that are not UTF-8 are replaced: the field in the request is a string.
pub(crate) async fn fetch(
    api: &dyn ApiSource,
    purpose: &'static str,
    reference: Option<&Namespaced>,
) -> Result<BTreeMap<String, String>, SecretError> {
    let Some(reference) = reference else { return Ok(BTreeMap::new()) };
    let secret: std::sync::Arc<Secret> = api::get(api, &reference.namespace, &reference.name)
        .await
        .map_err(|source| SecretError { purpose, reference: reference.clone(), source })?;
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    Ok(secret.data.iter().map(|(key, value)| (key.clone(), text(value.reveal()))).collect())
}
