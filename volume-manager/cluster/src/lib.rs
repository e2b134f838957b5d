//! The cluster side of a driver's volumes: the controllers that run beside its controller service.
//!
//! Each is a reconciler over [`api::ApiSource`]: it follows the objects that concern it, decides in a pure
//! function what one of them needs, and calls the driver through [`service`]. None polls, and none
//! knows a node but through the API.

mod annotations;
pub mod attacher;
pub mod binder;
mod capability;
mod class_parameters;
pub mod ephemeral;
mod events;
mod found;
pub mod group_snapshotter;
mod modifier;
pub mod placement;
pub mod protection;
pub mod provisioner;
mod queue;
mod reconcile_error;
mod reconciler;
mod references;
pub mod resizer;
mod secrets;
pub mod service;
pub mod snapshotter;

pub use attacher::{Attacher, AttacherConfig};
pub use binder::Binder;
pub use ephemeral::Ephemeral;
pub use group_snapshotter::{GroupSnapshotController, GroupSnapshotter, GroupSnapshotterConfig};
pub use modifier::{Modifier, ModifierConfig};
pub use placement::Placement;
pub use protection::Protection;
pub use provisioner::{Provisioner, ProvisionerConfig};
use reconcile_error::ReconcileError;
pub use resizer::{Resizer, ResizerConfig};
pub use service::{
    AttachService, ExpandService, GroupSnapshotService, ModifyService, ProvisionService, SnapshotService,
};
pub use snapshotter::{SnapshotController, Snapshotter, SnapshotterConfig};
