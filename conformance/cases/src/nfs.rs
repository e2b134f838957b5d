//! Volumes of the manager's own NFS plugin, on a server that works, goes down or withdraws an export.
//!
//! They need a kernel that serves NFS: guests have one.

mod export;
mod lifecycle;
mod server;
mod squash;
