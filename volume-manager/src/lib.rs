//! The node's volume manager: waits for attachments, stages and publishes volumes, and undoes both.
//!
//! Start with [`VolumeManager`]: its owner adds pods, and it mounts their volumes. Behind it one task, the
//! loop in [`manager`], owns all state. Everything reaches it as an `Event`: the
//! [`populator`] turns pods into desired state, [`plugin_api::Transition`]s change the actual state, and the
//! reconciler compares the two and starts [`operation::Operation`]s, which run in the background, one at a
//! time per [`operation::Key`].
//!
//! Operations act through [`plugin_api::VolumePlugin`]s, which reach the node through [`host::Host`] and nothing
//! else, the API through [`api::ApiSource`], and time through [`api::clock::Clock`].

pub mod actual;
mod block_map;
pub mod container;
pub mod controller;
pub mod desired;
mod dump;
pub mod event;
mod executor;
pub mod few;
mod in_use;
pub mod manager;
pub mod operation;
mod ownership;
pub mod plugin;
pub mod populator;
pub mod reconciler;
pub mod reconstruct;
mod recovery;
pub mod subpath;
mod waits;

pub use dump::Dump;
pub use event::{MountedVolume, Notice, Registration};
pub use manager::{Parts, VolumeManager, WAIT_LIMIT};
pub use populator::PodState;
pub use waits::{WaitCause, WaitError};
// The part of the plugin contract that the owner of a manager needs.
pub use plugin_api::paths::Paths;
pub use plugin_api::{ClientStyle, Config, Connection, DialError, Dialer, Unsent};
pub use recovery::Knowledge;
