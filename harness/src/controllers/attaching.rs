//! Attaching and detaching, as a cluster does it: the attach/detach controller makes and deletes attachments,
//! and the attacher beside the driver does what they ask for.

use std::sync::Arc;
use std::time::Duration;

use api::ApiSource;
use api::clock::TokioClock;
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
}

impl Attaching {
    /// Starts both. Attaching takes at least `delay`.
    pub fn start(api: &ApiServer, channel: Channel, capabilities: &Capabilities, delay: Duration) -> Self {
        let source: Arc<dyn ApiSource> = api.seen_by(Client::Controller);
        let config = AttacherConfig {
            publishes: capabilities.controller_can("PUBLISH_UNPUBLISH_VOLUME"),
            publishes_read_only: capabilities.controller_can("PUBLISH_READONLY"),
            fine_modes: capabilities.controller_can("SINGLE_NODE_MULTI_WRITER"),
            first_pause: FIRST_PAUSE,
            ..AttacherConfig::new(capabilities.name.clone())
        };
        let service: Arc<dyn AttachService> = match delay.is_zero() {
            true => Arc::new(channel),
            false => Arc::new(Delayed { channel, delay }),
        };
        Self {
            _attach_detach: AttachDetach::start(
                AttachDetachConfig::default(),
                Arc::clone(&source),
                TokioClock::shared(),
                registry::kubelet(),
            ),
            _attacher: Attacher::start(config, source, TokioClock::shared(), service),
        }
    }
}

/// A driver that takes its time to attach.
#[derive(Debug)]
struct Delayed {
    channel: Channel,
    delay: Duration,
}

#[async_trait]
impl AttachService for Delayed {
    async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        tokio::time::sleep(self.delay).await;
        self.channel.publish(request, limit).await
    }

    async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
        limit: Duration,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        self.channel.unpublish(request, limit).await
    }
}
