//! What is there when a driver starts for the first time. Reads the mount table, loop devices and two directories.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::loop_device::table::{self, BoundLoop};
use crate::observe::{self, Mount, MountId};

/// The directories that a container has for itself, and that a machine does not keep over a reboot.
const PLACES: [&str; 2] = ["/run", "/tmp"];

/// Mounts, loop devices and files from before a driver's first start. With what `prepare` of its manifest has made: that
/// stands in for disks of the machine, which are mounted again when it boots.
#[derive(Debug)]
pub struct Prepared {
    mounts: BTreeSet<MountId>,
    loops: Vec<BoundLoop>,
    files: BTreeSet<PathBuf>,
    /// The numbers of the file systems on the manifest's disks.
    disks: Vec<u64>,
}

impl Prepared {
    pub(super) fn now(disks: Vec<u64>) -> Self {
        let mounts = observe::snapshot().unwrap_or_default();
        let mounts = mounts.iter().map(|mount| mount.id).collect();
        Self { mounts, loops: table::bound(), files: listed(), disks }
    }

    /// The numbers of the file systems on the manifest's disks. What lies on them is the driver's.
    pub fn disks(&self) -> &[u64] {
        &self.disks
    }

    /// Whether it was mounted before.
    pub fn has_mount(&self, mount: &Mount) -> bool {
        self.mounts.contains(&mount.id)
    }

    /// Whether it was attached before, to the same file.
    pub fn has_loop(&self, bound: &BoundLoop) -> bool {
        self.loops.iter().any(|prepared| prepared.is_same(bound))
    }

    /// Files and directories in `/run` and `/tmp` that have come since.
    pub fn new_files(&self) -> Vec<PathBuf> {
        listed().difference(&self.files).cloned().collect()
    }
}

fn listed() -> BTreeSet<PathBuf> {
    let entries = PLACES.iter().flat_map(fs::read_dir).flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
