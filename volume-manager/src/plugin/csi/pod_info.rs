//! Information about the pod for a driver that asks for it: names, and tokens of its service account.
//!
//! Builds additions to a publish request; gets tokens from the API.

use std::collections::BTreeMap;

use api::{ApiError, ApiSource, CsiDriver, Kind, Pod, Reference, Token, TokenRequest};
use serde::{Deserialize, Serialize};

use super::volume_data::Lifecycle;

/// The key of the tokens in the volume context or among the secrets.
pub(crate) const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// The five entries about the pod in the volume context.
pub(crate) fn about(pod: &Pod, lifecycle: Lifecycle) -> [(String, String); 5] {
    let ephemeral = if lifecycle == Lifecycle::Ephemeral { "true" } else { "false" };
    [
        ("pod.name", pod.meta.name.as_str()),
        ("pod.namespace", pod.meta.namespace.as_str()),
        ("pod.uid", pod.meta.uid.as_str()),
        ("serviceAccount.name", pod.service_account.as_str()),
        ("ephemeral", ephemeral),
    ]
    .map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.to_owned()))
}

/// The tokens for the audiences that the driver's object lists, as the JSON object that drivers expect. `None`
/// if it lists none.
///
/// The text is a secret wherever it is put.
pub(crate) async fn tokens(
    api: &dyn ApiSource,
    driver: &CsiDriver,
    pod: &Pod,
) -> Result<Option<String>, ApiError> {
    if driver.tokens.is_empty() {
        return Ok(None);
    }
    let mut by_audience = BTreeMap::new();
    for wanted in &driver.tokens {
        let request = TokenRequest {
            namespace: pod.meta.namespace.clone(),
            account: pod.service_account.clone(),
            // An empty audience stands for the API server itself.
            audiences: Some(wanted.audience.clone()).filter(|name| !name.is_empty()).into_iter().collect(),
            expiration: wanted.expiration,
            pod: Reference::to(Kind::Pod, &pod.meta),
        };
        let token = api.request_token(&request).await?;
        by_audience.insert(wanted.audience.clone(), Status::of(token));
    }
    Ok(Some(serde_json::to_string(&by_audience).expect("a map of strings is always valid JSON")))
}

/// Each token in a text made by [`tokens`]: each is a secret of its own.
pub(crate) fn each_token(tokens: &str) -> impl Iterator<Item = String> {
    let by_audience: BTreeMap<String, Status> = serde_json::from_str(tokens).unwrap_or_default();
    by_audience.into_values().map(|status| status.token)
}

/// A token in the format of Kubernetes' TokenRequestStatus.
#[derive(Serialize, Deserialize)]
struct Status {
    token: String,
    #[serde(rename = "expirationTimestamp")]
    expires: String,
}

impl Status {
    fn of(token: Token) -> Self {
        Self { token: token.token.reveal().clone(), expires: token.expires }
    }
}
