//! The names that a case uses.

pub use harness::api::VolumeSource;
pub use harness::api::environment::HolderKind;
pub use harness::api::pod::Projection;
pub use harness::api::storage::FsGroupPolicy;
pub use harness::device_mapper::Manner;
pub use harness::fault_fs::{Fault as FileFault, Operation as FileCall, Rule as FileRule};

pub use crate::call::{Code, Method};
pub use crate::cx::source::*;
pub use crate::cx::{Container, Cx, Nfs, Pod, PodBuilder, ReadError, Volume};
pub use crate::failure::Result;
