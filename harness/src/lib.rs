//! Real resources, one node, and what was seen.
//!
//! A case runs in a process tree of its own, in its own mount and process namespaces. In it this crate puts
//! together a [`Layout`], where everything lies; the driver, as its [`Manifest`](manifest::Manifest) says; a
//! proxy before the driver's socket, which records every call and can spoil it; the API objects, in memory;
//! the node, with the volume manager in a process of its own; and the journal, everything that happened in
//! one order ([`Journal`](journal::Journal)) with the kernel as witness, in the names of [`Symbols`](symbols::Symbols).
//!
//! Each resource is a guard that says what stood in the way of its end, and the census says what was forgotten. A
//! test of storage, whole:
//!
//! ```standalone_crate
//! use harness::{census::Census, filesystem::{DiskFormat, Filesystem}, guard::Guard, sandbox::Sandbox};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use harness::facts::{Fact, Facts};
//! # if !Facts::get().has(Fact::Ext4) {
//! #     return Ok(());
//! # }
//! let sandbox = Sandbox::enter(Default::default())?;
//! let before = Census::take(&sandbox, &[])?;
//! let (state, target) = (sandbox.layout().driver_state(), sandbox.layout().root().join("pods"));
//!
//! let disk = Filesystem::create(DiskFormat::Ext4, 64 << 20, &state, &target)?;
//! std::fs::write(disk.path().join("greeting"), "hello")?;
//! assert_eq!(disk.device().backing().metadata()?.len(), 64 << 20);
//! disk.close()?;
//!
//! assert!(Census::take(&sandbox, &[])?.leftovers(&before).is_empty());
//! # Ok(())
//! # }
//! ```

pub mod api_server;
pub mod census;
pub mod cgroup;
pub mod chore;
pub mod clock;
mod configfs;
pub mod container;
pub mod controllers;
pub mod device_mapper;
mod disk_format;
pub mod driver;
pub mod facts;
pub mod fault_fs;
pub mod filesystem;
pub mod guard;
pub mod iscsi;
pub mod janitor;
pub mod journal;
pub mod kernel_log;
pub mod kernel_module;
pub mod layout;
pub mod ledger;
pub mod lines;
mod listing;
pub mod load;
pub mod loop_device;
pub mod manifest;
pub mod masks;
pub mod module_disk;
pub mod nfs_export;
pub mod node;
mod notification;
pub mod observe;
pub mod printable;
pub mod private;
pub mod proxy;
pub mod sandbox;
pub mod standing;
mod subcommand;
pub mod symbols;
pub mod testbed;
pub mod tmpfs;
pub mod volume_group;
pub mod wait;
pub mod yaml;

pub use layout::Layout;
pub use subcommand::main;
