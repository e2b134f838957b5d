//! Real resources, one node, and what was seen.
//!
//! A case runs in a process tree of its own, in its own mount and process namespaces. In it this crate puts
//! together a [`Layout`], where everything lies; the driver, as its [`Manifest`](manifest::Manifest) says; a
//! proxy before the driver's socket, which records every call and can spoil it; the API objects, in memory;
//! the node, with the volume manager in a process of its own; and the journal, everything that happened in
//! one order ([`Journal`](journal::Journal)) with the kernel as witness, told in the names of [`Symbols`](symbols::Symbols).

pub mod census;
pub mod cluster;
pub mod container;
pub mod driver;
pub mod facts;
pub mod fault_fs;
pub mod filesystem;
pub mod guard;
pub mod janitor;
pub mod journal;
pub mod kernel_log;
pub mod layout;
pub mod ledger;
pub mod loop_device;
pub mod manifest;
pub mod nfs_export;
pub mod node;
pub mod observe;
pub mod proxy;
pub mod sandbox;
mod subcommand;
pub mod symbols;
pub mod tmpfs;
pub mod wait;

pub use layout::Layout;
pub use subcommand::main;
pub use volume_manager::api;
