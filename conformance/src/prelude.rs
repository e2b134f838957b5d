//! What a file of cases begins with: `use crate::prelude::*;`.

pub use expect_test::expect;
pub use macros::case;

pub use harness::api::environment::HolderKind;
pub use harness::api::storage::FsGroupPolicy;
pub use harness::fault_fs::{Fault as FileFault, Operation as FileCall, Rule as FileRule};

pub use crate::cx::source::*;
pub use crate::cx::{Code, Container, Cx, Method, Nfs, Pod, ReadError, Volume};
pub use crate::failure::Result;
pub use harness::device_mapper::Manner;
pub use serde_json::json;
