//! The controller service of the simulated driver, as the attacher beside it calls it. It runs elsewhere: the
//! node's process may die without it.

use std::collections::BTreeMap;

use csi_proto::v1;
use tonic::Status;

use super::SimulatedDriver;

impl SimulatedDriver {
    /// ControllerPublishVolume. The answer is what the node's calls are to be given.
    pub(crate) async fn attach(&self, id: &str, node: &str) -> Result<BTreeMap<String, String>, Status> {
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            ..Default::default()
        };
        let answer = self.call("ControllerPublishVolume", request, |driver, request| {
            driver.known(&request.volume_id)?;
            driver.attach_to(&request.volume_id, &request.node_id)?;
            let publish_context = [("slot".to_owned(), request.volume_id.clone())].into();
            Ok(v1::ControllerPublishVolumeResponse { publish_context })
        });
        Ok(answer.await?.into_inner().publish_context.into_iter().collect())
    }

    /// ControllerUnpublishVolume.
    pub(crate) async fn detach(&self, id: &str, node: &str) -> Result<(), Status> {
        let request = v1::ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            ..Default::default()
        };
        let answer = self.call("ControllerUnpublishVolume", request, |driver, request| {
            driver.known(&request.volume_id)?;
            driver.change(&request.volume_id, |volume| _ = volume.attached.remove(&request.node_id));
            Ok(v1::ControllerUnpublishVolumeResponse {})
        });
        answer.await.map(drop)
    }

    /// A volume that is for one node is attached to no second one.
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
