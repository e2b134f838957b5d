//! The identity service.

use std::sync::Arc;

use csi_proto::v1::{self, identity_server::Identity};
use tonic::{Request, Response, Status};

use crate::ability::Ability;
use crate::driver::Driver;
use crate::sabotage::Sabotage;

#[derive(Debug, Clone)]
pub(crate) struct IdentityService {
    pub(crate) driver: Arc<Driver>,
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        let mut name = self.driver.options.name.clone();
        if self.driver.breaks(Sabotage::WrongPluginName) {
            name.push_str(" (fake)");
        }
        if self.driver.breaks(Sabotage::PluginNameChanges) {
            name += &format!("-{}", self.driver.count());
        }
        Ok(Response::new(v1::GetPluginInfoResponse {
            name,
            vendor_version: match self.driver.breaks(Sabotage::VersionMissing) {
                true => String::new(),
                false => env!("CARGO_PKG_VERSION").to_owned(),
            },
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        use v1::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
        let can = |ability| self.driver.can(ability);
        let mut services = vec![service::Type::ControllerService];
        if can(Ability::Topology) && !self.driver.breaks(Sabotage::TopologyUnannounced) {
            services.push(service::Type::VolumeAccessibilityConstraints);
        }
        if can(Ability::GroupSnapshot) {
            services.push(service::Type::GroupControllerService);
        }
        if can(Ability::SnapshotMetadata) {
            services.push(service::Type::SnapshotMetadataService);
        }
        let mut kinds: Vec<Type> =
            services.into_iter().map(|service| Type::Service(Service { r#type: service.into() })).collect();
        let is_dropped = self.driver.breaks(Sabotage::RestartDropsCapability)
            && self.driver.has_seen("a restart with volumes");
        let online = can(Ability::OnlineExpansion);
        // A node alone grows volumes in use only.
        if (can(Ability::ControllerExpand) || (can(Ability::NodeExpand) && online)) && !is_dropped {
            let kind = if online { volume_expansion::Type::Online } else { volume_expansion::Type::Offline };
            kinds.push(Type::VolumeExpansion(VolumeExpansion { r#type: kind.into() }));
        }
        let capabilities =
            kinds.into_iter().map(|kind| v1::PluginCapability { r#type: Some(kind) }).collect();
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        if self.driver.breaks(Sabotage::ProbeMissing) {
            return Err(Status::unimplemented("Probe"));
        }
        let is_late = self.driver.breaks(Sabotage::UnreadyLater) && self.driver.count() >= 100;
        let ready = !is_late && !self.driver.breaks(Sabotage::NeverReady);
        Ok(Response::new(v1::ProbeResponse { ready: Some(ready) }))
    }
}
