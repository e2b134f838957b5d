//! What a driver asks to be told about the pod: who it is, and tokens of its service account.
//!
//! Builds additions to a publish call; asks the API for tokens.

use std::collections::BTreeMap;

use api::{ApiError, ApiSource, CsiDriver, Kind, Pod, Reference, Token, TokenRequest};
use serde::{Deserialize, Serialize};

use super::volume_data::Lifecycle;

/// Where the tokens are in the context, or among the secrets.
pub(crate) const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Who the pod is: five additions to the volume context.
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

/// A token for each audience the driver named, as the JSON object it expects. `None` if it named none.
///
/// The result is a secret, wherever the driver wants it.
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
            // No audience means the API server itself.
            audiences: Some(wanted.audience.clone()).filter(|name| !name.is_empty()).into_iter().collect(),
            expiration: wanted.expiration,
            pod: Reference::to(Kind::Pod, &pod.meta),
        };
        let token = api.request_token(&request).await?;
        by_audience.insert(wanted.audience.clone(), Status::of(token));
    }
    Ok(Some(serde_json::to_string(&by_audience).expect("a map of strings is always valid JSON")))
}

/// Every token in what [`tokens`] has made. Each is a secret without the rest, too.
pub(crate) fn each(tokens: &str) -> impl Iterator<Item = String> {
    let by_audience: BTreeMap<String, Status> = serde_json::from_str(tokens).unwrap_or_default();
    by_audience.into_values().map(|status| status.token)
}

/// A token as Kubernetes' TokenRequestStatus has it.
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
