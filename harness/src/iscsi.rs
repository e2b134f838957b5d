//! An iSCSI target of this kernel (LIO), and the initiator of this machine, for a driver that attaches disks.
//!
//! Sessions, targets and the names of their disks are the machine's: use them in a guest.

mod initiator;
mod links;
mod target;

use std::io;
use std::path::PathBuf;

pub use initiator::Initiator;
pub use target::{Image, Target};

use crate::kernel_module;

/// A target or an initiator that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IscsiError {
    #[error("cannot load the module `{name}`")]
    Module {
        name: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot mount the kernel's configuration")]
    Configuration(#[source] io::Error),
    /// The kernel has refused a setting.
    #[error("cannot {what} `{path}`")]
    Setting {
        what: &'static str,
        /// Below the top of configfs.
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot make `{path}`")]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot run `iscsid`")]
    Run(#[source] io::Error),
    /// The daemon does not listen.
    #[error("`iscsid` has not come up: {output}")]
    Daemon { output: String },
    #[error("cannot listen to the kernel's messages about disks")]
    Links(#[source] io::Error),
}

fn load(names: &[&'static str]) -> Result<(), IscsiError> {
    names.iter().try_for_each(|name| {
        kernel_module::load(name, &[]).map_err(|source| IscsiError::Module { name, source })
    })
}
