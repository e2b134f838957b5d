//! Snapshots: a snapshot gets a content, a driver takes what the content stands for, and deletes it with it
//! (docs/behaviour/12-copies.md, sections 1 to 3).
//!
//! Two controllers, as in a cluster: one for all drivers binds snapshots and contents, one beside each driver makes its
//! calls. They know each other by the objects only.

mod binding;
mod content;
mod parameters;
mod release;
mod sidecar;

use std::sync::Arc;
use std::time::Duration;

use api::clock::Clock;
use api::timely::Timely;
use api::{ApiSource, Key, Kind, Owner, Snapshot};

use crate::events::Events;
use crate::queue::Pauses;
use crate::reconciler::{PAUSES, Running};
use crate::{SnapshotService, secrets};

/// The longest pause before what failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// On a snapshot: a claim may be made from it.
const AS_SOURCE: &str = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// On a snapshot: its content is deleted with it, and first.
const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// On a content: the driver may have the snapshot.
const CONTENT: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// On a claim: a snapshot of it is not finished.
const SOURCE_CLAIM: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";

/// On a content: the driver was asked for it, and its answer is not known.
const BEING_CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// On a snapshot: the group that it is part of exists.
pub(crate) const IN_GROUP: &str = "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection";
/// On a content: its snapshot is part of the group of this handle, and neither taken nor deleted alone.
pub(crate) const GROUP_HANDLE: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";

/// On a content: its snapshot is being deleted.
const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";

/// On a content: the secret with which it is made and deleted.
pub(crate) const SECRET: secrets::Annotations = secrets::Annotations {
    name: "snapshot.storage.kubernetes.io/deletion-secret-name",
    namespace: "snapshot.storage.kubernetes.io/deletion-secret-namespace",
};

/// The controller that binds snapshots and contents. It stops when this is dropped.
#[derive(Debug)]
pub struct SnapshotController {
    _running: Running,
}

impl SnapshotController {
    /// Starts it on the current runtime.
    pub fn start(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        Self::following(binding::KINDS, api, clock)
    }

    /// Starts it in a cluster that has group snapshots.
    pub fn start_with_groups(api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        Self::following(binding::KINDS_WITH_GROUPS, api, clock)
    }

    fn following(kinds: &'static [Kind], api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let reconciler = binding::BindingReconciler::new(kinds, Arc::clone(&api));
        Self { _running: Running::start(reconciler, api, clock, PAUSES) }
    }
}

/// The driver of a snapshotter, and the snapshotter's settings.
#[derive(Debug, Clone)]
pub struct SnapshotterConfig {
    pub driver: String,
    /// Whether it lists its snapshots: how the state of one that exists already is found.
    pub lists: bool,
    /// The limit of each call.
    pub call_limit: Duration,
    /// The pause after a first failure. It doubles with each one that follows.
    pub first_pause: Duration,
}

impl SnapshotterConfig {
    /// A snapshotter with the limits that the external snapshotter has by default.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            lists: false,
            call_limit: Duration::from_secs(60),
            first_pause: Duration::from_secs(1),
        }
    }
}

/// The controller beside a driver that takes snapshots. It stops when this is dropped.
#[derive(Debug)]
pub struct Snapshotter {
    _running: Running,
}

impl Snapshotter {
    /// Starts it on the current runtime.
    pub fn start(
        config: SnapshotterConfig,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        service: Arc<dyn SnapshotService>,
    ) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let pauses = Pauses { first: config.first_pause, longest: LONGEST_PAUSE };
        let events = Events::new(Arc::clone(&api));
        let reconciler = sidecar::SidecarReconciler { config, events, api: Arc::clone(&api), service };
        Self { _running: Running::start(reconciler, api, clock, pauses) }
    }
}

/// The name of the content that is made for a snapshot.
fn content_name(snapshot: &Snapshot) -> String {
    format!("snapcontent-{}", snapshot.meta.uid)
}

/// The group snapshot that a snapshot is part of.
pub(crate) fn group_of(snapshot: &Snapshot) -> Option<&Owner> {
    snapshot.meta.owners.iter().find(|owner| owner.kind == Kind::GroupSnapshot.as_str())
}

/// A snapshot as messages name it.
pub(crate) fn display(key: &Key) -> String {
    format!("{}/{}", key.namespace, key.name)
}
