//! Tokens as a driver that asks for them looks at them: each is its pod's, and has not run out.

use csi_proto::v1::NodePublishVolumeRequest;
use serde_json::Value;
use tonic::Status;

use super::SimulatedDriver;
use crate::api::token::Issued;
use crate::script::Tokens;

/// Where Kubernetes puts them.
const KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

impl SimulatedDriver {
    /// Refuses a publish without the tokens that were asked for, and with tokens that were not.
    pub(super) fn accept_tokens(&self, request: &NodePublishVolumeRequest) -> Result<(), Status> {
        let refused = |why: &str| Err(Status::unauthenticated(why));
        let (in_context, in_secrets) = (request.volume_context.get(KEY), request.secrets.get(KEY));
        let block = super::is_block(request.volume_capability.as_ref());
        let given = match (self.tokens.filter(|_| !block), in_context, in_secrets) {
            // A device is published without any.
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
