//! Expansion as by a user: writes the new size into the claim, and waits for the outcome.

use std::time::Duration;

use api::{ApiError, Bytes, Change, Claim, Kind, Resource};

use crate::api_server::{ApiServer, NAMESPACE};

/// The time for the driver's controller to answer: its call's limit and some more.
const LIMIT: Duration = Duration::from_secs(30);

/// Why a volume was not grown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// There is no such claim.
    #[error("cannot write the claim `{claim}`")]
    Api {
        claim: String,
        /// The API server's answer.
        #[source]
        source: ApiError,
    },
    #[error("cannot grow the volume `{claim}`: {message}")]
    Refused { claim: String, message: String },
    #[error("cannot grow the volume `{claim}`: the driver's controller has not answered in {} s", LIMIT.as_secs())]
    Unanswered { claim: String },
}

impl ApiServer {
    /// Asks for more room, and waits until the controller's part of the growth is done.
    ///
    /// # Errors
    /// When the driver's controller refuses, or does not answer.
    pub async fn grow(&self, claim: &str, size: u64) -> Result<(), GrowError> {
        let asked = |object: &mut Claim| object.spec.request = Bytes(size);
        let failed = |source| GrowError::Api { claim: claim.to_owned(), source };
        self.change(NAMESPACE, claim, asked).map_err(failed)?;
        let mut changes = self.watch(Kind::Claim);
        let outcome = async {
            while let Some(change) = changes.recv().await {
                let Change::Applied(object) = change else { continue };
                let Some(object) = Claim::from_object(object) else { continue };
                if object.meta.name == claim
                    && let Some(outcome) = outcome(&object, Bytes(size))
                {
                    return outcome;
                }
            }
            std::future::pending().await
        };
        match tokio::time::timeout(LIMIT, outcome).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(message)) => Err(GrowError::Refused { claim: claim.to_owned(), message }),
            Err(_) => Err(GrowError::Unanswered { claim: claim.to_owned() }),
        }
    }
}

/// The outcome of the expansion to a size, if it is known.
fn outcome(claim: &Claim, size: Bytes) -> Option<Result<(), String>> {
    let status = &claim.status;
    if status.resize.is_empty() && status.capacity >= size {
        return Some(Ok(()));
    }
    if status.allocated != Some(size) {
        return None;
    }
    let refused = status.conditions.iter().find(|condition| condition.kind == "ControllerResizeError");
    match refused {
        Some(condition) => Some(Err(condition.message.clone())),
        None => status.resize.starts_with("NodeResize").then_some(Ok(())),
    }
}
