//! What a kind of volume must be able to do, and what it may be able to do besides.
//!
//! A [`VolumePlugin`] answers questions about a [`Spec`] without touching anything, makes a volume appear in
//! a pod's directory and takes it back. Four abilities are optional, each a trait of its own that the plugin
//! may return: [`Attacher`], [`DeviceMounter`], [`BlockMapper`] and [`Expander`]. Plugins hold no state about
//! volumes: requests carry all they need, and what an operation learns goes back through
//! [`OperationContext::mark`].
//!
//! A plugin announces risk. Directly before the call whose outcome may stay unknown, and after everything
//! else that can fail, it awaits the mark that says so; if the mark is refused because nobody wants the
//! volume any more, it stops there.
//!
//! This crate lies below both plugins and operations: neither sees the manager, and a plugin sees no other.

mod changes;
mod config;
mod context;
pub mod error;
mod facts;
pub mod paths;
mod plugin;
mod reconstruct;
pub mod registry;
mod request;
mod spec;
mod transition;

pub use changes::Changes;
pub use config::{ClientStyle, Config, DialError, Dialer};
pub use context::{EventSink, Mark, OperationContext, OperationId, Reason, ReportQueue, Told};
pub use facts::{Facts, RegisteredDriver};
pub use plugin::{Attacher, BlockMapper, DeviceMounter, Expander, Remote, VolumePlugin};
pub use reconstruct::{Found, Rebuilt, Scene, Staged, UnidentifiedStage};
pub use request::{Before, Expand, MapDevice, MountDevice, Mounted, SetUp, TearDown, Undo};
pub use spec::{Spec, SpecSource};
pub use transition::{PodRecord, Transition};
