//! Making, binding and deleting volumes, as a cluster does it: the binder, the provisioner beside the driver, and the
//! controllers that make claims for pods and tell them their nodes.

use std::sync::Arc;

use api::ApiSource;
use api::clock::Clock;
use cluster::{Binder, Ephemeral, Placement, Provisioner, ProvisionerConfig};
use contracts::event::Client;
use tonic::transport::Channel;

use super::FIRST_PAUSE;
use crate::api_server::ApiServer;
use crate::driver::Capabilities;

/// The controllers of claims and volumes. Dropping them ends them.
#[derive(Debug)]
pub struct Volumes {
    _binder: Binder,
    _ephemeral: Ephemeral,
    _placement: Placement,
    /// Only where the driver makes volumes.
    _provisioner: Option<Provisioner>,
}

impl Volumes {
    /// Starts them for a driver that is called through `channel`.
    pub fn start(
        api: &ApiServer,
        clock: &Arc<dyn Clock>,
        channel: Channel,
        capabilities: &Capabilities,
    ) -> Self {
        let source: Arc<dyn ApiSource> = api.seen_by(Client::Controller);
        let config = ProvisionerConfig {
            topology: capabilities.plugin.contains("VOLUME_ACCESSIBILITY_CONSTRAINTS"),
            clones: capabilities.controller_can("CLONE_VOLUME"),
            fine_modes: capabilities.controller_can("SINGLE_NODE_MULTI_WRITER"),
            first_pause: FIRST_PAUSE,
            ..ProvisionerConfig::new(capabilities.name.clone())
        };
        let provisions = capabilities.controller_can("CREATE_DELETE_VOLUME");
        let provisioner = provisions
            .then(|| Provisioner::start(config, Arc::clone(&source), Arc::clone(clock), Arc::new(channel)));
        Self {
            _binder: Binder::start(Arc::clone(&source), Arc::clone(clock)),
            _ephemeral: Ephemeral::start(Arc::clone(&source), Arc::clone(clock)),
            _placement: Placement::start(source, Arc::clone(clock)),
            _provisioner: provisioner,
        }
    }
}
