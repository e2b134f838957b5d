//! Volumes of the manager's own NFS plugin, on a server that works, goes down or withdraws an export.
//!
//! They need a kernel with an NFS server, which the kernels of guests have.

mod export;
mod lifecycle;
mod server;
mod squash;
