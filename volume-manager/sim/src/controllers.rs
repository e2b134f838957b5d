//! The controllers of the cluster side, as a run starts them.

use std::sync::Arc;

use api::ApiSource;
use api::clock::TokioClock;
use cluster::{
    Attacher, AttacherConfig, Binder, Ephemeral, GroupSnapshotController, GroupSnapshotter,
    GroupSnapshotterConfig, Modifier, ModifierConfig, Placement, Protection, Provisioner, ProvisionerConfig,
    Resizer, ResizerConfig, SnapshotController, Snapshotter, SnapshotterConfig,
};
use plugin_api::registry::Registry;
use volume_manager::controller::attach_detach::{AttachDetach, AttachDetachConfig};
use volume_manager::plugin::csi::CsiPlugin;

use crate::driver::{NAME, SimulatedDriver};

/// The controllers that attach volumes. They stop when this is dropped.
pub(crate) struct Attaching {
    _attach_detach: AttachDetach,
    _attacher: Attacher,
}

impl Attaching {
    pub(crate) fn start(api: &Arc<dyn ApiSource>, driver: &SimulatedDriver) -> Self {
        let registry = Registry::new(vec![Arc::new(CsiPlugin::new())]);
        let clock = TokioClock::shared;
        let config = AttachDetachConfig::default();
        let (api, service) = (|| Arc::clone(api), Arc::new(driver.clone()));
        Self {
            _attach_detach: AttachDetach::start(config, api(), clock(), registry),
            _attacher: Attacher::start(AttacherConfig::new(NAME), api(), clock(), service),
        }
    }
}

/// The controllers of claims. They stop when this is dropped.
pub(crate) struct Claiming {
    _binder: Binder,
    _ephemeral: Ephemeral,
    _placement: Placement,
    _protection: Protection,
    _provisioner: Provisioner,
    _resizer: Resizer,
    _modifier: Modifier,
    _snapshots: SnapshotController,
    _snapshotter: Snapshotter,
    /// Only where a user takes group snapshots.
    _groups: Option<(GroupSnapshotController, GroupSnapshotter)>,
}

impl Claiming {
    pub(crate) fn start(api: &Arc<dyn ApiSource>, driver: &SimulatedDriver, groups: bool) -> Self {
        let clock = TokioClock::shared;
        let (api, service) = (|| Arc::clone(api), || Arc::new(driver.clone()));
        let provisioner = ProvisionerConfig {
            clones: true,
            snapshots: true,
            modifies: true,
            ..ProvisionerConfig::new(NAME)
        };
        let snapshotter = SnapshotterConfig { lists: true, ..SnapshotterConfig::new(NAME) };
        Self {
            _binder: Binder::start(api(), clock()),
            _ephemeral: Ephemeral::start(api(), clock()),
            _placement: Placement::start(api(), clock()),
            _protection: Protection::start(api(), clock()),
            _provisioner: Provisioner::start(provisioner, api(), clock(), service()),
            _resizer: Resizer::start(ResizerConfig::new(NAME), api(), clock(), service()),
            _modifier: Modifier::start(ModifierConfig::new(NAME), api(), clock(), service()),
            _snapshots: match groups {
                true => SnapshotController::start_with_groups(api(), clock()),
                false => SnapshotController::start(api(), clock()),
            },
            _snapshotter: Snapshotter::start(snapshotter, api(), clock(), service()),
            _groups: groups.then(|| {
                let config = GroupSnapshotterConfig::new(NAME);
                let binding = GroupSnapshotController::start(api(), clock());
                (binding, GroupSnapshotter::start(config, api(), clock(), service()))
            }),
        }
    }
}
