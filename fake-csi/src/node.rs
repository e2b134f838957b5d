//! The node service of a node.
//!
//! Each call that changes something runs to its end on a blocking thread, also if its caller gives up: a deadline
//! that passes must not leave half a mount behind.

use std::sync::Arc;

use csi_proto::v1::{self, node_server::Node};
use tonic::{Request, Response, Status};

use crate::ability::Ability;
use crate::driver::Driver;
use crate::sabotage::Sabotage;

pub(crate) mod backing;
mod expand;
mod publish;
pub(crate) mod recover;
mod stage;
pub(crate) mod stats;
mod target;

#[derive(Debug, Clone)]
pub(crate) struct NodeService {
    pub(crate) driver: Arc<Driver>,
    pub(crate) name: Arc<str>,
    pub(crate) zone: Arc<str>,
}

impl NodeService {
    /// The bug: the volumes that the node has, which its limit leaves out.
    fn taken_places(&self) -> Result<i64, Status> {
        if !self.driver.breaks(Sabotage::LimitIsWhatIsLeft) {
            return Ok(0);
        }
        let has = |volume: &&crate::books::Volume| volume.attached.contains_key(&*self.name);
        let taken = self.driver.journal.read(|books| books.volumes.values().filter(has).count())?;
        Ok(i64::try_from(taken).unwrap_or(i64::MAX))
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let node = self.clone();
        crate::run(move || work(&node)).await
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        self.driver.must_be_able(Ability::StageUnstage)?;
        let request = request.into_inner();
        let staged = self.run(move |node| node.stage(&request)).await;
        // The sabotage acts elsewhere.
        staged.inspect_err(|_| self.driver.remember("a failed stage"))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        self.driver.must_be_able(Ability::StageUnstage)?;
        let request = request.into_inner();
        self.run(move |node| node.unstage(&request)).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(move |node| node.publish(&request)).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.run(move |node| node.unpublish(&request)).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        self.driver.must_be_able(Ability::VolumeStats)?;
        let request = request.into_inner();
        self.run(move |node| node.stats(&request)).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        self.driver.must_be_able(Ability::NodeExpand)?;
        if self.driver.breaks(Sabotage::CapabilityWithoutCall) {
            return Err(Status::unimplemented("NodeExpandVolume"));
        }
        let request = request.into_inner();
        self.run(move |node| node.expand(&request)).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        use v1::node_service_capability::{Rpc, Type, rpc};
        let flaps = self.driver.breaks(Sabotage::CapabilitiesFlap) && self.driver.count() % 2 == 1;
        let types = self.driver.options.abilities.iter().filter_map(|ability| ability.of_node());
        let capabilities = types
            .filter(|kind| !flaps || *kind != rpc::Type::StageUnstageVolume)
            .filter(|kind| {
                let drops = self.driver.breaks(Sabotage::FailedStageDropsCapability)
                    && self.driver.has_seen("a failed stage");
                *kind != rpc::Type::GetVolumeStats || !drops
            })
            .filter(|kind| {
                let hides = [Sabotage::ExpandLeftToNobody, Sabotage::ExpansionWithoutCall];
                *kind != rpc::Type::ExpandVolume || !hides.into_iter().any(|one| self.driver.breaks(one))
            })
            .map(|kind| v1::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })) })
            .collect();
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        let has_topology =
            self.driver.can(Ability::Topology) && !self.driver.breaks(Sabotage::TopologyMissing);
        let malformed = if self.driver.breaks(Sabotage::TopologyMalformed) { " or so" } else { "" };
        let mut topology = has_topology.then(|| crate::topology::of(&format!("{}{malformed}", self.zone)));
        if let Some(topology) = topology.as_mut()
            && self.driver.breaks(Sabotage::TopologyFollowsVolumes)
            && self.driver.journal.read(|books| !books.volumes.is_empty())?
        {
            topology.segments.insert("topology.fake.csi.volproof.dev/used".to_owned(), "yes".to_owned());
        }
        let mut node_id = self.name.to_string();
        if self.driver.breaks(Sabotage::NodesShareAnId) {
            let first = self.driver.journal.read(|books| books.nodes.keys().next().cloned())?;
            node_id = first.unwrap_or(node_id);
        }
        if self.driver.breaks(Sabotage::NodeIdChanges) {
            node_id += &format!("-{}", self.driver.count());
        }
        if self.driver.breaks(Sabotage::RestartRenamesNode) && self.driver.has_seen("a restart with volumes")
        {
            node_id += "-again";
        }
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id,
            max_volumes_per_node: match self.driver.breaks(Sabotage::NegativeVolumeLimit) {
                true => -1,
                false => self.driver.options.max_volumes - self.taken_places()?,
            },
            accessible_topology: topology,
        }))
    }
}
