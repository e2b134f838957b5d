//! The Container Storage Interface 1.12.0 and the kubelet's plugin registration, as Rust.
//!
//! [`v1`] has the messages, clients and servers of the five CSI services; [`registration`] has those of
//! `pluginregistration.v1`. Both are generated from `proto/`, which is written here; a test compares its names
//! and numbers with the published ones in `proto/wire.txt`.
//!
//! [`descriptor`] describes the contracts themselves, such as which fields are secret. [`json`] turns any call
//! into JSON from its bytes and its method's name, with secrets masked: a proxy records traffic with it. `Debug`
//! of a message with secrets is masked in the same way.

#![warn(missing_docs)]

pub mod descriptor;
pub mod json;
mod masked;

/// Whether tonic made this status itself, since a call had no answer within its time limit. gRPC in other languages uses
/// DeadlineExceeded for that.
pub fn is_timeout(status: &tonic::Status) -> bool {
    status.code() == tonic::Code::Cancelled && status.message() == "Timeout expired"
}

/// The messages, clients and servers of CSI.
#[allow(missing_docs, reason = "generated; the specification documents the fields")]
#[allow(unreachable_pub, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("csi.v1");
}

/// The messages, client and server of the kubelet's plugin registration.
#[allow(missing_docs, reason = "generated; the contract is six messages long")]
#[allow(unreachable_pub, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
