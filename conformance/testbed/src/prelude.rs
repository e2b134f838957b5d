//! The names that a case file imports.

pub use crate::call::{Code, Method};
pub use crate::cx::Lifecycle::{DriverRestart, Kill, Restart};
pub use crate::cx::Victim::{Both, Driver, Machine, Node};
pub use crate::cx::source::*;
pub use crate::cx::{
    Answer, Blocks, Call, Cluster, Container, Cx, Daemon, Daemons, FileSystem, Files, Nfs, NodeCalls,
    OtherNode, Pod, PodBuilder, ReadError, Snapshot, Victim, Volume, VolumeBuilder,
};
pub use crate::failure::Result;
pub use api::VolumeSource;
pub use api::environment::HolderKind;
pub use api::pod::Projection;
pub use api::storage::FsGroupPolicy;
pub use contracts::driver::{
    FLAG_NOT_IN_FORCE, FOR_WRITING, NOT_MOUNTED, NOT_STAGED, REFUSED_AGAIN, REMOVED, TOO_LARGE, TOO_SMALL,
};
pub use harness::device_mapper::Manner;
pub use harness::fault_fs::{Fault as FileFault, Operation as FileCall, Rule as FileRule};
