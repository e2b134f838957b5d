//! The cases. Each is one function in one file; the id of a case is its path below this module.

mod block;
mod container;
mod content;
mod csi;
mod dead;
mod disk;
mod empty_dir;
mod ephemeral;
mod everything;
mod host_path;
mod local;
mod memory;
mod nfs;
mod ownership;
mod power;
mod sub_path;
mod writer;
