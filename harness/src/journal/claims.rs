//! Claims file systems that are mounted in a sandbox while it lives: a loop device over a file that lies on one of them
//! outlives the sandbox, and the janitor has to know it. Writes to the run's ledger.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Seen, Witness};
use crate::observe::Device;
use crate::sandbox::{Ownership, Sandbox};

/// A witness that sees what another sees, and claims each file system that is mounted outside of the node's directory: a
/// disk that `prepare` of a manifest mounts, or the driver itself.
#[derive(Debug)]
pub struct Claiming<W> {
    inner: W,
    ownership: Ownership,
    /// The node's directory. A mount below it shows a volume, and a driver keeps no images on a volume.
    root: PathBuf,
    claimed: BTreeSet<u64>,
}

impl<W> Claiming<W> {
    /// A witness that claims for this sandbox.
    pub fn new(inner: W, sandbox: &Sandbox) -> Self {
        let (ownership, root) = (sandbox.ownership(), sandbox.layout().root().to_owned());
        Self { inner, ownership, root, claimed: BTreeSet::new() }
    }
}

impl<W: Witness> Witness for Claiming<W> {
    fn drain(&mut self) -> Vec<Seen> {
        let events = self.inner.drain();
        for event in &events {
            let Seen::Added { mount, .. } = event else { continue };
            if Path::new(&mount.target).starts_with(&self.root) {
                continue;
            }
            let Some(device) = Device::parse(&mount.dev).map(Device::raw) else { continue };
            if self.claimed.insert(device) && !self.ownership.has(device) {
                // Without a line in the ledger its loop devices stay. That is no reason to end the case.
                drop(self.ownership.also(device));
            }
        }
        events
    }
}
