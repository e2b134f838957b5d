//! The cases, and nothing else. Each is one function in one file; the id of a case is its path in this crate.
//!
//! A program has them as soon as it names this crate: `#[case]` registers each at link time.

mod all_volumes;
mod atomic_writer;
mod block;
mod container;
mod content;
mod csi;
mod disk;
mod empty_dir;
mod ephemeral;
mod flex_volume;
mod fuse;
mod host_path;
mod local;
mod memory;
mod nfs;
mod ownership;
mod power;
mod prelude;
mod sub_path;
