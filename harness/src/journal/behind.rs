//! A witness of the part of a machine's mounts that is a node's, and of the loop devices behind them.
//!
//! For a driver outside of the sandbox: its images lie where no sandbox's ledger looks, so each attachment is
//! written down when the first mount shows it. Opens loop devices to ask what is attached to them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Seen, Witness};
use crate::ledger::{Entry, Ledger};
use crate::loop_device::LOOP_MAJOR;
use crate::loop_device::table::{self, BoundLoop};
use crate::observe::Device;
use crate::wait::Deadline;

/// The time for a device to go after the driver has detached it.
const LINGER: Duration = Duration::from_secs(5);

/// The attachments that were seen behind mounts. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LoopsBehind(Arc<Mutex<Vec<BoundLoop>>>);

impl LoopsBehind {
    /// Those that stay. A device goes with the last mount of its file system, and every sandbox that was made
    /// meanwhile has a copy of it until it ends or lets go.
    pub fn left(&self) -> Vec<BoundLoop> {
        let still = || {
            let mut seen = self.seen().clone();
            seen.retain(|bound| table::read(bound.number).is_some_and(|now| now.is_same(bound)));
            seen
        };
        let none = || still().is_empty().then_some(());
        match Deadline::after(LINGER).until("", none) {
            Ok(()) => Vec::new(),
            Err(_) => still(),
        }
    }

    /// A witness that sees what `inner` sees below `root`, and writes the attachments behind it into the ledger.
    pub fn watching<W: Witness>(
        &self,
        inner: W,
        root: PathBuf,
        ledger: Arc<Ledger>,
    ) -> impl Witness + use<W> {
        Watching { inner, root, ledger, behind: self.clone() }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Vec<BoundLoop>> {
        // Attachments are pushed whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Watching<W> {
    inner: W,
    root: PathBuf,
    ledger: Arc<Ledger>,
    behind: LoopsBehind,
}

impl<W: Witness> Witness for Watching<W> {
    fn drain(&mut self) -> Vec<Seen> {
        let mut events = self.inner.drain();
        events.retain(|event| match event {
            Seen::Added { mount, .. } | Seen::Changed { mount } => self.is_below(&mount.target),
            Seen::Removed { target, .. } => self.is_below(target),
            Seen::Lost(_) => true,
        });
        for event in &events {
            let Seen::Added { mount, .. } = event else { continue };
            for number in
                [Some(&mount.dev), mount.rdev.as_ref()].into_iter().flatten().filter_map(|dev| minor(dev))
            {
                self.note(number);
            }
            // btrfs has a device number of its own.
            if let Some(number) = mount.source.strip_prefix("/dev/loop").and_then(|n| n.parse().ok()) {
                self.note(number);
            }
        }
        events
    }
}

impl<W> Watching<W> {
    fn is_below(&self, target: &str) -> bool {
        Path::new(target).starts_with(&self.root)
    }

    fn note(&self, number: u32) {
        let Some(bound) = table::read(number) else { return };
        let mut seen = self.behind.seen();
        if seen.iter().any(|earlier| earlier.is_same(&bound)) {
            return;
        }
        let BoundLoop { number, device, inode, sequence, .. } = bound;
        // A device that cannot be recorded is still looked for at the end of the case.
        let _ = self.ledger.record(&Entry::Loop { number, device, inode, sequence });
        seen.push(bound);
    }
}

/// The N of `7:N`.
fn minor(device: &str) -> Option<u32> {
    Device::parse(device).filter(|device| device.major == LOOP_MAJOR).map(|device| device.minor)
}
