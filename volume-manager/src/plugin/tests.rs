//! The node's own kinds of volumes, tried on the real kernel: what is there, with which mode and owner, and
//! what is left.

mod content;
mod elsewhere;
mod empty_dir;
mod host_path;
mod local;
mod nfs;
mod subpath;
mod updates;
