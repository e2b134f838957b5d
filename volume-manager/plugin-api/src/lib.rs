//! The contract of volume plugins: what each kind of volume can do, and five optional abilities.
//!
//! A [`VolumePlugin`] answers questions about a [`Spec`] without touching anything, sets a volume up for a pod
//! and tears it down. Five abilities are optional, each a trait of its own that the plugin may return:
//! [`Attacher`], [`DeviceMounter`], [`BlockMapper`], [`Expander`] and [`Meter`]. Plugins hold no state about
//! volumes: requests carry everything they need, and what an operation learns goes back through
//! [`OperationContext::mark`].
//!
//! A plugin marks a risky call: directly before a call whose outcome may stay unknown, and after everything
//! else that can fail, it awaits the mark. If the mark is refused because the volume is no longer wanted, it
//! stops there.
//!
//! This crate lies below both plugins and operations: neither sees the manager, and no plugin sees another.

mod changes;
mod config;
mod connection;
mod context;
pub mod error;
mod facts;
pub mod paths;
mod plugin;
mod reconstruct;
pub mod registry;
mod request;
mod spec;
mod stats;
mod transition;

pub use changes::Changes;
pub use config::{ClientStyle, Config, DialError, Dialer};
pub use connection::{Answer, Connection, Unsent};
pub use context::{EmittedEvent, EventSink, Mark, OperationContext, OperationId, Reason, ReportQueue};
pub use facts::{Facts, RegisteredDriver};
pub use plugin::{Attacher, BlockMapper, DeviceMounter, Expander, Meter, Remote, VolumePlugin};
pub use reconstruct::{Found, Rebuilt, Scene, Staged, UnidentifiedStage};
pub use request::{Before, Expand, MapDevice, MountDevice, Mounted, SetUp, TearDown, Undo};
pub use spec::{Spec, SpecSource};
pub use stats::{Usage, VolumeStats};
pub use transition::{PodRecord, Transition};
