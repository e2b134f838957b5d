//! A check of the tokens that the driver asks for: each must be its pod's and not be expired.

use csi_proto::v1::NodePublishVolumeRequest;
use serde_json::Value;
use tonic::Status;

use super::SimulatedDriver;
use crate::api::token::Issued;
use crate::script::Tokens;

/// The key of the tokens in the context or among the secrets.
const KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

impl SimulatedDriver {
    /// Refuses a publish without the tokens that were asked for, or with others.
    pub(super) fn accept_tokens(&self, request: &NodePublishVolumeRequest) -> Result<(), Status> {
        let refused = |why: &str| Err(Status::unauthenticated(why));
        let (in_context, in_secrets) = (request.volume_context.get(KEY), request.secrets.get(KEY));
        let block = super::is_block(request.volume_capability.as_ref());
        let given = match (self.tokens.filter(|_| !block), in_context, in_secrets) {
            // A block volume is published without tokens.
            (None, None, None) => return Ok(()),
            (Some(Tokens::InContext), Some(given), None) => given,
            (Some(Tokens::InSecrets), None, Some(given)) => given,
            _ => return refused("the tokens are not where they belong"),
        };
        let given: Value = serde_json::from_str(given).unwrap_or_default();
        let Some(issued) = given["vault"]["token"].as_str().and_then(Issued::read) else {
            return refused("there is no token for `vault`");
        };
        if !request.target_path.contains(&format!("/pods/{}/", issued.pod)) {
            return refused("the token is another pod's");
        }
        if issued.has_run_out(self.trace.now()) {
            return refused("the token has run out");
        }
        Ok(())
    }
}
