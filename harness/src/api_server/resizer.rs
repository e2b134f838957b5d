//! The resizer: grows a volume as far as its controller goes, and tells the node to do the rest.

use std::time::Duration;

use api::patch::ClaimStatusPatch;
use api::storage::Condition;
use api::{ApiError, Bytes, Claim, Key, Kind, Patch, PatchBody, PersistentSource, Volume};
use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use tonic::Status;
use tonic::transport::Channel;

use super::{ApiServer, NAMESPACE};
use crate::driver::Capabilities;
use crate::proxy::within;

/// How long one call may take.
const CALL: Duration = Duration::from_secs(30);

/// Why a volume was not grown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// There is no such volume of a driver.
    #[error("cannot find the volume `{claim}`")]
    Unknown { claim: String },
    /// The driver refused.
    #[error("cannot grow the volume `{claim}`")]
    Expand {
        claim: String,
        /// The driver's answer.
        #[source]
        source: Status,
    },
    /// An object could not be written.
    #[error("cannot write the objects of the volume `{claim}`")]
    Api {
        claim: String,
        /// The API server's answer.
        #[source]
        source: ApiError,
    },
}

/// Grows volumes of one driver.
#[derive(Debug)]
pub struct Resizer {
    api: ApiServer,
    channel: Channel,
    capabilities: Capabilities,
}

impl Resizer {
    /// A resizer whose calls go through `channel`.
    pub fn new(api: ApiServer, channel: Channel, capabilities: Capabilities) -> Self {
        Self { api, channel, capabilities }
    }

    /// Asks for more, as a user would, and does the controller's part of it.
    ///
    /// # Errors
    /// When the driver's controller refuses.
    pub async fn expand(&self, claim: &str, size: u64) -> Result<(), ResizeError> {
        let unknown = || ResizeError::Unknown { claim: claim.to_owned() };
        let failed = |source| ResizeError::Api { claim: claim.to_owned(), source };
        let asked = |object: &mut Claim| object.spec.request = Bytes(size);
        let object = self.api.change(NAMESPACE, claim, asked).map_err(failed)?;
        let volume = self.api.get::<Volume>("", &object.spec.volume).ok_or_else(unknown)?;
        self.status(claim, Bytes(size), "ControllerResizeInProgress", "Resizing").map_err(failed)?;
        let (grown, node_too) = self.control(claim, &volume, size).await?;
        let capacity = Patch::of(Key::cluster(Kind::Volume, &volume.meta.name), PatchBody::Capacity(grown));
        self.api.patch(capacity).map_err(failed)?;
        match node_too {
            true => self
                .status(claim, Bytes(size), "NodeResizePending", "FileSystemResizePending")
                .map_err(failed),
            false => {
                let done = ClaimStatusPatch {
                    capacity: Some(grown),
                    allocated: None,
                    resize: Some(String::new()),
                    conditions: Some(Vec::new()),
                };
                self.patch(claim, done).map_err(failed)
            }
        }
    }

    /// The controller's part: what the volume can hold now, and whether the node has a part, too. A driver
    /// that grows on the node only has none.
    async fn control(&self, claim: &str, volume: &Volume, size: u64) -> Result<(Bytes, bool), ResizeError> {
        let PersistentSource::Csi(csi) = &volume.source else {
            return Err(ResizeError::Unknown { claim: claim.to_owned() });
        };
        if !self.capabilities.controller_can("EXPAND_VOLUME") {
            return Ok((Bytes(size), true));
        }
        let request = v1::ControllerExpandVolumeRequest {
            volume_id: csi.handle.to_string(),
            capacity_range: Some(v1::CapacityRange { required_bytes: size.cast_signed(), limit_bytes: 0 }),
            ..Default::default()
        };
        let request = within(request, CALL);
        let answer = ControllerClient::new(self.channel.clone()).controller_expand_volume(request).await;
        let answer =
            answer.map_err(|source| ResizeError::Expand { claim: claim.to_owned(), source })?.into_inner();
        let grown = u64::try_from(answer.capacity_bytes).unwrap_or_default().max(size);
        Ok((Bytes(grown), answer.node_expansion_required))
    }

    fn status(&self, claim: &str, size: Bytes, resize: &str, condition: &str) -> Result<(), ApiError> {
        let condition =
            Condition { kind: condition.to_owned(), status: "True".to_owned(), message: String::new() };
        let patch = ClaimStatusPatch {
            capacity: None,
            allocated: Some(size),
            resize: Some(resize.to_owned()),
            conditions: Some(vec![condition]),
        };
        self.patch(claim, patch)
    }

    fn patch(&self, claim: &str, patch: ClaimStatusPatch) -> Result<(), ApiError> {
        let key = Key::namespaced(Kind::Claim, NAMESPACE, claim);
        self.api.patch(Patch::of(key, PatchBody::ClaimStatus(patch))).map(drop)
    }
}
