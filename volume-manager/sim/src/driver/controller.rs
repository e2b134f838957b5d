//! The simulated driver's controller service, for the attacher. It runs on another machine than the node, so a
//! crash of the manager does not end it.

use std::time::Duration;

use async_trait::async_trait;
use cluster::AttachService;
use csi_proto::v1;
use tonic::Status;

use super::SimulatedDriver;

#[async_trait]
impl AttachService for SimulatedDriver {
    async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        self.controller_call("ControllerPublishVolume", request, limit, |driver, request| {
            driver.known(&request.volume_id)?;
            driver.attach_to(&request.volume_id, &request.node_id)?;
            let publish_context = [("slot".to_owned(), request.volume_id.clone())].into();
            Ok(v1::ControllerPublishVolumeResponse { publish_context })
        })
        .await
    }

    async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        self.controller_call("ControllerUnpublishVolume", request, limit, |driver, request| {
            driver.was_known(&request.volume_id)?;
            driver.change(&request.volume_id, |volume| _ = volume.attached.remove(&request.node_id));
            Ok(v1::ControllerUnpublishVolumeResponse {})
        })
        .await
    }
}

impl SimulatedDriver {
    /// Attaches a volume to a node; a single-node volume is refused on a second node.
    fn attach_to(&self, id: &str, node: &str) -> Result<(), Status> {
        let mut inner = self.open();
        let Some(volume) = inner.volumes.get_mut(id) else { return Ok(()) };
        if let Some(other) = volume.attached.iter().find(|other| self.one_node && *other != node) {
            return Err(Status::failed_precondition(format!("the volume is attached to {other}")));
        }
        volume.attached.insert(node.to_owned());
        Ok(())
    }
}
