//! The messages between a container and its handle: JSON, one message per line, each question with one answer.

use std::fmt;
use std::path::PathBuf;

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use super::view::Sight;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    Look(Vec<PathBuf>),
    Read(PathBuf),
    Write(PathBuf, String),
    Rename(PathBuf, PathBuf),
    Mount(PathBuf),
    Unmount(PathBuf),
    /// A block device by its numbers, for which a node is made and opened.
    OpenNode(u32, u32),
    Identity,
    /// A directory whose files are replaced atomically, the names of the files, and their last content.
    Follow(PathBuf, Vec<String>, String),
    /// A program with its arguments, at the terminal that the container was given.
    Run(Vec<String>),
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look(_) => f.write_str("look around"),
            Self::Read(path) => write!(f, "read `{}`", path.display()),
            Self::Write(path, _) => write!(f, "write `{}`", path.display()),
            Self::Rename(path, _) => write!(f, "rename `{}`", path.display()),
            Self::Mount(path) => write!(f, "mount on `{}`", path.display()),
            Self::Unmount(path) => write!(f, "unmount `{}`", path.display()),
            Self::OpenNode(major, minor) => write!(f, "open the device {major}:{minor}"),
            Self::Identity => f.write_str("say who it is"),
            Self::Follow(path, ..) => write!(f, "follow `{}`", path.display()),
            Self::Run(words) => write!(f, "run `{}`", words.join(" ")),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The container is built. The number is that of its first process, outside.
    Ready {
        first: i32,
    },
    Seen(Vec<Sight>),
    Text(String),
    /// The contents that were read together, without repetition.
    Read(Vec<Vec<String>>),
    Done,
    /// A program has ended, with the code that a shell would have for it.
    Exited(u8),
    Refused {
        what: String,
        errno: i32,
    },
}

/// The paths to look at: all binds and devices of the configuration.
pub(super) fn shown(spec: &Spec) -> Vec<PathBuf> {
    let binds = spec.mounts().iter().flatten().filter(|mount| mount.typ().as_deref() == Some("bind"));
    let devices = spec.linux().iter().flat_map(|linux| linux.devices().iter().flatten());
    let binds = binds.map(|mount| mount.destination().clone());
    binds.chain(devices.map(|device| device.path().clone())).collect()
}
