//! What goes wrong in a simulated kernel.

use std::path::{Component, Path};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use host::fake::{Order, Step};

use crate::crash::{Crash, Life};
use crate::script::Place;

/// Errors a kernel may answer to almost anything.
const ERRORS: &[i32] = &[5, 12, 16, 28];

/// Steps that change nothing and are asked for all the time; a failing one is rarer than a failing change.
const READS: &[&str] = &["read_dir", "read_file", "metadata", "symlink_metadata", "is_likely_mount_point"];

/// Decides about each step of the kernel. Clones are the same decisions.
#[derive(Debug, Clone)]
pub(crate) struct KernelFaults(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    random: Rng,
    per_mille: u32,
    crash: Crash,
    /// The manager reads back what was left, and has started nothing yet.
    scanning: bool,
}

impl KernelFaults {
    pub(crate) fn new(seed: u64, per_mille: u32, crash: Crash) -> Self {
        let random = Rng::with_seed(seed ^ 0xface);
        Self(Arc::new(Mutex::new(Inner { random, per_mille, crash, scanning: false })))
    }

    /// The manager has started again.
    pub(crate) fn revive(&self) {
        self.open().scanning = true;
    }

    /// The manager has read back what was left: it has started an operation.
    pub(crate) fn scanned(&self) {
        self.open().scanning = false;
    }

    /// Nothing goes wrong any more.
    pub(crate) fn stop(&self) {
        self.open().per_mille = 0;
    }

    /// What happens to a step.
    pub(crate) fn decide(&self, step: &Step<'_>) -> Order {
        let mut inner = self.open();
        match inner.crash.reach(Place::Kernel) {
            Life::GoesOn => inner.stall_or_fail(step),
            Life::Ended => Order::Hang,
            Life::EndsAfter => {
                inner.crash.happens();
                Order::HangAfter
            }
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn stall_or_fail(&mut self, step: &Step<'_>) -> Order {
        if self.per_mille == 0 || self.random.u32(..1000) >= self.per_mille {
            return Order::Go;
        }
        // The scan after a restart reads whole directories, and removes some that are empty; one that cannot be
        // read is skipped, and what was in it is found by nobody. That is how a node behaves whose disk is
        // broken, and no bug: its next start finds it.
        let reads = READS.contains(&step.method);
        if reads || self.scanning || is_scanned(step.path) {
            return if self.random.bool() { Order::Yield } else { self.delay() };
        }
        match self.random.u32(..4) {
            0 => Order::Yield,
            1 => self.delay(),
            2 => Order::Fail(ERRORS[self.random.usize(..ERRORS.len())]),
            _ => Order::FailAfter(ERRORS[self.random.usize(..ERRORS.len())]),
        }
    }

    fn delay(&mut self) -> Order {
        Order::Delay(Duration::from_millis(self.random.u64(1..200)))
    }
}

/// Whether a path is one of the directories that reconstruction walks.
fn is_scanned(path: &Path) -> bool {
    path.components().any(|part| part == Component::Normal("pods".as_ref())) && path.components().count() < 6
}
