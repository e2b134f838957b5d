//! Claims file systems that are mounted in a sandbox while it lives: a loop device over a file that lies on one of them
//! outlives the sandbox, and the janitor has to know it. Writes to the run's ledger.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Seen, Witness};
use crate::sandbox::Ownership;

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
    /// A witness for a sandbox with the node's directory at `root`.
    pub fn new(inner: W, ownership: Ownership, root: PathBuf) -> Self {
        Self { inner, ownership, root, claimed: BTreeSet::new() }
    }
}

impl<W: Witness> Witness for Claiming<W> {
    fn drain(&mut self) -> Vec<Seen> {
        let events = self.inner.drain();
        for event in &events {
            let Seen::Added { mount, .. } = event else { continue };
            let Some(device) = raw(&mount.dev).filter(|_| !Path::new(&mount.target).starts_with(&self.root))
            else {
                continue;
            };
            if self.claimed.insert(device) && !self.ownership.has(device) {
                // Without a line in the ledger its loop devices stay, as they would if nobody had seen the mount.
                drop(self.ownership.also(device));
            }
        }
        events
    }
}

/// `st_dev` of the `major:minor` of a mount.
fn raw(device: &str) -> Option<u64> {
    let (major, minor) = device.split_once(':')?;
    Some(nix::sys::stat::makedev(major.parse().ok()?, minor.parse().ok()?))
}
