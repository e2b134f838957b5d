//! Attaching and detaching as in a cluster: the attach/detach controller makes and deletes attachments, and the attacher
//! beside the driver makes the calls for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::ApiSource;
use api::clock::Clock;
use async_trait::async_trait;
use cluster::{AttachService, Attacher, AttacherConfig};
use contracts::event::Client;
use csi_proto::v1;
use tonic::Status;
use tonic::transport::Channel;
use volume_manager::controller::attach_detach::{AttachDetach, AttachDetachConfig};
use volume_manager::plugin::registry;

use super::FIRST_PAUSE;
use crate::api_server::ApiServer;
use crate::driver::Capabilities;

/// The two controllers for one driver. Dropping it ends them.
#[derive(Debug)]
pub struct Attaching {
    _attach_detach: AttachDetach,
    _attacher: Attacher,
    ways: Arc<Ways>,
}

impl Attaching {
    /// Starts both. Attaching takes at least `delay`.
    pub fn start(
        api: &ApiServer,
        clock: Arc<dyn Clock>,
        channel: Channel,
        capabilities: &Capabilities,
        delay: Duration,
    ) -> Self {
        let source: Arc<dyn ApiSource> = api.seen_by(Client::Controller);
        let config = AttacherConfig {
            publishes: capabilities.controller_can("PUBLISH_UNPUBLISH_VOLUME"),
            publishes_read_only: capabilities.controller_can("PUBLISH_READONLY"),
            fine_modes: capabilities.controller_can("SINGLE_NODE_MULTI_WRITER"),
            first_pause: FIRST_PAUSE,
            ..AttacherConfig::new(capabilities.name.clone())
        };
        let ways = Arc::new(Ways { channel, by_node: Mutex::default(), delay });
        let service: Arc<dyn AttachService> = Arc::<Ways>::clone(&ways);
        Self {
            _attach_detach: AttachDetach::start(
                AttachDetachConfig::default(),
                Arc::clone(&source),
                Arc::clone(&clock),
                registry::kubelet(),
            ),
            _attacher: Attacher::start(config, source, clock, service),
            ways,
        }
    }

    /// Calls the controller through another channel where it is about this node, by the driver's name for it.
    pub fn reach(&self, node_id: &str, channel: Channel) {
        self.ways.by_node().insert(node_id.to_owned(), channel);
    }
}

/// The driver's controller service: each node's calls are recorded where its other calls are.
#[derive(Debug)]
struct Ways {
    channel: Channel,
    by_node: Mutex<BTreeMap<String, Channel>>,
    /// The shortest time that attaching takes.
    delay: Duration,
}

impl Ways {
    fn by_node(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Channel>> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn to(&self, node_id: &str) -> Channel {
        self.by_node().get(node_id).unwrap_or(&self.channel).clone()
    }
}

#[async_trait]
impl AttachService for Ways {
    async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        self.to(&request.node_id).publish(request, limit).await
    }

    async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        self.to(&request.node_id).unpublish(request, limit).await
    }
}
