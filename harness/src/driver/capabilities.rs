//! What a driver can do: asked, never configured.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use csi_proto::v1::identity_client::IdentityClient;
use csi_proto::v1::node_client::NodeClient;
use serde::{Deserialize, Serialize};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::DriverError;
use crate::proxy::{self, within};

/// What a driver says of itself, in the words of the specification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Of the plugin: `CONTROLLER_SERVICE`, `ONLINE`, …
    pub plugin: BTreeSet<String>,
    /// Of the controller service: `CREATE_DELETE_VOLUME`, …
    pub controller: BTreeSet<String>,
    /// Of the node service: `STAGE_UNSTAGE_VOLUME`, …
    pub node: BTreeSet<String>,
    /// Its own name for this node.
    pub node_id: String,
    /// How many of its volumes the node takes; 0 for any number.
    pub max_volumes: i64,
    /// Where the node is, for volumes that are not everywhere.
    pub topology: std::collections::BTreeMap<String, String>,
}

impl Capabilities {
    /// Whether it has a controller service.
    pub fn controls(&self) -> bool {
        self.plugin.contains("CONTROLLER_SERVICE")
    }

    /// Whether its controller can do something.
    pub fn controller_can(&self, capability: &str) -> bool {
        self.controller.contains(capability)
    }

    /// Whether its node service can do something.
    pub fn node_can(&self, capability: &str) -> bool {
        self.node.contains(capability)
    }

    pub(super) async fn ask(
        socket: &Path,
        controller: Option<&Path>,
        limit: Duration,
    ) -> Result<Self, DriverError> {
        let channel =
            channel(socket).map_err(|source| DriverError::Ask { method: "GetPluginInfo", source })?;
        let mut found = Self::default();
        found.ask_identity(channel.clone(), limit).await?;
        found.ask_node(channel.clone(), limit).await?;
        if found.controls() || controller.is_some() {
            let channel = match controller {
                Some(socket) => self::channel(socket)
                    .map_err(|source| DriverError::Ask { method: "ControllerGetCapabilities", source })?,
                None => channel,
            };
            found.ask_controller(channel, limit).await?;
        }
        Ok(found)
    }

    async fn ask_identity(&mut self, channel: Channel, limit: Duration) -> Result<(), DriverError> {
        let mut client = IdentityClient::new(channel);
        let info = client.get_plugin_info(within(v1::GetPluginInfoRequest {}, limit)).await;
        let info = info.map_err(failed("GetPluginInfo"))?.into_inner();
        self.name = info.name;
        self.version = info.vendor_version;
        let answer = client.get_plugin_capabilities(within(v1::GetPluginCapabilitiesRequest {}, limit)).await;
        let answer = answer.map_err(failed("GetPluginCapabilities"))?.into_inner();
        use v1::plugin_capability::{Type, service, volume_expansion};
        for capability in answer.capabilities.into_iter().filter_map(|capability| capability.r#type) {
            let name = match capability {
                Type::Service(service) => {
                    service::Type::try_from(service.r#type).map(|kind| kind.as_str_name())
                }
                Type::VolumeExpansion(expansion) => {
                    volume_expansion::Type::try_from(expansion.r#type).map(|kind| kind.as_str_name())
                }
            };
            // What a newer specification knows is not used here.
            self.plugin.extend(name.ok().map(str::to_owned));
        }
        Ok(())
    }

    async fn ask_node(&mut self, channel: Channel, limit: Duration) -> Result<(), DriverError> {
        let mut client = NodeClient::new(channel);
        let answer = client.node_get_capabilities(within(v1::NodeGetCapabilitiesRequest {}, limit)).await;
        let answer = answer.map_err(failed("NodeGetCapabilities"))?.into_inner();
        use v1::node_service_capability::{Type, rpc};
        for capability in answer.capabilities.into_iter().filter_map(|capability| capability.r#type) {
            let Type::Rpc(rpc) = capability;
            self.node.extend(rpc::Type::try_from(rpc.r#type).ok().map(|kind| kind.as_str_name().to_owned()));
        }
        let info = client.node_get_info(within(v1::NodeGetInfoRequest {}, limit)).await;
        let info = info.map_err(failed("NodeGetInfo"))?.into_inner();
        self.node_id = info.node_id;
        self.max_volumes = info.max_volumes_per_node;
        self.topology =
            info.accessible_topology.map(|found| found.segments.into_iter().collect()).unwrap_or_default();
        Ok(())
    }

    async fn ask_controller(&mut self, channel: Channel, limit: Duration) -> Result<(), DriverError> {
        let mut client = ControllerClient::new(channel);
        let request = within(v1::ControllerGetCapabilitiesRequest {}, limit);
        let answer = client.controller_get_capabilities(request).await;
        let answer = answer.map_err(failed("ControllerGetCapabilities"))?.into_inner();
        use v1::controller_service_capability::{Type, rpc};
        for capability in answer.capabilities.into_iter().filter_map(|capability| capability.r#type) {
            let Type::Rpc(rpc) = capability;
            self.controller
                .extend(rpc::Type::try_from(rpc.r#type).ok().map(|kind| kind.as_str_name().to_owned()));
        }
        Ok(())
    }
}

/// Whether the driver says that it is ready. One that does not know `Probe`'s answer is.
pub(super) async fn probe(socket: &Path, limit: Duration) -> Result<bool, Status> {
    let mut client = IdentityClient::new(channel(socket)?);
    match client.probe(within(v1::ProbeRequest {}, limit)).await {
        Ok(answer) => Ok(answer.into_inner().ready.unwrap_or(true)),
        Err(status) if status.code() == Code::Unimplemented => Ok(true),
        Err(status) => Err(status),
    }
}

fn channel(socket: &Path) -> Result<Channel, Status> {
    proxy::connect(socket).map_err(|error| Status::unavailable(error.to_string()))
}

fn failed(method: &'static str) -> impl Fn(Status) -> DriverError {
    move |source| DriverError::Ask { method, source }
}
