//! Faults of the simulated kernel.

use std::path::{Component, Path};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use host::fake::{Order, Step};

use crate::crash::{Crash, Life};
use crate::script::CrashPoint;

/// Errors that almost any call may return.
const ERRORS: &[i32] = &[5, 12, 16, 28];

/// Frequent steps that change nothing; they fail less often than changes.
const READS: &[&str] = &["read_dir", "read_file", "metadata", "symlink_metadata", "is_likely_mount_point"];

/// Steps that remove what an operation has made. They come one after the other at its end, so that each must fail often if all
/// the states in between are to be met.
const REMOVALS: &[&str] = &["remove_dir", "remove_file"];

/// How many times as often as other steps these fail.
const OFTEN: u32 = 4;

/// Decides about each step of the kernel. Clones share the decisions.
#[derive(Debug, Clone)]
pub(crate) struct KernelFaults(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    random: Rng,
    per_mille: u32,
    crash: Crash,
    /// Whether the manager still reconstructs its volumes: it has started no operation yet.
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

    /// The manager has reconstructed its volumes: it has started an operation.
    pub(crate) fn scanned(&self) {
        self.open().scanning = false;
    }

    /// Ends all faults.
    pub(crate) fn stop(&self) {
        self.open().per_mille = 0;
    }

    /// Decides about one step.
    pub(crate) fn decide(&self, step: &Step<'_>) -> Order {
        let mut inner = self.open();
        match inner.crash.reach(CrashPoint::Kernel) {
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
        let per_mille = if REMOVALS.contains(&step.method) { OFTEN * self.per_mille } else { self.per_mille };
        if per_mille == 0 || self.random.u32(..1000) >= per_mille {
            return Order::Go;
        }
        // Reconstruction reads whole directories, and removes empty ones. A directory that cannot be read is
        // skipped, and its volumes stay unknown until the next start: that is expected on a broken disk and not
        // a bug, so these reads do not fail.
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

/// Whether reconstruction reads this directory.
fn is_scanned(path: &Path) -> bool {
    path.components().any(|part| part == Component::Normal("pods".as_ref())) && path.components().count() < 6
}
