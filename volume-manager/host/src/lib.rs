//! The only door to the kernel: everything a volume manager asks of its node.
//!
//! [`Host`] is the door. Its required methods are primitive, one system call or one command each, so that a
//! test can put a fault between any two of them. Operations made of several live in free functions over
//! `&dyn Host`, and are the same for every kind of host:
//!
//! - [`bind`]: the two-step bind mount, and a device node bound over a file;
//! - [`cleanup`]: unmount and remove a mount point, with force after a deadline if asked;
//! - [`format`]: probe, check or make a file system, then mount it;
//! - [`lookup`]: whether a path exists, which mounts refer to it, whether the node's root is shared.
//!
//! The door's types: [`MountSpec`] and [`MountOptions`] with their [`Sensitive`] part, [`MountTable`] read
//! from mountinfo, [`Metadata`] and [`DirEntry`] of files, and [`HostError`] with the questions that steer a
//! clean-up, such as [`HostError::is_corrupted_mount`].
//!
//! Every method that changes something announces it as one `tracing` event with target
//! [`effect::TARGET`] after it has succeeded, from the thread that did it.

pub mod bind;
mod blocking;
pub mod cleanup;
mod disk_tools;
mod door;
pub mod effect;
pub mod errno;
mod error;
pub mod exec;
pub mod fake;
mod file;
pub mod format;
pub mod linux;
pub mod lookup;
mod mount_command;
mod mount_table;
mod options;
mod ownership;
mod sub_path;
pub mod watch;

pub use door::{Bind, Host, OpenedBeneath, Propagation, Removal};
pub use error::{Action, HostError, Result, ToolError};
pub use file::{DirEntry, FileKind, FsStats, LARGEST, Metadata, Usage};
pub use mount_table::{DeviceNumber, MountEntry, MountTable, ParseError};
pub use options::{MountOptions, MountSpec, Scope, Sensitive};
pub use ownership::{OwnershipChange, WalkProgress};
