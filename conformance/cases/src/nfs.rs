//! Volumes of the manager's own NFS plugin, on a server that lives, dies and changes its mind.
//!
//! They need a kernel that serves NFS: guests have one.

mod export;
mod lifecycle;
mod server;
mod squash;
