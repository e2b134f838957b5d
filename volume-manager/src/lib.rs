//! The node's volume manager: attaches, stages, publishes, and takes it all back.
//!
//! Start with [`VolumeManager`]: it is told about pods and makes their volumes appear. Behind it one task, the
//! loop in [`manager`], owns all state. Everything that happens reaches it as an [`event::Event`]: the
//! [`populator`] turns pods into desired state, [`operation::Transition`]s change the actual state, and the
//! reconciler compares the two and starts [`operation::Operation`]s, which run in the background, one at a
//! time per [`operation::Key`].
//!
//! Operations act through [`plugin::VolumePlugin`]s, which reach the node through [`host::Host`] and nothing
//! else, the API through [`api::ApiSource`], and time through [`clock::Clock`].

pub mod actual;
mod block_map;
pub mod container;
pub mod controller;
pub mod desired;
pub mod event;
pub mod manager;
pub mod operation;
mod ownership;
pub mod plugin;
pub mod populator;
pub mod reconciler;
pub mod reconstruct;
pub mod subpath;

pub use event::{MountedVolume, Notice, PodState, Registration};
pub use manager::waits::{WaitCause, WaitError};
pub use manager::{Parts, VolumeManager, WAIT_LIMIT};
// What starts a manager: its owner needs nothing else of the plugin contract.
pub use plugin_api::paths::Paths;
pub use plugin_api::{ClientStyle, Config, DialError, Dialer};
