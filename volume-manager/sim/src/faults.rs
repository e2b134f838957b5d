//! What goes wrong in a simulated kernel, and when the manager crashes in the middle of a step.

use std::path::{Component, Path};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use host::fake::{Order, Step};
use tokio::sync::Notify;

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
    /// Steps until the manager crashes, and whether that step takes effect.
    crash: Option<(u32, bool)>,
    /// The manager has crashed: nothing of it happens any more.
    dead: bool,
    /// It reads back what was left, and has started nothing yet.
    scanning: bool,
    crashed: Arc<Notify>,
}

impl KernelFaults {
    pub(crate) fn new(seed: u64, per_mille: u32) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            random: Rng::with_seed(seed ^ 0xface),
            per_mille,
            crash: None,
            dead: false,
            scanning: false,
            crashed: Arc::new(Notify::new()),
        })))
    }

    /// The manager is to crash at a step from now; the answer is told when it does.
    pub(crate) fn crash_at(&self, step: u32, after: bool) {
        self.open().crash = Some((step, after));
    }

    /// Is notified when a crash that was ordered has happened.
    pub(crate) fn crashed(&self) -> Arc<Notify> {
        Arc::clone(&self.open().crashed)
    }

    /// The manager has started again.
    pub(crate) fn revive(&self) {
        let mut inner = self.open();
        inner.dead = false;
        inner.scanning = true;
        inner.crash = None;
    }

    /// The manager has read back what was left: it has started an operation.
    pub(crate) fn scanned(&self) {
        self.open().scanning = false;
    }

    /// Nothing goes wrong any more.
    pub(crate) fn stop(&self) {
        let mut inner = self.open();
        inner.per_mille = 0;
        inner.crash = None;
    }

    /// What happens to a step.
    pub(crate) fn decide(&self, step: &Step<'_>) -> Order {
        let mut inner = self.open();
        if inner.dead {
            return Order::Hang;
        }
        if let Some((left, after)) = &mut inner.crash {
            let after = *after;
            *left -= 1;
            if *left == 0 {
                inner.crash = None;
                inner.dead = true;
                inner.crashed.notify_one();
                return if after { Order::HangAfter } else { Order::Hang };
            }
        }
        inner.stall_or_fail(step)
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
