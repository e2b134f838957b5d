//! Making, binding, copying and deleting volumes, as a cluster does it: the binder, the controllers beside the driver,
//! and those that make claims for pods and write their nodes to them.

use std::sync::Arc;

use api::ApiSource;
use api::clock::Clock;
use cluster::{
    Binder, Ephemeral, GroupSnapshotController, GroupSnapshotter, GroupSnapshotterConfig, Modifier,
    ModifierConfig, Placement, Provisioner, ProvisionerConfig, SnapshotController, Snapshotter,
    SnapshotterConfig,
};
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
    _snapshots: SnapshotController,
    _groups: GroupSnapshotController,
    /// Only where the driver takes group snapshots.
    _group_snapshotter: Option<GroupSnapshotter>,
    /// Only where the driver makes volumes.
    _provisioner: Option<Provisioner>,
    /// Only where the driver takes snapshots.
    _snapshotter: Option<Snapshotter>,
    /// Only where the driver changes the attributes of volumes.
    _modifier: Option<Modifier>,
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
            snapshots: capabilities.controller_can("CREATE_DELETE_SNAPSHOT"),
            modifies: capabilities.controller_can("MODIFY_VOLUME"),
            fine_modes: capabilities.controller_can("SINGLE_NODE_MULTI_WRITER"),
            first_pause: FIRST_PAUSE,
            ..ProvisionerConfig::new(capabilities.name.clone())
        };
        let channel = Arc::new(channel);
        let provisions = capabilities.controller_can("CREATE_DELETE_VOLUME");
        Self {
            _binder: Binder::start(Arc::clone(&source), Arc::clone(clock)),
            _ephemeral: Ephemeral::start(Arc::clone(&source), Arc::clone(clock)),
            _placement: Placement::start(Arc::clone(&source), Arc::clone(clock)),
            _snapshots: SnapshotController::start_with_groups(Arc::clone(&source), Arc::clone(clock)),
            _groups: GroupSnapshotController::start(Arc::clone(&source), Arc::clone(clock)),
            _group_snapshotter: capabilities.takes_groups().then(|| {
                let config = GroupSnapshotterConfig {
                    first_pause: FIRST_PAUSE,
                    ..GroupSnapshotterConfig::new(capabilities.name.clone())
                };
                let service = Arc::<Channel>::clone(&channel);
                GroupSnapshotter::start(config, Arc::clone(&source), Arc::clone(clock), service)
            }),
            _provisioner: provisions.then(|| {
                let service = Arc::<Channel>::clone(&channel);
                Provisioner::start(config, Arc::clone(&source), Arc::clone(clock), service)
            }),
            _snapshotter: snapshotter(capabilities).map(|config| {
                let service = Arc::<Channel>::clone(&channel);
                Snapshotter::start(config, Arc::clone(&source), Arc::clone(clock), service)
            }),
            _modifier: capabilities.controller_can("MODIFY_VOLUME").then(|| {
                let config = ModifierConfig {
                    first_pause: FIRST_PAUSE,
                    ..ModifierConfig::new(capabilities.name.clone())
                };
                Modifier::start(config, source, Arc::clone(clock), channel)
            }),
        }
    }
}

fn snapshotter(capabilities: &Capabilities) -> Option<SnapshotterConfig> {
    capabilities.controller_can("CREATE_DELETE_SNAPSHOT").then(|| SnapshotterConfig {
        lists: capabilities.controller_can("LIST_SNAPSHOTS"),
        first_pause: FIRST_PAUSE,
        ..SnapshotterConfig::new(capabilities.name.clone())
    })
}
