//! The node's own kinds of volumes on the real kernel: their files with modes and owners, and their leftovers.

mod content;
mod elsewhere;
mod empty_dir;
mod flex_volume;
mod host_path;
mod local;
mod nfs;
mod subpath;
mod updates;
