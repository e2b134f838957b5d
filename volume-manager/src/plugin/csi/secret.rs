//! Secrets for a driver's calls, from the API into the request and nowhere else.

use std::collections::BTreeMap;

use api::names::Namespaced;
use api::{ApiError, ApiSource, Secret};

/// A secret could not be had. It may be there at the next attempt.
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

/// All keys of a secret as strings; nothing where no secret is named. `purpose` is the field that names it.
///
/// Values that are not text are passed on as far as they are: the wire knows only strings here.
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
