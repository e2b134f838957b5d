//! The devices a container may use: a control group with a program that the kernel asks at each use (BPF), as
//! runtimes have it. Makes one directory below the machine's control groups (version 2) and loads one program.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType, Spec};

use crate::cgroup;
use crate::cgroup::device_rules::{self, BLOCK, CHARACTER, MAKE, READ, Rule, WRITE};
use crate::guard::{self, CloseError, Guard};

/// Devices every container may use, by their numbers: null, zero, full, random, urandom, tty, ptmx.
const ALWAYS: [(u32, u32); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];

/// Pseudo terminals, of which there may be any number.
const TERMINALS: u32 = 136;

/// Why a container's devices cannot be limited.
#[derive(Debug, thiserror::Error)]
pub enum DeviceGroupError {
    /// Nothing is mounted that could make a group.
    #[error("cannot find control groups of version 2")]
    Absent,
    /// The group could not be made.
    #[error("cannot make the control group `{path}`")]
    Make {
        /// The path at which it was tried.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The kernel takes no such program.
    #[error("cannot limit the devices of a control group")]
    Program(#[source] io::Error),
}

/// A control group whose processes use no devices but some.
#[derive(Debug)]
pub struct DeviceGroup {
    path: Option<PathBuf>,
}

/// The path of a group of this name. The ledger gets it before the group is made.
///
/// # Errors
/// When no hierarchy can have such a group.
pub fn place(name: &str) -> Result<PathBuf, DeviceGroupError> {
    cgroup::unified().map(|top| top.join(name)).ok_or(DeviceGroupError::Absent)
}

impl DeviceGroup {
    /// Makes one with the rules of a container's configuration.
    ///
    /// # Errors
    /// When the kernel does not.
    pub fn create(path: &Path, spec: &Spec) -> Result<Self, DeviceGroupError> {
        let failed = |source| DeviceGroupError::Make { path: path.to_owned(), source };
        fs::create_dir(path).map_err(failed)?;
        let group = Self { path: Some(path.to_owned()) };
        let directory = File::open(path).map_err(failed)?;
        device_rules::limit(&directory, &rules(spec)).map_err(DeviceGroupError::Program)?;
        Ok(group)
    }

    /// The file into which a process writes `0` to move itself into the group.
    pub(super) fn entrance(&self) -> io::Result<File> {
        cgroup::entrance(self.path.as_ref().ok_or(io::ErrorKind::NotFound)?)
    }

    fn remove(&mut self) -> Result<(), CloseError> {
        self.path.take().map_or(Ok(()), |path| cgroup::remove(&[path]))
    }
}

impl Guard for DeviceGroup {
    fn close(mut self) -> Result<(), CloseError> {
        self.remove()
    }
}

impl Drop for DeviceGroup {
    fn drop(&mut self) {
        guard::undo("the control group of a container", || self.remove());
    }
}

/// The rules of a configuration and those that every runtime adds; the last one that is about a use decides.
fn rules(spec: &Spec) -> Vec<Rule> {
    let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let wanted = resources.into_iter().flat_map(|resources| resources.devices().iter().flatten());
    let mut rules: Vec<Rule> = wanted.map(rule).collect();
    // A node may be made of anything. It is another matter to open it.
    rules.push(Rule { allow: true, kind: None, major: None, minor: None, access: MAKE });
    let character = |major: u32, minor: Option<u32>| Rule {
        allow: true,
        kind: Some(CHARACTER),
        major: Some(major.cast_signed()),
        minor: minor.map(u32::cast_signed),
        access: MAKE | READ | WRITE,
    };
    rules.extend(ALWAYS.map(|(major, minor)| character(major, Some(minor))));
    rules.push(character(TERMINALS, None));
    rules
}

fn rule(wanted: &LinuxDeviceCgroup) -> Rule {
    let kind = match wanted.typ() {
        Some(LinuxDeviceType::B) => Some(BLOCK),
        Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(CHARACTER),
        _ => None,
    };
    let number =
        |number: Option<i64>| number.and_then(|number| i32::try_from(number).ok()).filter(|n| *n >= 0);
    let letters = wanted.access().as_deref().unwrap_or("rwm");
    let bit = |letter: char, bit: i32| if letters.contains(letter) { bit } else { 0 };
    Rule {
        allow: wanted.allow(),
        kind,
        major: number(wanted.major()),
        minor: number(wanted.minor()),
        access: bit('m', MAKE) | bit('r', READ) | bit('w', WRITE),
    }
}
