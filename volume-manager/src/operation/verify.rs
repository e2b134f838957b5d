//! Checks with the API that a volume is attached, and adds it to the actual state.
//!
//! The kubelet's `GenerateVerifyControllerAttachedVolumeFunc`. The reconciler starts this only when the node's
//! object is known to list the volume as in use and attached, so waiting for either costs no back-off. Failures
//! are logged and emit no Kubernetes event.

use api::error::ErrorClass;
use api::{Bytes, Claim, Node};
use plugin_api::error::{Classified, Failure};
use plugin_api::{OperationContext, Transition};

use super::{Failed, VerifyAttached};

const STEP: &str = "VerifyControllerAttachedVolume failed";

pub async fn run(request: &VerifyAttached, cx: &OperationContext) -> Result<(), Failed> {
    let failed = |error: Failure| Failed::quiet(STEP, request.spec.name(), error);
    let claim_size = if request.wants_size {
        claim_size(request, cx).await.map_err(|error| failed(error.into()))?
    } else {
        None
    };
    let device_path = if request.attachable {
        let node = api::get::<Node>(&*cx.api, "", cx.config.node.as_str()).await;
        let node = node.map_err(|error| failed(error.into()))?;
        let attached = node.attached(&request.volume);
        attached.ok_or_else(|| failed(NotAttached.into()))?.device_path.clone()
    } else {
        String::new()
    };
    cx.mark.last(Transition::Attached {
        spec: request.spec.clone(),
        plugin: request.plugin.clone(),
        attachable: request.attachable,
        device_path,
        claim_size,
    });
    Ok(())
}

/// The claim's capacity in its status: the size of the volume before an expansion that is requested but not
/// done.
async fn claim_size(request: &VerifyAttached, cx: &OperationContext) -> Result<Option<Bytes>, api::ApiError> {
    let reference = request.spec.volume().and_then(|volume| volume.claim.as_ref());
    let Some(reference) = reference else { return Ok(None) };
    let claim = api::get::<Claim>(&*cx.api, &reference.claim.namespace, &reference.claim.name).await?;
    Ok(Some(claim.status.capacity))
}

/// The node's object, read just now, does not list the volume as attached.
#[derive(Debug, thiserror::Error)]
#[error("Volume not attached according to node status")]
struct NotAttached;

impl Classified for NotAttached {
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }
}
