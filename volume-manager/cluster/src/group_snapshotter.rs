//! Group snapshots: a group snapshot gets a content, a driver takes the snapshots of all its volumes at one moment, and
//! each of them becomes a snapshot that claims can be made from (docs/behaviour/12-copies.md, sections 6 to 8).
//!
//! Two controllers, as in a cluster: one for all drivers binds group snapshots and contents and writes their snapshots,
//! one beside each driver makes its calls.

mod binding;
mod content;
mod members;
mod parameters;
mod release;
mod sidecar;

use std::sync::Arc;
use std::time::Duration;

use api::clock::Clock;
use api::timely::Timely;
use api::{ApiSource, GroupSnapshot};

use crate::events::Events;
use crate::queue::Pauses;
use crate::reconciler::{PAUSES, Running};
use crate::{GroupSnapshotService, secrets};

/// The longest pause before a failed step is repeated.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The finalizer of a group snapshot: its content is deleted first.
const BOUND: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection";
/// The finalizer of a content: the driver may have the group.
const CONTENT: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";

/// The annotation of a content whose CreateVolumeGroupSnapshot was called without a known answer.
const BEING_CREATED: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
/// The annotation of a content whose group snapshot is being deleted.
const BEING_DELETED: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";

/// The annotations of a content that name the secret of its calls.
const SECRET: secrets::Annotations = secrets::Annotations {
    name: "groupsnapshot.storage.kubernetes.io/deletion-secret-name",
    namespace: "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace",
};

/// The controller that binds group snapshots and contents. It stops when this is dropped.
#[derive(Debug)]
pub struct GroupSnapshotController {
    _running: Running,
}

impl GroupSnapshotController {
    /// Starts it on the current runtime.
    pub fn start(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let reconciler = binding::BindingReconciler::new(Arc::clone(&api));
        Self { _running: Running::start(reconciler, api, clock, PAUSES) }
    }
}

/// The driver that a group snapshotter serves, with the limits of its calls.
#[derive(Debug, Clone)]
pub struct GroupSnapshotterConfig {
    pub driver: String,
    /// The limit of each call.
    pub call_limit: Duration,
    /// The pause after a first failure. It doubles with each one that follows.
    pub first_pause: Duration,
}

impl GroupSnapshotterConfig {
    /// A group snapshotter with the limits that the external snapshotter has by default.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            call_limit: Duration::from_secs(60),
            first_pause: Duration::from_secs(1),
        }
    }
}

/// The controller beside a driver that takes group snapshots. It stops when this is dropped.
#[derive(Debug)]
pub struct GroupSnapshotter {
    _running: Running,
}

impl GroupSnapshotter {
    /// Starts it on the current runtime.
    pub fn start(
        config: GroupSnapshotterConfig,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        service: Arc<dyn GroupSnapshotService>,
    ) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let pauses = Pauses { first: config.first_pause, longest: LONGEST_PAUSE };
        let events = Events::new(Arc::clone(&api));
        let reconciler = sidecar::SidecarReconciler { config, events, api: Arc::clone(&api), service };
        Self { _running: Running::start(reconciler, api, clock, pauses) }
    }
}

/// The name of the content that is made for a group snapshot.
fn content_name(group: &GroupSnapshot) -> String {
    format!("groupsnapcontent-{}", group.meta.uid)
}
